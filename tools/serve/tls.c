/* TLS for connections (see tls.h). */
#include "serve/tls.h"

#include <stdio.h>

#ifdef PI_HAVE_OPENSSL

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

struct tls_config {
    SSL_CTX *ctx;
};

struct tls {
    SSL *ssl;
    BIO *in, *out; /* bytes from and to the network; owned by ssl */
};

static void say(char *err, size_t n, const char *what)
{
    char reason[160] = "";
    ERR_error_string_n(ERR_get_error(), reason, sizeof reason);
    ERR_clear_error();
    snprintf(err, n, "%s: %s", what, reason);
}

tls_config *tls_open(const char *cert_path, const char *key_path, char *err, size_t n_err)
{
    tls_config *c = calloc(1, sizeof *c);
    SSL_CTX *ctx = c ? SSL_CTX_new(TLS_server_method()) : NULL;
    if (!ctx) {
        snprintf(err, n_err, "out of memory");
        free(c);
        return NULL;
    }
    c->ctx = ctx;
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    if (SSL_CTX_use_certificate_chain_file(ctx, cert_path) != 1) say(err, n_err, cert_path);
    else if (SSL_CTX_use_PrivateKey_file(ctx, key_path, SSL_FILETYPE_PEM) != 1) say(err, n_err, key_path);
    else if (SSL_CTX_check_private_key(ctx) != 1) say(err, n_err, "certificate and key do not match");
    else return c;
    tls_close(c);
    return NULL;
}

void tls_close(tls_config *c)
{
    if (!c) return;
    SSL_CTX_free(c->ctx);
    free(c);
}

tls *tls_new(tls_config *c)
{
    tls *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->ssl = SSL_new(c->ctx);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (!t->ssl || !t->in || !t->out) {
        BIO_free(t->in);
        BIO_free(t->out);
        SSL_free(t->ssl);
        free(t);
        return NULL;
    }
    SSL_set_bio(t->ssl, t->in, t->out); /* ssl owns both from here on */
    SSL_set_accept_state(t->ssl);
    return t;
}

static void take_out(tls *t, buf *cipher)
{
    char *p;
    long n = BIO_get_mem_data(t->out, &p);
    if (n > 0) buf_put(cipher, p, (size_t) n);
    (void) BIO_reset(t->out);
}

bool tls_read(tls *t, const char *p, size_t n, buf *plain, buf *cipher)
{
    char bytes[16384];
    int got;
    if (BIO_write(t->in, p, (int) n) != (int) n) return false;
    while ((got = SSL_read(t->ssl, bytes, sizeof bytes)) > 0) buf_put(plain, bytes, (size_t) got);
    int why = SSL_get_error(t->ssl, got);
    ERR_clear_error();
    take_out(t, cipher);
    return why == SSL_ERROR_WANT_READ && !plain->failed && !cipher->failed;
}

bool tls_write(tls *t, const char *p, size_t n, buf *cipher)
{
    while (n) {
        int chunk = n > 1 << 20 ? 1 << 20 : (int) n, put = SSL_write(t->ssl, p, chunk);
        if (put <= 0) {
            ERR_clear_error();
            return false;
        }
        p += put;
        n -= (size_t) put;
    }
    take_out(t, cipher);
    return !cipher->failed;
}

void tls_free(tls *t)
{
    if (!t) return;
    SSL_free(t->ssl);
    free(t);
}

#else

tls_config *tls_open(const char *cert_path, const char *key_path, char *err, size_t n_err)
{
    (void) cert_path;
    (void) key_path;
    snprintf(err, n_err, "this build has no TLS: install libssl-dev, then configure again");
    return NULL;
}

void tls_close(tls_config *c) { (void) c; }

tls *tls_new(tls_config *c)
{
    (void) c;
    return NULL;
}

bool tls_read(tls *t, const char *p, size_t n, buf *plain, buf *cipher)
{
    (void) t;
    (void) p;
    (void) n;
    (void) plain;
    (void) cipher;
    return false;
}

bool tls_write(tls *t, const char *p, size_t n, buf *cipher)
{
    (void) t;
    (void) p;
    (void) n;
    (void) cipher;
    return false;
}

void tls_free(tls *t) { (void) t; }

#endif
