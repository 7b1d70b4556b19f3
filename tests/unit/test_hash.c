/* Digests: SHA-256 compared with vectors of NIST and RFC 4231, for every implementation that this processor supports.
 * Also messages of fields; different field lists must have different encodings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/sha256.h"

static pi__digest sha256(const void *p, size_t n)
{
    pi__hasher h;
    pi__sha256_begin(&h);
    pi__sha256_add(&h, p, n);
    return pi__sha256_end(&h);
}

static void is_hex(pi__digest d, const char *want)
{
    char hex[PI__DIGEST_HEX];
    pi__digest again;
    pi__digest_hex(&d, hex);
    assert_string_equal(hex, want);
    assert_true(pi__digest_parse(hex, &again) && pi__digest_equal(&d, &again));
}

/* Examples of FIPS 180-4, and NIST's test vectors of short messages. */
static void vectors(void **state)
{
    (void) state;
    static const struct { const char *text, *digest; } text[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
        {"\xd3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"},
        {"\x74\xba\x25\x21", "b16aa56be3880d18cd41e68384cf1ec8c17680c45a02b1575dc1518923ae8b0e"},
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) is_hex(sha256(text[i].text, strlen(text[i].text)), text[i].digest);
    pi__hasher h;
    pi__sha256_begin(&h);
    for (int i = 0; i < 100000; i++) pi__sha256_add(&h, "aaaaaaaaaa", 10);
    is_hex(pi__sha256_end(&h), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* All lengths near block boundaries, in one piece and in every two pieces. Another library computed the digest of
 * digests. */
static void every_length(void **state)
{
    (void) state;
    uint8_t data[300];
    pi__hasher all;
    pi__sha256_begin(&all);
    for (size_t n = 0; n < sizeof data; n++) {
        for (size_t i = 0; i < n; i++) data[i] = (uint8_t) (i * 7 + n);
        const pi__digest d = sha256(data, n);
        pi__sha256_add(&all, d.byte, sizeof d.byte);
        for (size_t cut = 0; cut <= n; cut += n < 130 ? 1 : 13) {
            pi__hasher h;
            pi__sha256_begin(&h);
            pi__sha256_add(&h, data, cut);
            pi__sha256_add(&h, data + cut, n - cut);
            const pi__digest same = pi__sha256_end(&h);
            assert_true(pi__digest_equal(&d, &same));
        }
    }
    is_hex(pi__sha256_end(&all), "d5238871a46ac4a1a75ac3fb19d645b0b3b9e5f35f5f720e2b240d605c6b694e");
}

static void implementations_agree(void **state)
{
    (void) state;
    pi__sha256_fn *there[PI__SHA256_MAX];
    const int n = pi__sha256_available(there);
    uint8_t *data = malloc(64 * 33 + 1);
    uint64_t rng = 1;
    assert_non_null(data);
    assert_true(n >= 1 && there[n - 1] == pi__sha256_generic);
    for (int round = 0; round < 400; round++) {
        const size_t blocks = (size_t) round % 33, off = (size_t) round & 1; /* also unaligned */
        uint32_t want[8], got[8], first[8];
        for (size_t i = 0; i < 64 * 33 + 1; i++) data[i] = (uint8_t) ((rng = rng * 6364136223846793005u + 1442695040888963407u) >> 56);
        memcpy(first, data + 7, sizeof first); /* any state, not only the initial one */
        memcpy(want, first, sizeof want);
        pi__sha256_generic(want, data + off, blocks);
        for (int i = 0; i < n; i++) {
            memcpy(got, first, sizeof got);
            there[i](got, data + off, blocks);
            assert_memory_equal(got, want, sizeof got);
        }
    }
    free(data);
}

static pi__digest mac(const void *key, size_t n_key, const void *p, size_t n)
{
    pi__mac_key k;
    pi__hasher h;
    pi__mac_key_init(&k, key, n_key);
    pi__mac_begin(&h, &k);
    pi__sha256_add(&h, p, n);
    return pi__mac_end(&h, &k);
}

/* RFC 4231, test cases 1, 2, 3, 6. */
static void macs(void **state)
{
    (void) state;
    uint8_t key[131], data[50];
    memset(key, 0x0b, 20);
    is_hex(mac(key, 20, "Hi There", 8), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    is_hex(mac("Jefe", 4, "what do ya want for nothing?", 28), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(data, 0xdd, sizeof data);
    is_hex(mac(key, 20, data, 50), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    is_hex(mac(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54),
           "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    const pi__digest a = mac("k", 1, "x", 1), b = mac("l", 1, "x", 1);
    assert_true(pi__mac_equal(&a, &a));
    assert_false(pi__mac_equal(&a, &b));
}

/* NH by its definition, and HMAC over its sums. */
static pi__digest slow_bulk(const pi__mac_key *k, const uint8_t *p, size_t n)
{
    const uint64_t length = n;
    pi__hasher h;
    pi__mac_begin(&h, k);
    pi__sha256_add(&h, "NH sums", 8);
    pi__sha256_add(&h, &length, 8);
    for (size_t at = 0; at < n; at += 1024)
        for (size_t pass = 0; pass < 4; pass++) {
            uint64_t sum = 0;
            for (size_t w = 0; w < 256; w++) {
                uint32_t x = 0, y = 0;
                if (w % 4 >= 2) continue; /* words 0 and 1 of each four are paired with words 2 and 3 */
                for (size_t b = 0; b < 4; b++) {
                    const size_t i = at + 4 * w + b, j = i + 8;
                    if (i < n) memcpy((uint8_t *) &x + b, p + i, 1);
                    if (j < n) memcpy((uint8_t *) &y + b, p + j, 1);
                }
                sum += (uint64_t) (uint32_t) (x + k->nh[w + 4 * pass]) * (uint32_t) (y + k->nh[w + 2 + 4 * pass]);
            }
            pi__sha256_add(&h, &sum, 8);
        }
    return pi__mac_end(&h, k);
}

static void bulk_macs(void **state)
{
    (void) state;
    enum { MOST = 40000 };
    uint8_t *data = calloc(1, MOST);
    pi__mac_key k, other;
    assert_non_null(data);
    pi__mac_key_init(&k, "k", 1);
    pi__mac_key_init(&other, "l", 1);
    assert_memory_not_equal(k.nh, other.nh, sizeof k.nh);
    for (size_t i = 0; i < MOST; i++) data[i] = (uint8_t) (i * i >> 3);
    for (size_t n = 0; n < MOST; n += n < 40 || (n > 1000 && n < 1050) || (n > 16370 && n < 16400) ? 1 : 331) {
        const pi__digest d = pi__mac_bulk(&k, data, n), same = slow_bulk(&k, data, n), wrong = pi__mac_bulk(&other, data, n);
        assert_true(pi__mac_equal(&d, &same));
        assert_false(pi__mac_equal(&d, &wrong));
    }
    memset(data, 0, MOST);
    for (size_t n = 0; n < 3000; n += 7) { /* all zeros: the length matters */
        const pi__digest d = pi__mac_bulk(&k, data, n), longer = pi__mac_bulk(&k, data, n + 1);
        assert_false(pi__mac_equal(&d, &longer));
    }
    const pi__digest none = pi__mac_bulk(&k, data, 3000);
    for (size_t bit = 0; bit < 3000 * 8; bit += 5) { /* every bit matters */
        data[bit / 8] ^= (uint8_t) (1u << bit % 8);
        const pi__digest d = pi__mac_bulk(&k, data, 3000);
        assert_false(pi__mac_equal(&d, &none));
        data[bit / 8] ^= (uint8_t) (1u << bit % 8);
    }
    free(data);
}

static pi__digest two(enum pi__hash_domain domain, const char *a, const char *b)
{
    pi__hasher h;
    pi__hash_begin(&h, domain);
    pi__hash_field(&h, a, strlen(a));
    if (b) pi__hash_field(&h, b, strlen(b));
    return pi__hash_end(&h);
}

/* The digest depends on field boundaries, the number of fields, and the kind of hash. */
static void fields_are_apart(void **state)
{
    (void) state;
    const pi__digest d[] = {
        two(PI__HASH_SALT, "ab", "c"), two(PI__HASH_SALT, "a", "bc"), two(PI__HASH_SALT, "abc", ""), two(PI__HASH_SALT, "", "abc"),
        two(PI__HASH_SALT, "abc", NULL), two(PI__HASH_GRAMMAR, "ab", "c"), two(PI__HASH_SALT, "", ""), two(PI__HASH_SALT, "", NULL),
    };
    for (size_t i = 0; i < sizeof d / sizeof *d; i++) {
        assert_false(pi__digest_none(&d[i]));
        for (size_t k = 0; k < i; k++) assert_false(pi__digest_equal(&d[i], &d[k]));
    }
    const pi__digest parent = two(PI__HASH_SALT, "x", NULL), one = pi__hash_chain(PI__HASH_BLOCK, &parent, "ab", 2);
    const pi__digest first = pi__hash_chain(PI__HASH_BLOCK, &parent, "a", 1), cut = pi__hash_chain(PI__HASH_BLOCK, &first, "b", 1);
    const pi__digest sparse = pi__hash_chain(PI__HASH_SPARSE_BLOCK, &parent, "ab", 2);
    assert_false(pi__digest_equal(&one, &cut) || pi__digest_equal(&one, &sparse));
}

static void names_are_exact(void **state)
{
    (void) state;
    char hex[PI__DIGEST_HEX];
    pi__digest d = sha256("abc", 3);
    pi__digest_hex(&d, hex);
    for (size_t i = 0; i < 64; i++) {
        char bad[PI__DIGEST_HEX];
        memcpy(bad, hex, sizeof bad);
        for (const char *c = "gA/:` "; *c; c++) {
            bad[i] = *c;
            assert_false(pi__digest_parse(bad, &d));
        }
        bad[i] = 0;
        assert_false(pi__digest_parse(bad, &d));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors), cmocka_unit_test(every_length), cmocka_unit_test(implementations_agree), cmocka_unit_test(macs),
        cmocka_unit_test(bulk_macs),
        cmocka_unit_test(fields_are_apart), cmocka_unit_test(names_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
