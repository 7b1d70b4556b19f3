/* The GGUF reader: every metadata type through writer and reader, conversions, versions, alignments, and each error
 * with its text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gguf_seed.h"

static char dir[200], path[256];

static pi__gguf *open_ok(const char *p, int mode)
{
    pi_error err = {0};
    pi__gguf *g = NULL;
    int rc = pi__gguf_open(&g, p, mode, &err);
    if (rc != PI_OK) print_error("%s\n", err.msg);
    assert_int_equal(rc, PI_OK);
    return g;
}

static void assert_text(const char *text, const char *part)
{
    if (strstr(text, part)) return;
    fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* The reader refuses the image with this code and a text that contains each part (separated by '|'). */
static void refused(const void *p, size_t n, int code, const char *parts)
{
    pi_error err = {0};
    pi__gguf *g = (pi__gguf *) 1;
    uint8_t *exact = malloc(n ? n : 1); /* exact size, so that ASan detects reads past the end */
    memcpy(exact, p, n);
    int rc = pi__gguf_open_memory(&g, exact, n, &err);
    assert_int_equal(rc, code);
    assert_int_equal(err.code, code);
    assert_null(g);
    char copy[200];
    snprintf(copy, sizeof copy, "%s", parts);
    for (char *save, *s = strtok_r(copy, "|", &save); s; s = strtok_r(NULL, "|", &save)) assert_text(err.msg, s);
    assert_int_equal(pi__gguf_open_memory(&g, exact, n, NULL), code);
    free(exact);
}

static pi__gguf *accepted(const void *p, size_t n)
{
    pi_error err = {0};
    pi__gguf *g = NULL;
    if (pi__gguf_open_memory(&g, p, n, &err) != PI_OK) fail_msg("refused: %s", err.msg);
    return g;
}

/* ----------------------------------------------------------------------------------------------------- round trips */

static void check_seed_metadata(const pi__gguf *g)
{
    assert_int_equal(pi__gguf_n_kv(g), 19 + (pi__gguf_alignment(g) != 32));
    uint32_t u;
    float f;
    bool b;
    pi__str s;
    assert_int_equal(pi__gguf_get_str(g, "general.architecture", &s, NULL), PI_OK);
    assert_int_equal(s.n, 6);
    assert_memory_equal(s.p, "gemma3", 6);
    assert_int_equal(pi__gguf_get_u32(g, "gemma3.block_count", &u, 9, NULL), PI_OK);
    assert_int_equal(u, 2);
    assert_int_equal(pi__gguf_get_f32(g, "gemma3.rope.freq_base", &f, 9, NULL), PI_OK);
    assert_true(f == 1e6f);
    assert_int_equal(pi__gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &b, false, NULL), PI_OK);
    assert_true(b);
    assert_int_equal(pi__gguf_elem_u64(pi__gguf_find(g, "x.u8"), 0), 200);
    assert_int_equal(pi__gguf_elem_i64(pi__gguf_find(g, "x.i8"), 0), -100);
    assert_int_equal(pi__gguf_elem_u64(pi__gguf_find(g, "x.u16"), 0), 60000);
    assert_int_equal(pi__gguf_elem_i64(pi__gguf_find(g, "x.i16"), 0), -30000);
    assert_int_equal(pi__gguf_elem_i64(pi__gguf_find(g, "x.i32"), 0), -2000000000);
    assert_true(pi__gguf_elem_u64(pi__gguf_find(g, "x.u64"), 0) == UINT64_MAX);
    assert_true(pi__gguf_elem_i64(pi__gguf_find(g, "x.i64"), 0) == INT64_MIN);
    assert_true(pi__gguf_elem_f64(pi__gguf_find(g, "x.f64"), 0) == 0.1);
    const pi__gguf_kv *tokens = pi__gguf_find(g, "tokenizer.ggml.tokens");
    assert_int_equal(tokens->type, PI__GGUF_ARR);
    assert_int_equal(tokens->arr_type, PI__GGUF_STR);
    assert_int_equal(tokens->n, 12);
    assert_int_equal(pi__gguf_elem_str(tokens, 8).n, 0);
    assert_memory_equal(pi__gguf_elem_str(tokens, 9).p, "\xff\x00\x01", 3);
    assert_true(pi__gguf_elem_f64(pi__gguf_find(g, "tokenizer.ggml.scores"), 7) == -3.5);
    assert_int_equal(pi__gguf_elem_i64(pi__gguf_find(g, "tokenizer.ggml.token_type"), 11), 4);
    assert_int_equal(pi__gguf_find(g, "x.empty")->n, 0);
    assert_null(pi__gguf_find(g, "x.absent"));
    assert_null(pi__gguf_find(g, ""));
}

