/* Opening a GGUF: one file, or all splits of a model, and the index of all tensors.
 *
 * A split model is NAME-00001-of-00003.gguf and so on. Each split is a GGUF with some of the tensors; the first
 * one has the metadata. The caller may name any split; all must be in one directory. The keys split.no and
 * split.count must match the file names, so that splits of two models cannot be mixed.
 *
 * Memory: one pi__gguf and its lists. An open reader does not change. */
#include <stdio.h>
#include <string.h>

#include "gguf/gguf_priv.h"

/* Returns an entry for one more file, which becomes valid when n_files is incremented; NULL = out of memory. */
static pi__gguf_file *next_file(pi__gguf *g)
{
    return pi__grow(&g->file, &g->cap_files, g->n_files + 1, sizeof *g->file) ? &g->file[g->n_files] : NULL;
}

/* Options for opening files. */
typedef struct how {
    int mode;        /* enum pi__load_mode */
    pi__progress *p; /* receives bytes copied; NULL = no progress reports */
} how;

/* Opens and parses one file as the next of g. */
static int add_file(pi__gguf *g, const char *path, how h, pi__gguf_meta *m, pi_error *err)
{
    uint8_t head[PI__GGUF_HEAD];
    uint32_t version;
    pi__gguf_file *f = next_file(g);
    if (!f) return pi__fail_mem(err, "the list of files");
    int rc = pi__gguf_file_open(f, path, err);
    if (rc != PI_OK) return rc;
    g->n_files++;
    size_t n = f->size < sizeof head ? (size_t) f->size : sizeof head;
    if ((rc = pi__gguf_file_read(f, 0, head, n, err)) != PI_OK) return rc;
    if ((rc = pi__gguf_check_head(f, head, n, &version, err)) != PI_OK) return rc;
    if ((rc = pi__gguf_file_load(f, h.mode, h.p, err)) != PI_OK) return rc;
    if (g->n_files == 1) g->version = version;
    return pi__gguf_parse(g, f, (int32_t) g->n_files - 1, m, err);
}

static void clear(pi__gguf *g)
{
    for (size_t i = 0; i < g->n_files; i++) pi__gguf_file_close(&g->file[i]);
    pi__gguf_meta_free(&g->meta);
    pi__gguf_free_overrides(g);
    pi__strmap_free(&g->by_name);
    pi__free(g->file);
    pi__free(g->tensor);
    *g = (pi__gguf) {0};
}

/* ---------------------------------------------------------------------------------------------------------- splits */

/* Reads the split keys of a file; *count is 1 if the file is not split. */
static int split_keys(const pi__gguf_meta *m, const pi__gguf_file *f, uint32_t *no, uint32_t *count, pi_error *err)
{
    int rc = pi__gguf_meta_u32(m, f, "split.count", count, 1, err);
    if (rc == PI_OK) rc = pi__gguf_meta_u32(m, f, "split.no", no, 0, err);
    if (rc != PI_OK) return rc;
    if (*count == 0) *count = 1;
    if (*count > PI__GGUF_MAX_SPLITS || *no >= *count) {
        return pi__fail(err, PI_EFORMAT, "%s: split.no %u of split.count %u: a split must be 0..count-1, of at most %d",
                        f->label, *no, *count, PI__GGUF_MAX_SPLITS);
    }
    return PI_OK;
}

/* Opens split i of count as the next file, and checks its keys. stem: length of the path up to "-00001-of-". */
static int add_split(pi__gguf *g, char *path, size_t stem, uint32_t i, uint32_t count, how h, pi_error *err)
{
    pi__gguf_meta other = {0}, *m = i == 0 ? &g->meta : &other;
    uint32_t its_no = 0, its_count = 0;
    snprintf(path + stem, 32, "-%05u-of-%05u.gguf", i + 1, count);
    int rc = add_file(g, path, h, m, err);
    if (rc == PI_ENOENT) {
        char label[64];
        pi__gguf_label(label, sizeof label, path);
        pi__fail(err, rc, "no such file: %s, part %u of %u of this model: put all parts into one folder", label,
                 i + 1, count);
    }
    if (rc == PI_OK) rc = split_keys(m, &g->file[i], &its_no, &its_count, err);
    if (rc == PI_OK && (its_no != i || its_count != count)) {
        rc = pi__fail(err, PI_EFORMAT,
                      "%s: split.no %u, split.count %u, but its name says number %u of %u: the files are mixed up",
                      g->file[i].label, its_no, its_count, i, count);
    }
    pi__gguf_meta_free(&other);
    return rc;
}

