/* TLS for connections, with OpenSSL on memory buffers: encrypts and decrypts bytes. In a build without OpenSSL
 * tls_open fails with an error text. Runs on the loop's thread. */
#ifndef PAGEDINFER_SERVE_TLS_H
#define PAGEDINFER_SERVE_TLS_H

#include "serve/buf.h"

typedef struct tls_config tls_config; /* certificate and key */
typedef struct tls tls;               /* of one connection */

/* Reads PEM files. Returns NULL on failure, with the reason in err. */
tls_config *tls_open(const char *cert_path, const char *key_path, char *err, size_t n_err);
void tls_close(tls_config *c); /* connections that use it continue to work */

/* Returns NULL if out of memory. */
tls *tls_new(tls_config *c);
/* Decrypts bytes from the network. Appends received data to plain, and data to send to the peer to cipher. Returns
 * false if the connection is over or the data is not TLS. */
bool tls_read(tls *t, const char *p, size_t n, buf *plain, buf *cipher);
/* Encrypts all n bytes. Returns false if the connection is over. */
bool tls_write(tls *t, const char *p, size_t n, buf *cipher);
void tls_free(tls *t);

#endif