static void check_seed_tensors(const pi__gguf *g)
{
    assert_int_equal(pi__gguf_n_tensors(g), SEED_TENSORS);
    for (size_t i = 0; i < SEED_TENSORS; i++) {
        const pi__tensor *t = pi__gguf_find_tensor(g, seed_tensors[i].name);
        assert_ptr_equal(t, pi__gguf_tensor_at(g, i));
        assert_string_equal(t->cname, seed_tensors[i].name);
        assert_int_equal(t->type, seed_tensors[i].type);
        assert_int_equal(t->n_dims, seed_tensors[i].n_dims);
        assert_memory_equal(t->ne, seed_tensors[i].ne, sizeof t->ne);
        assert_int_equal(t->offset % pi__gguf_alignment(g), 0);
        assert_int_equal(t->size, seed_size(&seed_tensors[i]));
        const uint8_t *p = pi__gguf_tensor_data(g, t);
        for (uint64_t k = 0; p && k < t->size; k++) assert_int_equal(p[k], seed_byte(i, k));
        for (uint64_t k = 0; k < t->size; k++) {
            uint8_t one;
            assert_int_equal(pi__gguf_read(g, t, k, &one, 1, NULL), PI_OK);
            assert_int_equal(one, seed_byte(i, k));
        }
        pi__gguf_drop(g, t, 0, t->size);
        if (p) assert_int_equal(p[0], seed_byte(i, 0));
    }
}

static void test_round_trip(void **state)
{
    (void) state;
    static const uint32_t alignments[] = {0, 8, 16, 32, 64, 4096, 65536};
    for (size_t a = 0; a < sizeof alignments / sizeof *alignments; a++) {
        for (int mode = PI__LOAD_MMAP; mode <= PI__LOAD_DIO; mode++) {
            assert_int_equal(seed_write(path, alignments[a], true, NULL), PI_OK);
            pi__gguf *g = open_ok(path, mode);
            assert_int_equal(pi__gguf_version(g), 3);
            assert_int_equal(pi__gguf_n_files(g), 1);
            assert_int_equal(pi__gguf_alignment(g), alignments[a] ? alignments[a] : 32);
            check_seed_metadata(g);
            check_seed_tensors(g);
            assert_true((pi__gguf_tensor_data(g, pi__gguf_tensor_at(g, 0)) == NULL) == (mode == PI__LOAD_DIO));
            pi__gguf_close(g);
        }
    }
}

static void test_vocabulary_only(void **state)
{
    (void) state;
    assert_int_equal(seed_write(path, 0, false, NULL), PI_OK);
    for (int mode = PI__LOAD_MMAP; mode <= PI__LOAD_DIO; mode++) {
        pi__gguf *g = open_ok(path, mode);
        check_seed_metadata(g);
        assert_int_equal(pi__gguf_n_tensors(g), 0);
        assert_null(pi__gguf_find_tensor(g, "x"));
        pi__gguf_close(g);
    }
    image m;
    img_head(&m, 3, 0, 0); /* neither metadata nor tensors */
    pi__gguf *g = accepted(m.b, m.n);
    assert_int_equal(pi__gguf_n_kv(g), 0);
    assert_null(pi__gguf_find(g, "x"));
    pi__gguf_close(g);
}

static void test_version_2(void **state)
{
    (void) state;
    size_t n;
    assert_int_equal(seed_write(path, 64, true, NULL), PI_OK);
    uint8_t *p = slurp(path, &n);
    assert_non_null(p);
    p[4] = 2;
    pi__gguf *g = accepted(p, n);
    assert_int_equal(pi__gguf_version(g), 2);
    check_seed_metadata(g);
    check_seed_tensors(g);
    pi__gguf_close(g);
    free(p);
}