/* g holds one file. If its metadata has split keys, opens all splits, in order from the first. */
static int open_splits(pi__gguf *g, const char *given, how h, pi_error *err)
{
    uint32_t no, count, total;
    char suffix[32], *path = NULL;
    int rc = split_keys(&g->meta, &g->file[0], &no, &count, err);
    if (rc != PI_OK || count == 1) return rc;
    snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", no + 1, count);
    size_t n = given ? strlen(given) : 0, stem = n - strlen(suffix);
    if (n < strlen(suffix) || strcmp(given + stem, suffix) != 0) {
        return pi__fail(err, PI_EFORMAT,
                        "%s: split.count: part %u of %u of a model, its name must end in \"%s\": rename it",
                        g->file[0].label, no + 1, count, suffix);
    }
    path = pi__malloc(n + sizeof suffix);
    if (!path) return pi__fail_mem(err, "the path of a split");
    memcpy(path, given, n + 1);
    if (no != 0) clear(g);
    for (uint32_t i = no == 0; i < count && rc == PI_OK; i++) rc = add_split(g, path, stem, i, count, h, err);
    if (rc == PI_OK) {
        rc = pi__gguf_meta_u32(&g->meta, &g->file[0], "split.tensors.count", &total, (uint32_t) g->n_tensors, err);
    }
    if (rc == PI_OK && total != g->n_tensors) {
        rc = pi__fail(err, PI_EFORMAT,
                      "%s: split.tensors.count is %u, but the %u parts hold %zu tensors: a part is damaged",
                      g->file[0].label, total, count, g->n_tensors);
    }
    pi__free(path);
    return rc;
}

static int index_tensors(pi__gguf *g, pi_error *err)
{
    size_t dup;
    int rc = pi__strmap_build(&g->by_name, g->tensor, sizeof *g->tensor, g->n_tensors, &dup);
    if (rc == PI_ENOMEM) return pi__fail_mem(err, "the index of the tensors");
    if (rc == PI_OK) return PI_OK;
    const pi__tensor *t = &g->tensor[dup];
    const pi__gguf_file *f = &g->file[t->file];
    pi__gguf_where w = {"tensor name", &t->name, UINT64_MAX};
    return pi__gguf_fail(f, (uint64_t) ((const uint8_t *) t->name.p - f->p) - sizeof(uint64_t), &w, err, PI_EFORMAT,
                         "the name occurs twice: the file is damaged or was written wrongly");
}

/* ------------------------------------------------------------------------------------------------------ open, close */

int pi__gguf_open(pi__gguf **out, const char *path, int load_mode, pi_error *err)
{
    return pi__gguf_open_with(out, path, load_mode, NULL, err);
}

int pi__gguf_open_with(pi__gguf **out, const char *path, int load_mode, pi__progress *p, pi_error *err)
{
    const how h = {load_mode, p};
    *out = NULL;
    if (load_mode != PI__LOAD_MMAP && load_mode != PI__LOAD_READ && load_mode != PI__LOAD_DIO) {
        return pi__fail(err, PI_EINVAL, "load mode %d is unknown: give mmap, read or dio", load_mode);
    }
    pi__gguf *g = pi__calloc(1, sizeof *g);
    if (!g) return pi__fail_mem(err, "a GGUF reader");
    int rc = add_file(g, path, h, &g->meta, err);
    if (rc == PI_OK) rc = open_splits(g, path, h, err);
    if (rc == PI_OK) rc = index_tensors(g, err);
    if (rc == PI_OK) *out = g;
    else pi__gguf_close(g);
    return rc;
}

int pi__gguf_open_memory(pi__gguf **out, const void *p, size_t n, pi_error *err)
{
    *out = NULL;
    pi__gguf *g = pi__calloc(1, sizeof *g);
    pi__gguf_file *f = g ? next_file(g) : NULL;
    int rc;
    if (!f) {
        rc = pi__fail_mem(err, "a GGUF reader");
        goto out;
    }
    pi__gguf_file_borrow(f, p, n);
    g->n_files = 1;
    if ((rc = pi__gguf_check_head(f, p, n, &g->version, err)) != PI_OK) goto out;
    if ((rc = pi__gguf_parse(g, f, 0, &g->meta, err)) != PI_OK) goto out;
    if ((rc = open_splits(g, NULL, (how) {PI__LOAD_MMAP, NULL}, err)) != PI_OK) goto out;
    rc = index_tensors(g, err);
out:
    if (rc == PI_OK) *out = g;
    else pi__gguf_close(g);
    return rc;
}

void pi__gguf_close(pi__gguf *g)
{
    if (!g) return;
    clear(g);
    pi__free(g);
}
