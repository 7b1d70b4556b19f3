/* Images of client requests (see media.h).
 *
 *     data:...;base64,  -> bytes                                     |  headers -> tokens of all images -> limit
 *     file://PATH       -> bytes, only below --media-path            |  one by one: pixels -> pi_request_image
 *     http(s)://HOST/   -> bytes, only from --allowed-media-domains  |
 *
 * A client's URL must not reach other hosts or files: names are compared with the options, redirects are not followed,
 * and links are resolved before a path is compared. Memory: the encoded files of a request, and the pixels of one image
 * at a time. */
#include "serve/media.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "media/image.h"
#include "serve/text.h"

enum { LOW_TOKENS = 128 /* detail low */, TOTAL_FACTOR = 8 /* encoded bytes of a request, in largest files */,
       FETCH_S = 10 };

typedef struct media { /* the images of a request at work */
    const service *sv;
    params *p;
    const char *field;
    pi_work *work;
    pi_error *err;
    image_limits limits;
    size_t total;         /* encoded bytes so far */
    struct one {
        buf bytes;        /* the encoded file */
        image_head head;
        uint32_t min_tokens, max_tokens; /* 0 = the engine's */
    } *one;               /* [n] */
    size_t n;
} media;

static int fail(media *m, size_t i, const char *text)
{
    return params_fail(m->p, m->field, m->err, "'%s', image %zu: %s", m->field, i + 1, text);
}

/* ----------------------------------------------------------------------------------------------------------- files */

static int read_path(media *m, size_t i, const char *path)
{
    char dir[PATH_MAX], file[PATH_MAX], joined[PATH_MAX];
    const char *base = m->sv->media_path;
    uint8_t *p = NULL;
    size_t n = 0;
    pi_error err = {0};
    if (!*base) return fail(m, i, "this server reads no files: send a data URL, or start it with --media-path");
    const bool whole = *path == '/';
    const int size = snprintf(joined, sizeof joined, "%s%s%s", whole ? "" : base, whole ? "" : "/", path);
    const bool fits = size >= 0 && (size_t) size < sizeof joined;
    if (!fits || !realpath(base, dir) || !realpath(joined, file)) return fail(m, i, "no such file below --media-path");
    const size_t len = strlen(dir);
    if (strncmp(file, dir, len) != 0 || (file[len] != '/' && len > 1))
        return fail(m, i, "no such file below --media-path"); /* as for a missing file: names outside stay secret */
    if (image_read_file(file, &m->limits, &p, &n, &err))
        return err.code == PI_ENOMEM ? params_no_memory(m->err)
                                     : fail(m, i, "the file cannot be read, or is too large");
    buf_put(&m->one[i].bytes, p, n);
    free(p);
    return PI_OK;
}

/* ------------------------------------------------------------------------------------------------------------ URLs */

/* Returns the host of a URL in host; false = the URL has none, has a user name, or is too long. */
static bool host_of(const char *url, char *host, size_t cap)
{
    const char *p = strstr(url, "://");
    const size_t n = p ? strcspn(p + 3, "/?#") : 0;
    if (!n || memchr(p + 3, '@', n) || memchr(p + 3, '\\', n) || n >= cap) return false;
    memcpy(host, p + 3, n);
    host[n] = 0;
    char *colon = strrchr(host, ':');
    if (colon && !strchr(colon, ']')) *colon = 0;
    return *host;
}

static bool is_allowed(const service *sv, const char *host)
{
    for (const char *p = sv->media_domains; *p; p += strcspn(p, ","), p += *p == ',') {
        const size_t n = strcspn(p, ",");
        if (n == strlen(host) && !strncasecmp(p, host, n)) return true;
    }
    return false;
}

typedef struct download {
    media *m;
    buf *to;
} download;

static bool on_bytes(void *ud, const char *p, size_t n)
{
    download *d = ud;
    if (d->to->n + n > d->m->limits.max_bytes || pi_work_check(d->m->work)) return false;
    buf_put(d->to, p, n);
    return !d->to->failed;
}