/* Metadata of every type, scalar and array, is preserved byte for byte by writer, reader, put_kv and reader. */
static void test_every_metadata_type(void **state)
{
    (void) state;
    static const uint8_t raw[64] = {1, 0, 1, 1, 0, 0x80, 0x3f, 7, 0xff, 0xee, 0xdd, 0xcc, 1, 2, 3, 4, 5, 6, 7, 8};
    static const pi__str strs[4] = {{"a", 1}, {"", 0}, {"bc\0d", 4}, {"\xc3\xa9", 2}};
    static const size_t size[PI__GGUF_N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    char second[300];
    snprintf(second, sizeof second, "%s.2", path);
    for (int pass = 0; pass < 2; pass++) {
        pi__gguf_writer *w;
        pi__gguf *from = pass ? open_ok(path, PI__LOAD_MMAP) : NULL;
        assert_int_equal(pi__gguf_writer_open(&w, pass ? second : path, 0, NULL), PI_OK);
        for (int type = 0; type < PI__GGUF_N_TYPES && !pass; type++) {
            char key[32];
            if (type == PI__GGUF_ARR) continue;
            snprintf(key, sizeof key, "s.%s", pi__gguf_type_name(type));
            pi__gguf_put(w, key, type, type == PI__GGUF_STR ? (const void *) &strs[2] : raw);
            key[0] = 'a';
            pi__gguf_put_arr(w, key, type, 4, type == PI__GGUF_STR ? (const void *) strs : raw);
            key[0] = 'e';
            pi__gguf_put_arr(w, key, type, 0, NULL);
        }
        for (size_t i = 0; pass && i < pi__gguf_n_kv(from); i++) pi__gguf_put_kv(w, pi__gguf_kv_at(from, i));
        assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
        assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
        pi__gguf_close(from);
    }
    pi__gguf *g = open_ok(second, PI__LOAD_MMAP);
    assert_int_equal(pi__gguf_n_kv(g), 36);
    for (int type = 0; type < PI__GGUF_N_TYPES; type++) {
        char key[32];
        if (type == PI__GGUF_ARR) continue;
        snprintf(key, sizeof key, "s.%s", pi__gguf_type_name(type));
        const pi__gguf_kv *s = pi__gguf_find(g, key);
        key[0] = 'a';
        const pi__gguf_kv *a = pi__gguf_find(g, key);
        key[0] = 'e';
        const pi__gguf_kv *e = pi__gguf_find(g, key);
        assert_non_null(s);
        assert_non_null(a);
        assert_non_null(e);
        assert_int_equal(s->type, type);
        assert_int_equal(s->arr_type, type);
        assert_int_equal(s->n, 1);
        assert_int_equal(a->type, PI__GGUF_ARR);
        assert_int_equal(a->arr_type, type);
        assert_int_equal(a->n, 4);
        assert_int_equal(e->n, 0);
        if (type == PI__GGUF_STR) {
            assert_int_equal(s->strs[0].n, 4);
            assert_memory_equal(s->strs[0].p, "bc\0d", 4);
            for (int i = 0; i < 4; i++) {
                assert_int_equal(pi__gguf_elem_str(a, (uint64_t) i).n, strs[i].n);
                assert_memory_equal(pi__gguf_elem_str(a, (uint64_t) i).p, strs[i].p, strs[i].n);
            }
        } else {
            assert_null(s->strs);
            assert_memory_equal(s->data, raw, size[type]);
            assert_memory_equal(a->data, raw, 4 * size[type]);
        }
    }
    assert_int_equal(pi__gguf_elem_u64(pi__gguf_find(g, "a.u16"), 2), 0x8000);
    assert_int_equal(pi__gguf_elem_u64(pi__gguf_find(g, "a.bool"), 1), 0);
    assert_int_equal(pi__gguf_elem_u64(pi__gguf_find(g, "a.bool"), 2), 1);
    assert_string_equal(pi__gguf_type_name(-1), "?");
    assert_string_equal(pi__gguf_type_name(PI__GGUF_N_TYPES), "?");
    pi__gguf_close(g);
    unlink(second);
}

/* One tensor of every format. */
static void test_every_tensor_type(void **state)
{
    (void) state;
    pi__gguf_writer *w;
    size_t n = 0;
    assert_int_equal(pi__gguf_writer_open(&w, path, 0, NULL), PI_OK);
    for (int32_t type = 0; type < PI__N_TYPES; type++) {
        if (!pi__type_info_of(type)) continue;
        pi__gguf_put_tensor(w, pi__type_info_of(type)->name, type, 2, (int64_t[]) {512, 3});
        n++;
    }
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
    for (int32_t type = 0; type < PI__N_TYPES; type++) {
        if (!pi__type_info_of(type)) continue;
        assert_int_equal(seed_data(w, (size_t) type, 3 * pi__row_size(pi__type_info_of(type), 512), NULL), PI_OK);
    }
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
    assert_true(n > 30);
    pi__gguf *g = open_ok(path, PI__LOAD_MMAP);
    assert_int_equal(pi__gguf_n_tensors(g), n);
    for (int32_t type = 0; type < PI__N_TYPES; type++) {
        if (!pi__type_info_of(type)) continue;
        const pi__tensor *t = pi__gguf_find_tensor(g, pi__type_info_of(type)->name);
        assert_non_null(t);
        assert_int_equal(t->type, type);
        const uint8_t *p = pi__gguf_tensor_data(g, t);
        for (uint64_t k = 0; k < t->size; k++) assert_int_equal(p[k], seed_byte((size_t) type, k));
    }
    pi__gguf_close(g);
}

/* Tensors in another order than their data, and one without dimensions. */
static void test_unordered(void **state)
{
    (void) state;
    static const uint64_t ne[4] = {8, 1, 1, 1};
    image m;
    img_head(&m, 3, 4, 0);
    img_tensor(&m, "c", PI__F32, 1, ne, 96);
    img_tensor(&m, "a", PI__F32, 1, ne, 0);
    img_tensor(&m, "d", PI__F32, 0, ne, 128);
    img_tensor(&m, "b", PI__F32, 4, ne, 32);
    img_pad(&m, 32);
    for (uint8_t i = 0; i < 132; i++) img_bytes(&m, &i, 1);
    pi__gguf *g = accepted(m.b, m.n);
    assert_int_equal(*(const uint8_t *) pi__gguf_tensor_data(g, pi__gguf_find_tensor(g, "c")), 96);
    assert_int_equal(*(const uint8_t *) pi__gguf_tensor_data(g, pi__gguf_find_tensor(g, "b")), 32);
    const pi__tensor *d = pi__gguf_find_tensor(g, "d");
    assert_int_equal(d->n_dims, 1);
    assert_int_equal(d->ne[0], 1);
    assert_int_equal(d->size, 4);
    pi__gguf_close(g);
}

/* ----------------------------------------------------------------------------------------------------- conversions */

static void unfit(const pi__gguf *g, const char *key, int kind, const char *part)
{
    pi_error err = {0};
    uint32_t u;
    float f;
    bool b;
    pi__str s;
    int rc = kind == 'u' ? pi__gguf_get_u32(g, key, &u, 0, &err) : kind == 'f' ? pi__gguf_get_f32(g, key, &f, 0, &err)
           : kind == 'b' ? pi__gguf_get_bool(g, key, &b, false, &err) : pi__gguf_get_str(g, key, &s, &err);
    assert_int_equal(rc, PI_EFORMAT);
    assert_text(err.msg, key);
    assert_text(err.msg, part);
    assert_text(err.msg, "at offset");
}

static void test_conversions(void **state)
{
    (void) state;
    pi__gguf_writer *w;
    assert_int_equal(pi__gguf_writer_open(&w, path, 0, NULL), PI_OK);
    seed_metadata(w);
    pi__gguf_put(w, "y.big", PI__GGUF_U64, &(uint64_t) {1ull << 32});
    pi__gguf_put(w, "y.max", PI__GGUF_I64, &(int64_t) {UINT32_MAX});
    pi__gguf_put(w, "y.one", PI__GGUF_I8, &(int8_t) {1});
    pi__gguf_put(w, "y.huge", PI__GGUF_F64, &(double) {1e300});
    pi__gguf_put(w, "y.inf", PI__GGUF_F64, &(double) {INFINITY});
    pi__gguf_put(w, "y.nan", PI__GGUF_F32, &(float) {NAN});
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
    pi__gguf *g = open_ok(path, PI__LOAD_MMAP);
    uint32_t u;
    float f;
    bool b;
    pi__str s = {"x", 1};
    assert_int_equal(pi__gguf_get_u32(g, "absent", &u, 77, NULL), PI_OK);
    assert_int_equal(u, 77);
    assert_int_equal(pi__gguf_get_f32(g, "absent", &f, 0.5f, NULL), PI_OK);
    assert_true(f == 0.5f);
    assert_int_equal(pi__gguf_get_bool(g, "absent", &b, true, NULL), PI_OK);
    assert_true(b);
    assert_int_equal(pi__gguf_get_str(g, "absent", &s, NULL), PI_OK);
    assert_null(s.p);
    assert_int_equal(pi__gguf_get_u32(g, "x.u8", &u, 0, NULL), PI_OK);
    assert_int_equal(u, 200);
    assert_int_equal(pi__gguf_get_u32(g, "y.max", &u, 0, NULL), PI_OK);
    assert_true(u == UINT32_MAX);
    assert_int_equal(pi__gguf_get_u32(g, "tokenizer.ggml.add_bos_token", &u, 0, NULL), PI_OK);
    assert_int_equal(u, 1);
    assert_int_equal(pi__gguf_get_bool(g, "y.one", &b, false, NULL), PI_OK);
    assert_true(b);
    assert_int_equal(pi__gguf_get_f32(g, "x.i16", &f, 0, NULL), PI_OK);
    assert_true(f == -30000.0f);
    assert_int_equal(pi__gguf_get_f32(g, "x.f64", &f, 0, NULL), PI_OK);
    assert_true(f == 0.1f);
    assert_int_equal(pi__gguf_get_f32(g, "y.inf", &f, 0, NULL), PI_OK);
    assert_true(isinf(f));

    unfit(g, "y.big", 'u', "u64 4294967296, expected an integer 0..4294967295");
    unfit(g, "x.i8", 'u', "i8 -100");
    unfit(g, "gemma3.rope.freq_base", 'u', "f32 1e+06");
    unfit(g, "general.name", 'u', "a string");
    unfit(g, "tokenizer.ggml.scores", 'u', "an array of f32");
    unfit(g, "y.huge", 'f', "f64 1e+300, expected a number in the range of f32");
    unfit(g, "general.name", 'f', "a string");
    unfit(g, "tokenizer.ggml.add_bos_token", 'f', "bool 1");
    unfit(g, "tokenizer.ggml.tokens", 'f', "an array of str");
    unfit(g, "x.u8", 'b', "u8 200, expected a bool");
    unfit(g, "x.i8", 'b', "i8 -100");
    unfit(g, "general.name", 'b', "a string");
    unfit(g, "x.u8", 's', "u8 200, expected a string");
    unfit(g, "tokenizer.ggml.tokens", 's', "an array of str");

    /* Elements: conversions that C leaves undefined saturate. */
    assert_true(pi__gguf_elem_u64(pi__gguf_find(g, "y.huge"), 0) == UINT64_MAX);
    assert_true(pi__gguf_elem_i64(pi__gguf_find(g, "y.huge"), 0) == INT64_MAX);
    assert_int_equal(pi__gguf_elem_u64(pi__gguf_find(g, "y.nan"), 0), 0);
    assert_int_equal(pi__gguf_elem_i64(pi__gguf_find(g, "y.nan"), 0), 0);
    assert_int_equal(pi__gguf_elem_u64(pi__gguf_find(g, "tokenizer.ggml.scores"), 7), 0);
    assert_int_equal(pi__gguf_elem_i64(pi__gguf_find(g, "tokenizer.ggml.scores"), 7), -3);
    assert_true(pi__gguf_elem_f64(pi__gguf_find(g, "x.u64"), 0) == 0x1p64);
    assert_null(pi__gguf_elem_str(pi__gguf_find(g, "x.u8"), 0).p);
    pi__gguf_close(g);
}

static void test_read_bounds(void **state)
{
    (void) state;
    assert_int_equal(seed_write(path, 0, true, NULL), PI_OK);
    for (int mode = PI__LOAD_MMAP; mode <= PI__LOAD_DIO; mode++) {
        pi__gguf *g = open_ok(path, mode);
        const pi__tensor *t = pi__gguf_tensor_at(g, 1);
        uint8_t buf[32];
        pi_error err = {0};
        assert_int_equal(pi__gguf_read(g, t, 0, buf, 20, &err), PI_OK);
        assert_int_equal(pi__gguf_read(g, t, 20, buf, 0, &err), PI_OK);
        assert_int_equal(pi__gguf_read(g, t, 0, buf, 21, &err), PI_EINVAL);
        assert_text(err.msg, "data of tensor 'output_norm.weight'");
        assert_int_equal(pi__gguf_read(g, t, 21, buf, 0, &err), PI_EINVAL);
        assert_int_equal(pi__gguf_read(g, t, UINT64_MAX, buf, 2, &err), PI_EINVAL);
        assert_int_equal(pi__gguf_read(g, t, 2, buf, SIZE_MAX, &err), PI_EINVAL);
        pi__gguf_close(g);
    }
}

/* -------------------------------------------------------------------------------------------------------- refusals */

static void test_refused_header(void **state)
{
    (void) state;
    image m;
    refused("", 0, PI_EFORMAT, "(memory): the file is empty");
    refused("GG", 2, PI_EFORMAT, "header at offset 0|needs 24 bytes, but the file ends after 2|fetch it again");
    refused("ggjt\1\0\0\0", 8, PI_EFORMAT, "magic at offset 0|\"ggjt\"|not a GGUF");
    refused("\x7f" "ELF", 4, PI_EFORMAT, "magic at offset 0: found \"\\x7fELF\"");
    refused("FUGG", 4, PI_EUNSUPPORTED, "magic at offset 0|big-endian|gguf_convert_endian");
    img_head(&m, 0x03000000, 0, 0);
    refused(m.b, m.n, PI_EUNSUPPORTED, "version at offset 4|big-endian|version 3");
    img_head(&m, 1, 0, 0);
    refused(m.b, m.n, PI_EUNSUPPORTED, "version at offset 4|version 1|convert the model again");
    img_head(&m, 0, 0, 0);
    refused(m.b, m.n, PI_EUNSUPPORTED, "version at offset 4|version 0");
    img_head(&m, 4, 0, 0);
    refused(m.b, m.n, PI_EUNSUPPORTED, "version at offset 4|version 4|newer libpagedinfer");
    img_head(&m, 3, 0, 1);
    refused(m.b, m.n, PI_EFORMAT, "n_kv at offset 16: 1 entries do not fit into the 0 bytes");
    img_head(&m, 3, 0, UINT64_MAX);
    refused(m.b, m.n, PI_EFORMAT, "n_kv at offset 16: 18446744073709551615 entries");
    img_head(&m, 3, 1, 0);
    refused(m.b, m.n, PI_EFORMAT, "n_tensors at offset 8: 1 tensors do not fit into the 0 bytes");
    img_head(&m, 3, 1ull << 63, 0);
    refused(m.b, m.n, PI_EFORMAT, "n_tensors at offset 8: 9223372036854775808 tensors");
    img_head(&m, 3, 1, 1);
    img_kv_u32(&m, "abcdefghijklmnopqrstuvwxyz", 1);
    refused(m.b, m.n, PI_EFORMAT, "n_tensors at offset 8: 1 tensors do not fit into the 0 bytes after the metadata");
}

static void test_refused_metadata(void **state)
{
    (void) state;
    static const uint8_t zeros[70000];
    image m;
    img_head(&m, 3, 0, 1);
    img_u64(&m, 0);
    img_bytes(&m, zeros, 20);
    refused(m.b, m.n, PI_EFORMAT, "metadata key at offset 24: the key is empty");
    img_head(&m, 3, 0, 1);
    img_u64(&m, UINT64_MAX);
    img_bytes(&m, zeros, 20);
    refused(m.b, m.n, PI_EFORMAT, "metadata key at offset 24: a length of 18446744073709551615 bytes|after 20");
    img_head(&m, 3, 0, 1);
    img_str(&m, "a\x1b[31m");
    img_u32(&m, 13);
    img_bytes(&m, zeros, 8);
    refused(m.b, m.n, PI_EFORMAT, "type of 'a\\x1b[31m' at offset 38: 13 is not a GGUF value type");
    img_head(&m, 3, 0, 1);
    img_str(&m, "key");
    img_u32(&m, PI__GGUF_ARR);
    img_u32(&m, 99);
    img_u64(&m, 0);
    refused(m.b, m.n, PI_EFORMAT, "element type of 'key' at offset 39: 99 is not a GGUF value type");
    img_head(&m, 3, 0, 1);
    img_str(&m, "key");
    img_u32(&m, PI__GGUF_ARR);
    img_u32(&m, PI__GGUF_ARR);
    img_u64(&m, 0);
    refused(m.b, m.n, PI_EUNSUPPORTED, "element type of 'key' at offset 39: an array of arrays");
    img_head(&m, 3, 0, 1);
    img_str(&m, "keykeykey");
    img_u32(&m, PI__GGUF_ARR);
    img_bytes(&m, zeros, 2);
    refused(m.b, m.n, PI_EFORMAT, "element type of 'keykeykey' at offset 45: needs 4 bytes, but the file ends after 2");
    img_head(&m, 3, 0, 1);
    img_str(&m, "key");
    img_u32(&m, PI__GGUF_ARR);
    img_u32(&m, PI__GGUF_U8);
    img_bytes(&m, zeros, 7);
    refused(m.b, m.n, PI_EFORMAT, "element count of 'key' at offset 43: needs 8 bytes, but the file ends after 7");
    img_head(&m, 3, 0, 1);
    img_str(&m, "key");
    img_u32(&m, PI__GGUF_ARR);
    img_u32(&m, PI__GGUF_F64);
    img_u64(&m, 0x2000000000000001); /* times 8 it overflows to 8 */
    img_u64(&m, 0);
    refused(m.b, m.n, PI_EFORMAT, "value of 'key' at offset 51: 2305843009213693953 values of type f64|after 8 bytes");
    img_head(&m, 3, 0, 1);
    img_str(&m, "key");
    img_u32(&m, PI__GGUF_ARR);
    img_u32(&m, PI__GGUF_STR);
    img_u64(&m, 3);
    img_str(&m, "0123456789012345");
    img_u64(&m, 5);
    refused(m.b, m.n, PI_EFORMAT, "value of 'key'[1] at offset 75: a length of 5 bytes, but the file ends after 0");
    img_head(&m, 3, 0, 1);
    img_str(&m, "key");
    img_u32(&m, PI__GGUF_STR);
    img_u64(&m, 1);
    refused(m.b, m.n, PI_EFORMAT, "value of 'key' at offset 39: a length of 1 bytes");
    img_head(&m, 3, 0, 2);
    img_kv_u32(&m, "twin", 1);
    img_kv_u32(&m, "twin", 2);
    refused(m.b, m.n, PI_EFORMAT, "metadata key 'twin' at offset 44: the key occurs twice");

    uint8_t *big = calloc(1, 24 + 8 + sizeof zeros); /* a key of 64 KiB plus one byte */
    img_head(&m, 3, 0, 1);
    img_u64(&m, 65537);
    memcpy(big, m.b, m.n);
    refused(big, 24 + 8 + sizeof zeros, PI_EFORMAT, "key at offset 24: a length of 65537 bytes, at most 65536");
    free(big);
}

static void test_refused_alignment(void **state)
{
    (void) state;
    static const uint32_t bad[] = {0, 1, 4, 7, 24, 0xffffffff};
    image m;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[40];
        snprintf(text, sizeof text, "alignment is %u,", bad[i]);
        img_head(&m, 3, 0, 1);
        img_kv_u32(&m, "general.alignment", bad[i]);
        refused(m.b, m.n, PI_EFORMAT, "value of 'general.alignment' at offset 53: |power of two, at least 8");
        refused(m.b, m.n, PI_EFORMAT, text);
    }
    img_head(&m, 3, 0, 1);
    img_str(&m, "general.alignment");
    img_u32(&m, PI__GGUF_F32);
    img_u32(&m, 64);
    refused(m.b, m.n, PI_EFORMAT, "'general.alignment' at offset 53|expected an integer");
    img_head(&m, 3, 1, 1); /* so large that the data would start far past the end */
    img_kv_u32(&m, "general.alignment", 0x80000000);
    img_tensor(&m, "t", PI__I8, 1, (uint64_t[]) {1}, 0);
    img_pad(&m, 4096);
    refused(m.b, m.n, PI_EFORMAT, "data of tensor 't'|reach beyond the file's 4096 bytes");
    img_head(&m, 3, 0, 1); /* any integer type is accepted */
    img_str(&m, "general.alignment");
    img_u32(&m, PI__GGUF_I16);
    img_bytes(&m, "\x40\x00", 2);
    pi__gguf *g = accepted(m.b, m.n);
    assert_int_equal(pi__gguf_alignment(g), 64);
    pi__gguf_close(g);
}

