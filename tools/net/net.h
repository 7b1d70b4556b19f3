/* What fetches: lists of a hub, and files. */
#ifndef PAGEDINFER_NET_H
#define PAGEDINFER_NET_H

#include "hub.h"
#include "net/http.h"

/* How a request that failed is explained. */
typedef struct net_where {
    const char *name;  /* of what was asked for, for messages */
    const char *page;  /* address for people, where terms are accepted, or NULL */
    bool has_token;    /* one was sent */
} net_where;
/* Says why there was no answer, or none with 2xx, and what to do. Returns the exit code. */
int net_explain(const cli *c, const net_where *w, enum http_result how, const http_reply *r);
/* Sleeps; false: a signal came. */
bool net_sleep(double seconds);

/* All files of the repository at the head of its branch, and that noted in the cache unless dry. Returns an exit code; it
 * has said why. */
int net_list(const cli *c, http *h, const char *token, bool dry, hub_repo *r);

typedef struct net_file { /* to be fetched */
    const char *url;
    const char *name;   /* for messages */
    const char *path;   /* where it goes; until it is complete, PATH.downloadInProgress */
    const char *page;   /* see net_where */
    uint64_t size;      /* bytes, UINT64_MAX: not known */
    char oid[65];       /* see hub_file */
    char etag[200];     /* of the server, kept in PATH.etag; "": it is a hub's file, whose content its name says */
} net_file;
/* Bytes that are there from a fetch that did not end. */
uint64_t net_partial(const net_file *f);
/* Asks for size and ETag. *known: the server answers such questions. Returns an exit code; where it fails and quiet, it said
 * nothing. */
int net_head(const cli *c, http *h, const char *token, bool quiet, net_file *f);
/* Fetches it. Returns an exit code; it has said why. What came stays for the next time, unless it is wrong. */
int net_fetch(const cli *c, http *h, const char *token, net_file *f);

#endif