static int fetch(media *m, size_t i, const char *url)
{
    download d = {m, &m->one[i].bytes};
    char why[120], text[200];
    if (!m->sv->fetch) return fail(m, i, "this build fetches no URLs: send a data URL");
    if (m->sv->fetch(url, FETCH_S, on_bytes, &d, why, sizeof why)) return PI_OK;
    if (pi_work_check(m->work)) return *m->err = (pi_error) {.code = pi_work_check(m->work)}, m->err->code;
    snprintf(text, sizeof text, "its URL cannot be fetched: %s", why);
    return fail(m, i, text);
}

static int read_remote(media *m, size_t i, const char *url)
{
    char host[256];
    if (!host_of(url, host, sizeof host)) return fail(m, i, "its URL is not valid");
    if (!is_allowed(m->sv, host))
        return fail(m, i, "its URL names a host that is not allowed: send a data URL, or start the server with "
                          "--allowed-media-domains");
    return fetch(m, i, url);
}

/* ----------------------------------------------------------------------------------------------------------- bytes */

static int read_base64(media *m, size_t i, const char *p, size_t n)
{
    if (n / 4 > m->limits.max_bytes / 3) return fail(m, i, "the file is too large (--max-image-bytes)");
    if (!text_put_base64(p, n, &m->one[i].bytes)) return fail(m, i, "its data are not base64");
    return PI_OK;
}

static bool begins(const param_image *image, const char *with)
{
    const size_t n = strlen(with);
    return image->n >= n && !strncasecmp(image->text, with, n);
}

/* Reads the encoded bytes of image i. */
static int read_bytes(media *m, size_t i, const param_image *image)
{
    static const char mark[] = ";base64,";
    int rc;
    if (strlen(image->text) != image->n) return fail(m, i, "its URL has a zero byte");
    if (image->base64) rc = read_base64(m, i, image->text, image->n);
    else if (begins(image, "http://") || begins(image, "https://")) rc = read_remote(m, i, image->text);
    else if (begins(image, "file://")) rc = read_path(m, i, image->text + 7);
    else if (begins(image, "data:")) {
        const char *comma = memchr(image->text, ',', image->n < 256 ? image->n : 256);
        const size_t head = comma ? (size_t) (comma + 1 - image->text) : 0, n = sizeof mark - 1;
        if (head < n + 5 || strncasecmp(comma + 1 - n, mark, n) != 0)
            return fail(m, i, "its data URL must be data:image/...;base64,...");
        rc = read_base64(m, i, comma + 1, image->n - head);
    } else {
        rc = read_base64(m, i, image->text, image->n); /* as llama-server */
    }
    if (!rc && m->one[i].bytes.failed) rc = params_no_memory(m->err);
    m->total += m->one[i].bytes.n;
    if (!rc && m->total / TOTAL_FACTOR > m->limits.max_bytes)
        rc = fail(m, i, "the images of the request are too large together (--max-image-bytes)");
    return rc;
}

/* ---------------------------------------------------------------------------------------------------------- tokens */

/* Returns an option of the request, or the service's value. */
static uint32_t option_of(const media *m, const char *key, uint32_t otherwise)
{
    const char *v = params_value(m->p, key);
    return v ? (uint32_t) strtoul(v, NULL, 10) : otherwise;
}

/* Reads the header of image i and adds its tokens. */
static int read_head(media *m, size_t i, const param_image *image, uint64_t *n_tokens)
{
    struct one *o = &m->one[i];
    pi_error err = {0};
    uint32_t n = 0;
    if (image_head_read(o->bytes.p ? o->bytes.p : "", o->bytes.n, &m->limits, &o->head, &err))
        return fail(m, i, err.msg);
    o->min_tokens = option_of(m, "image-min-tokens", m->sv->image_min_tokens);
    o->max_tokens = option_of(m, "image-max-tokens", m->sv->image_max_tokens);
    if (image->low && (!o->max_tokens || o->max_tokens > LOW_TOKENS))
        o->max_tokens = o->min_tokens > LOW_TOKENS ? o->min_tokens : LOW_TOKENS;
    const int rc = pi_image_tokens(m->sv->e, o->head.width, o->head.height, o->min_tokens, o->max_tokens, &n, &err);
    *n_tokens += n;
    if (rc) (void) fail(m, i, err.msg);
    return rc;
}