/* The reader refuses a file with this tensor and 64 bytes of data. */
static void refused_tensor(const char *name, int32_t type, uint32_t n_dims, const uint64_t *ne, uint64_t offset,
                           int code, const char *parts)
{
    image m;
    img_head(&m, 3, 1, 0);
    img_tensor(&m, name, type, n_dims, ne, offset);
    img_pad(&m, 32);
    img_bytes(&m, (uint8_t[64]) {0}, 64);
    refused(m.b, m.n, code, parts);
}

static void test_refused_tensors(void **state)
{
    (void) state;
#define NE(...) (uint64_t[8]) {__VA_ARGS__}
    refused_tensor("", PI__F32, 1, NE(1), 0, PI_EFORMAT, "tensor name at offset 24: the name is empty");
    refused_tensor("t", PI__F32, 5, NE(1, 1, 1, 1, 1), 0, PI_EFORMAT, "tensor 't' at offset 33: 5 dimensions");
    refused_tensor("t", PI__F32, 2, NE(4, 0), 0, PI_EFORMAT, "dimensions of tensor 't'[1] at offset 45: 0 elements");
    refused_tensor("t", PI__F32, 1, NE(1ull << 63), 0, PI_EFORMAT, "'t'[0] at offset 37: 9223372036854775808");
    refused_tensor("t", PI__I8, 3, NE(1ull << 31, 1ull << 31, 2), 0, PI_EFORMAT, "tensor 't'[2]|exceed the size limit");
    refused_tensor("t", PI__I8, 4, NE(1ull << 32, 1ull << 31, 2, 4), 0, PI_EFORMAT, "'t'[1]|exceed the size limit");
    refused_tensor("t", PI__F64, 1, NE(1ull << 62), 0, PI_EFORMAT, "of tensor 't'|type F64 exceed the size limit");
    refused_tensor("t", 43, 1, NE(1), 0, PI_EUNSUPPORTED, "tensor 't' at offset 45: type 43 is unknown|newer");
    refused_tensor("t", -1, 1, NE(1), 0, PI_EUNSUPPORTED, "type 4294967295 is unknown");
    refused_tensor("t", 31, 1, NE(32), 0, PI_EUNSUPPORTED, "type 31 (Q4_0_4_4) was removed|quantize the model again");
    refused_tensor("t", 4, 1, NE(32), 0, PI_EUNSUPPORTED, "type 4 (Q4_2) was removed");
    refused_tensor("t", PI__Q4_K, 2, NE(128, 2), 0, PI_EFORMAT, "tensor 't'|rows of 128 |Q4_K, which has");
    refused_tensor("t", PI__F32, 1, NE(4), 4, PI_EFORMAT, "data of tensor 't' at offset 64: begins at 4, not a");
    refused_tensor("t", PI__F32, 1, NE(17), 0, PI_EFORMAT, "data of tensor 't' at offset 64: 68 bytes reach beyond");
    refused_tensor("t", PI__F32, 1, NE(9), 32, PI_EFORMAT, "data of tensor 't' at offset 96: 36 bytes reach beyond");
    refused_tensor("t", PI__F32, 1, NE(1), 64, PI_EFORMAT, "data of tensor 't' at offset 128: 4 bytes reach beyond");
    refused_tensor("t", PI__F32, 1, NE(1), UINT64_MAX - 31, PI_EFORMAT, "data of tensor 't'|4 bytes reach beyond");
    refused_tensor("t", PI__F32, 1, NE(1), UINT64_MAX - 63, PI_EFORMAT, "data of tensor 't'|4 bytes reach beyond");

    image m;
    img_head(&m, 3, 3, 0);
    img_tensor(&m, "one", PI__F32, 1, NE(8), 64);
    img_tensor(&m, "two", PI__F32, 1, NE(9), 0);
    img_tensor(&m, "three", PI__F32, 1, NE(8), 32);
    img_pad(&m, 32);
    size_t data = m.n;
    img_bytes(&m, (uint8_t[96]) {0}, 96);
    char parts[100];
    snprintf(parts, sizeof parts, "data of tensor 'three' at offset %zu: overlaps tensor 'two'", data + 32);
    refused(m.b, m.n, PI_EFORMAT, parts);
    img_head(&m, 3, 2, 0);
    img_tensor(&m, "twin", PI__F32, 1, NE(8), 0);
    img_tensor(&m, "twin", PI__F32, 1, NE(8), 32);
    img_pad(&m, 32);
    img_bytes(&m, (uint8_t[96]) {0}, 96);
    refused(m.b, m.n, PI_EFORMAT, "tensor name 'twin' at offset 60: the name occurs twice");
    img_head(&m, 3, 1, 1); /* the file can end within every field of a tensor header */
    img_kv_u32(&m, "aaaaaaaaaaaaaaaa", 0);
    size_t at = m.n;
    img_tensor(&m, "t", PI__F32, 1, NE(1), 0);
    refused(m.b, at + 28, PI_EFORMAT, "offset of tensor 't'|needs 8 bytes, but the file ends after 3");
#undef NE
}

