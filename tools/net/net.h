/* Downloads: lists of a hub, and files. */
#ifndef PAGEDINFER_NET_H
#define PAGEDINFER_NET_H

#include "hub.h"
#include "net/http.h"

/* Context for the error message of a failed request. */
typedef struct net_where {
    const char *name;  /* name of the requested item */
    const char *page;  /* web page on which terms are accepted, or NULL */
    bool has_token;    /* a token was sent */
} net_where;
/* Prints the reason of a failed request and the remedy. Returns the exit code. */
int net_explain(const cli *c, const net_where *w, enum http_result how, const http_reply *r);
/* Sleeps; returns false after a signal. */
bool net_sleep(double seconds);

/* Lists all files of the repository at the head of its branch; unless dry, stores the commit in the cache. Prints
 * errors; returns an exit code. */
int net_list(const cli *c, http *h, const char *token, bool dry, hub_repo *r);

typedef struct net_file { /* a file to download */
    const char *url;
    const char *name;   /* for messages */
    const char *path;   /* destination; PATH.downloadInProgress until it is complete */
    const char *page;   /* see net_where */
    uint64_t size;      /* bytes; UINT64_MAX = unknown */
    char oid[65];       /* see hub_file */
    char etag[200];     /* of the server, kept in PATH.etag; "" = a hub's file, identified by its hash */
} net_file;
/* Returns the bytes of an incomplete download. */
uint64_t net_partial(const net_file *f);
/* Requests size and ETag. Returns an exit code. quiet: print no error message. */
int net_head(const cli *c, http *h, const char *token, bool quiet, net_file *f);
/* Downloads the file. Prints errors; returns an exit code. A partial download is kept, unless its content is wrong. */
int net_fetch(const cli *c, http *h, const char *token, net_file *f);

#endif
