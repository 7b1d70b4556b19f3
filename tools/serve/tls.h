/* TLS for connections, by OpenSSL over memory: encrypted bytes in, bytes of the other side out, and back. In a build
 * without OpenSSL tls_open fails and says so. The loop's thread. */
#ifndef PAGEDINFER_SERVE_TLS_H
#define PAGEDINFER_SERVE_TLS_H

#include "serve/buf.h"

typedef struct tls_config tls_config; /* certificate and key */
typedef struct tls tls;               /* of one connection */

/* PEM files; NULL, and err says why. */
tls_config *tls_open(const char *cert_path, const char *key_path, char *err, size_t n_err);
void tls_close(tls_config *c); /* connections that use it go on */

/* NULL: out of memory. */
tls *tls_new(tls_config *c);
/* Takes bytes from the network: what they hold for us is appended to plain, what is to be sent for that to cipher.
 * false: the connection is over, or was no TLS. */
bool tls_read(tls *t, const char *p, size_t n, buf *plain, buf *cipher);
/* Encrypts n bytes, all of them. false: the connection is over. */
bool tls_write(tls *t, const char *p, size_t n, buf *cipher);
void tls_free(tls *t);

#endif
