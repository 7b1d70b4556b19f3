/* Small GGUF files for tests: a byte image built by hand, which can be corrupted in any way, and a realistic file from
 * the writer. */
#ifndef GGUF_SEED_H
#define GGUF_SEED_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/formats.h"
#include "gguf/gguf.h"

typedef struct image { /* bytes of a file being built */
    uint8_t b[8192];
    size_t n;
} image;

static inline void img_bytes(image *m, const void *p, size_t n)
{
    if (n > sizeof m->b - m->n) abort(); /* the image is too small: a bug in the test */
    if (n > 0) memcpy(m->b + m->n, p, n);
    m->n += n;
}

static inline void img_u32(image *m, uint32_t v) { img_bytes(m, &v, sizeof v); }
static inline void img_u64(image *m, uint64_t v) { img_bytes(m, &v, sizeof v); }

static inline void img_str(image *m, const char *s)
{
    img_u64(m, strlen(s));
    img_bytes(m, s, strlen(s));
}

static inline void img_head(image *m, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    m->n = 0;
    img_bytes(m, "GGUF", 4);
    img_u32(m, version);
    img_u64(m, n_tensors);
    img_u64(m, n_kv);
}

static inline void img_kv_u32(image *m, const char *key, uint32_t v)
{
    img_str(m, key);
    img_u32(m, PI__GGUF_U32);
    img_u32(m, v);
}

static inline void img_tensor(image *m, const char *name, int32_t type, uint32_t n_dims, const uint64_t *ne,
                              uint64_t offset)
{
    img_str(m, name);
    img_u32(m, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) img_u64(m, ne[d]);
    img_u32(m, (uint32_t) type);
    img_u64(m, offset);
}

static inline void img_pad(image *m, size_t alignment)
{
    while (m->n % alignment != 0) img_bytes(m, "", 1);
}

#define SEED_STR(s) (&(pi__str) {s, sizeof(s) - 1})

/* Writes the metadata of a model with a small vocabulary, and one entry of every scalar type. */
static inline void seed_metadata(pi__gguf_writer *w)
{
    static const pi__str tokens[] = {
        {"<pad>", 5}, {"<eos>", 5}, {"<bos>", 5}, {"<unk>", 5},        {"<0x0A>", 6},       {"\xe2\x96\x81the", 6},
        {"ing", 3},   {"e", 1},     {"", 0},      {"\xff\x00\x01", 3}, {"\xe2\x96\x81", 3}, {"\xf0\x9f\x98\x80", 4},
    };
    static const pi__str merges[] = {{"i n", 3}, {"in g", 4}, {"t h", 3}, {"th e", 4}};
    static const float scores[12] = {-1000, -1000, -1000, 0, 0, -1, -2, -3.5f, -4, -5, -6, -7};
    static const int32_t types[12] = {3, 3, 3, 2, 6, 1, 1, 1, 1, 1, 1, 4};
    pi__gguf_put(w, "general.architecture", PI__GGUF_STR, SEED_STR("gemma3"));
    pi__gguf_put(w, "general.name", PI__GGUF_STR, SEED_STR("Seed"));
    pi__gguf_put(w, "gemma3.block_count", PI__GGUF_U32, &(uint32_t) {2});
    pi__gguf_put(w, "gemma3.rope.freq_base", PI__GGUF_F32, &(float) {1e6f});
    pi__gguf_put(w, "tokenizer.ggml.model", PI__GGUF_STR, SEED_STR("llama"));
    pi__gguf_put_arr(w, "tokenizer.ggml.tokens", PI__GGUF_STR, 12, tokens);
    pi__gguf_put_arr(w, "tokenizer.ggml.scores", PI__GGUF_F32, 12, scores);
    pi__gguf_put_arr(w, "tokenizer.ggml.token_type", PI__GGUF_I32, 12, types);
    pi__gguf_put_arr(w, "tokenizer.ggml.merges", PI__GGUF_STR, 4, merges);
    pi__gguf_put(w, "tokenizer.ggml.add_bos_token", PI__GGUF_BOOL, &(uint8_t) {1});
    pi__gguf_put(w, "x.u8", PI__GGUF_U8, &(uint8_t) {200});
    pi__gguf_put(w, "x.i8", PI__GGUF_I8, &(int8_t) {-100});
    pi__gguf_put(w, "x.u16", PI__GGUF_U16, &(uint16_t) {60000});
    pi__gguf_put(w, "x.i16", PI__GGUF_I16, &(int16_t) {-30000});
    pi__gguf_put(w, "x.i32", PI__GGUF_I32, &(int32_t) {-2000000000});
    pi__gguf_put(w, "x.u64", PI__GGUF_U64, &(uint64_t) {UINT64_MAX});
    pi__gguf_put(w, "x.i64", PI__GGUF_I64, &(int64_t) {INT64_MIN});
    pi__gguf_put(w, "x.f64", PI__GGUF_F64, &(double) {0.1});
    pi__gguf_put_arr(w, "x.empty", PI__GGUF_STR, 0, NULL);
}

typedef struct seed_tensor {
    const char *name;
    int32_t type;
    int32_t n_dims;
    int64_t ne[4];
} seed_tensor;

static const seed_tensor seed_tensors[] = {
    {"token_embd.weight", PI__Q8_0, 2, {32, 12, 1, 1}}, {"output_norm.weight", PI__F32, 1, {5, 1, 1, 1}},
    {"blk.0.attn_q.weight", PI__Q4_K, 2, {256, 1, 1, 1}}, {"blk.0.ffn_up_exps.weight", PI__F16, 3, {4, 3, 2, 1}},
    {"blk.1.bias", PI__BF16, 4, {2, 1, 2, 2}}, {"blk.1.ids", PI__I32, 1, {3, 1, 1, 1}},
};
enum { SEED_TENSORS = sizeof seed_tensors / sizeof seed_tensors[0] };