/* If a long name is truncated in the error text, the reason is still readable. */
static void test_long_names(void **state)
{
    (void) state;
    char name[3001];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    refused_tensor(name, 43, 1, (uint64_t[]) {1}, 0, PI_EUNSUPPORTED, "nnnnn...' at offset|type 43 is unknown");
    image m;
    img_head(&m, 3, 1, 1);
    img_kv_u32(&m, name, 5);
    img_tensor(&m, name, PI__F32, 1, (uint64_t[]) {1}, 0);
    img_pad(&m, 32);
    img_bytes(&m, "\1\2\3\4", 4);
    pi__gguf *g = accepted(m.b, m.n);
    assert_ptr_equal(pi__gguf_find_tensor(g, name), pi__gguf_tensor_at(g, 0));
    assert_int_equal(strlen(pi__gguf_tensor_at(g, 0)->cname), 127);
    uint32_t u;
    assert_int_equal(pi__gguf_get_u32(g, name, &u, 0, NULL), PI_OK);
    assert_int_equal(u, 5);
    pi__gguf_close(g);
}

/* All of many keys and tensors are found, without quadratic time. */
static void test_many(void **state)
{
    (void) state;
    enum { N = 50000 };
    pi__gguf_writer *w;
    char name[32];
    assert_int_equal(pi__gguf_writer_open(&w, path, 8, NULL), PI_OK);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "n%u", i);
        pi__gguf_put(w, name, PI__GGUF_U32, &i);
        pi__gguf_put_tensor(w, name, PI__I8, 1, (int64_t[]) {1});
    }
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(pi__gguf_writer_data(w, &i, 1, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
    pi__gguf *g = open_ok(path, PI__LOAD_MMAP);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t u;
        snprintf(name, sizeof name, "n%u", i);
        assert_int_equal(pi__gguf_get_u32(g, name, &u, 0, NULL), PI_OK);
        assert_int_equal(u, i);
        const pi__tensor *t = pi__gguf_find_tensor(g, name);
        assert_non_null(t);
        assert_int_equal(*(const uint8_t *) pi__gguf_tensor_data(g, t), (uint8_t) i);
    }
    pi__gguf_close(g);
}