/* Reads n images of p from `first` on: bytes and headers. The caller frees m in any case. */
static int begin(media *m, size_t first, size_t n, uint64_t *n_tokens)
{
    const int64_t most = m->sv->max_images;
    int rc = PI_OK;
    if (n > (uint64_t) most)
        return params_fail(m->p, m->field, m->err, "'%s' has %zu images; send at most %" PRId64 " (--max-images)",
                           m->field, n, most);
    m->limits = (image_limits) {.max_bytes = (size_t) m->sv->max_image_bytes,
                                .max_pixels = (uint64_t) m->sv->max_image_pixels};
    if (!(m->one = calloc(n ? n : 1, sizeof *m->one))) return params_no_memory(m->err);
    m->n = n;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = read_bytes(m, i, &m->p->images[first + i]);
        if (!rc) rc = read_head(m, i, &m->p->images[first + i], n_tokens);
        if (!rc && (rc = pi_work_check(m->work))) *m->err = (pi_error) {.code = rc};
    }
    return rc;
}

static void end(media *m)
{
    for (size_t i = 0; i < m->n; i++) buf_free(&m->one[i].bytes);
    free(m->one);
}

static int add(media *m, size_t i, pi_request *r)
{
    struct one *o = &m->one[i];
    uint8_t *rgb = NULL;
    pi_error err = {0};
    int rc = image_decode(o->bytes.p, o->bytes.n, &o->head, m->work, &rgb, &err);
    if (!rc) {
        const pi_image image = {.size = sizeof image, .width = o->head.width, .height = o->head.height, .rgb = rgb,
                                .source = o->bytes.p, .source_len = o->bytes.n, .min_tokens = o->min_tokens,
                                .max_tokens = o->max_tokens};
        rc = pi_request_image(r, &image, &err);
    }
    free(rgb);
    if (rc == PI_EINVAL || rc == PI_EUNSUPPORTED) return fail(m, i, err.msg);
    if (rc) *m->err = err;
    return rc;
}

int media_add(const service *sv, params *p, size_t first, size_t n, const char *field, pi_request *r, pi_work *work,
              pi_error *err)
{
    media m = {.sv = sv, .p = p, .field = field, .work = work, .err = err};
    uint64_t n_tokens = 0;
    int rc = begin(&m, first, n, &n_tokens);
    if (!rc && n_tokens > sv->info.ctx_size) {
        p->bad_field = field;
        *err = (pi_error) {.code = rc = PI_ETOOBIG};
        snprintf(err->msg, sizeof err->msg, "the images have %" PRIu64 " tokens, more than the context (%u): send "
                 "fewer or smaller images, or lower image_max_tokens", n_tokens, sv->info.ctx_size);
    }
    for (size_t i = 0; i < n && !rc; i++) rc = add(&m, i, r);
    end(&m);
    return rc;
}

int media_count(const service *sv, params *p, const char *field, pi_work *work, uint64_t *n_tokens, pi_error *err)
{
    media m = {.sv = sv, .p = p, .field = field, .work = work, .err = err};
    int rc = begin(&m, 0, p->n_images, n_tokens);
    end(&m);
    return rc;
}

void media_make_marker(service *sv)
{
    const char *own = getenv("LLAMA_MEDIA_MARKER");
    uint64_t r[2] = {sv->id_seed, sv->id_seed * 0x9E3779B97F4A7C15u};
    if (own && *own && strlen(own) < sizeof sv->media_marker) {
        snprintf(sv->media_marker, sizeof sv->media_marker, "%s", own);
        return;
    }
    if (getrandom(r, sizeof r, GRND_NONBLOCK) != (ssize_t) sizeof r) r[0] ^= (uint64_t) (uintptr_t) sv;
    snprintf(sv->media_marker, sizeof sv->media_marker, "<__media_%016" PRIx64 "%016" PRIx64 "__>", r[0], r[1]);
}