/* Returns byte k of tensor i. */
static inline uint8_t seed_byte(size_t i, uint64_t k) { return (uint8_t) (37 * i + 11 * k + (k >> 8) + 1); }

/* Sends n bytes of tensor i's data to the writer. */
static inline int seed_data(pi__gguf_writer *w, size_t i, uint64_t n, pi_error *err)
{
    uint8_t piece[64];
    for (uint64_t k = 0; k < n;) {
        size_t take = n - k < sizeof piece ? (size_t) (n - k) : sizeof piece;
        for (size_t j = 0; j < take; j++) piece[j] = seed_byte(i, k + j);
        int rc = pi__gguf_writer_data(w, piece, take, err);
        if (rc != PI_OK) return rc;
        k += take;
    }
    return PI_OK;
}

static inline uint64_t seed_size(const seed_tensor *t)
{
    const pi__type_info *info = pi__type_info_of(t->type);
    return pi__row_size(info, t->ne[0]) * (uint64_t) (t->ne[1] * t->ne[2] * t->ne[3]);
}

/* Writes the seed model, about 2.5 KiB, to path. */
static inline int seed_write(const char *path, uint32_t alignment, bool tensors, pi_error *err)
{
    pi__gguf_writer *w;
    int rc = pi__gguf_writer_open(&w, path, alignment, err);
    if (rc != PI_OK) return rc;
    seed_metadata(w);
    for (size_t i = 0; tensors && i < SEED_TENSORS; i++) {
        pi__gguf_put_tensor(w, seed_tensors[i].name, seed_tensors[i].type, seed_tensors[i].n_dims, seed_tensors[i].ne);
    }
    rc = pi__gguf_writer_begin(w, err);
    for (size_t i = 0; tensors && rc == PI_OK && i < SEED_TENSORS; i++)
        rc = seed_data(w, i, seed_size(&seed_tensors[i]), err);
    if (rc != PI_OK) {
        pi__gguf_writer_close(w, false, NULL);
        return rc;
    }
    return pi__gguf_writer_close(w, true, err);
}

/* Reads a file into a malloc'ed block of exactly its size; the caller frees it. NULL = read error. */
static inline uint8_t *slurp(const char *path, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *n = 0;
    if (fd < 0) return NULL;
    uint8_t *p = fstat(fd, &st) == 0 ? malloc(st.st_size > 0 ? (size_t) st.st_size : 1) : NULL;
    if (p && read(fd, p, (size_t) st.st_size) != st.st_size) {
        free(p);
        p = NULL;
    }
    if (p) *n = (size_t) st.st_size;
    close(fd);
    return p;
}

/* Creates a temporary folder for this test under TMPDIR. */
static inline void temp_dir(char *path, size_t cap)
{
    const char *base = getenv("TMPDIR");
    int n = snprintf(path, cap, "%s/pagedinfer-gguf-XXXXXX", base && *base ? base : "/tmp");
    if (n < 0 || (size_t) n >= cap || !mkdtemp(path)) abort();
}

/* Reads everything in an open GGUF: metadata of every kind, tensors, their bytes. Returns a checksum, so that the
 * compiler cannot remove a read. */
static inline uint64_t touch_all(const pi__gguf *g)
{
    uint64_t sum = pi__gguf_version(g) + pi__gguf_alignment(g) + pi__gguf_file_size(g, pi__gguf_n_files(g) - 1);
    char text[64], key[256];
    for (size_t i = 0; i < pi__gguf_n_kv(g); i++) {
        const pi__gguf_kv *kv = pi__gguf_kv_at(g, i);
        uint32_t u;
        float f;
        bool b;
        pi__str s;
        pi_error err;
        for (uint64_t k = 0; k < kv->n; k++) {
            if (kv->arr_type == PI__GGUF_STR) {
                s = pi__gguf_elem_str(kv, k);
                for (size_t c = 0; c < s.n; c++) sum += (uint8_t) s.p[c];
                sum += pi__str_escape(text, sizeof text, s);
            } else {
                sum += pi__gguf_elem_u64(kv, k) + (uint64_t) pi__gguf_elem_i64(kv, k) + (pi__gguf_elem_f64(kv, k) > 0);
            }
        }
        if (kv->key.n >= sizeof key || memchr(kv->key.p, 0, kv->key.n)) continue;
        memcpy(key, kv->key.p, kv->key.n);
        key[kv->key.n] = 0;
        if (pi__gguf_find(g, key) != kv) abort();
        if (pi__gguf_get_u32(g, key, &u, 7, &err) != PI_OK && !err.msg[0]) abort();
        if (pi__gguf_get_f32(g, key, &f, 7, &err) != PI_OK && !err.msg[0]) abort();
        if (pi__gguf_get_bool(g, key, &b, true, &err) != PI_OK && !err.msg[0]) abort();
        if (pi__gguf_get_str(g, key, &s, &err) != PI_OK && !err.msg[0]) abort();
        sum += u + (f > 0) + b;
    }
    for (size_t i = 0; i < pi__gguf_n_tensors(g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(g, i);
        const uint8_t *p = pi__gguf_tensor_data(g, t);
        uint8_t buf[64];
        for (uint64_t k = 0; p && k < t->size; k++) sum += p[k];
        size_t n = t->size < sizeof buf ? (size_t) t->size : sizeof buf;
        if (pi__gguf_read(g, t, t->size - n, buf, n, NULL) != PI_OK) abort();
        if (strlen(t->cname) == t->name.n && pi__gguf_find_tensor(g, t->cname) != t) abort();
        pi__gguf_drop(g, t, 0, t->size);
        sum += buf[n - 1];
    }
    return sum;
}

#endif