static void escaped(const char *s, size_t n, size_t cap, const char *want)
{
    char buf[64];
    memset(buf, 'X', sizeof buf);
    assert_int_equal(pi__str_escape(buf, cap, (pi__str) {s, n}), strlen(want));
    assert_string_equal(buf, want);
    assert_int_equal(buf[cap], 'X');
}

static void test_escape(void **state)
{
    (void) state;
    escaped("abc", 3, 4, "abc");
    escaped("abcd", 4, 4, "...");
    escaped("abcdef", 6, 6, "ab...");
    escaped("abcdef", 6, 3, "..");
    escaped("abcdef", 6, 1, "");
    escaped("", 0, 1, "");
    escaped("a\n\t\r\"\\\0\x1b", 8, 63, "a\\n\\t\\r\\\"\\\\\\x00\\x1b");
    escaped("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, 63, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    escaped("\xc3", 1, 63, "\\xc3");
    escaped("\xc0\x80", 2, 63, "\\xc0\\x80");             /* overlong */
    escaped("\xc2\x9b", 2, 63, "\\xc2\\x9b");             /* a C1 control character */
    escaped("\xed\xa0\x80", 3, 63, "\\xed\\xa0\\x80");    /* a surrogate */
    escaped("\xf4\x90\x80\x80", 4, 63, "\\xf4\\x90\\x80\\x80");
    escaped("\xe2\x82", 2, 63, "\\xe2\\x82");
    assert_int_equal(pi__str_escape(NULL, 0, (pi__str) {"a", 1}), 0);
}

int main(void)
{
    temp_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/t.gguf", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_vocabulary_only), cmocka_unit_test(test_version_2),
        cmocka_unit_test(test_every_metadata_type), cmocka_unit_test(test_every_tensor_type),
        cmocka_unit_test(test_unordered),
        cmocka_unit_test(test_conversions), cmocka_unit_test(test_read_bounds), cmocka_unit_test(test_refused_header),
        cmocka_unit_test(test_refused_metadata), cmocka_unit_test(test_refused_alignment),
        cmocka_unit_test(test_refused_tensors), cmocka_unit_test(test_long_names), cmocka_unit_test(test_many),
        cmocka_unit_test(test_escape),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(dir);
    return rc;
}
