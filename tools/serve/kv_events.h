/* KV events: changes of the prefix cache published over ZeroMQ, in the form that vLLM's are, which routers read.
 *
 * A PUB socket sends batches: topic, number of the batch (64 bits, big endian, each the one before plus 1), and in msgpack
 * [time, [event...], 0]. An event is an array:
 *
 *     ["BlockStored", [hash...], hash of the block before or nil, [token...], tokens a block, nil, "GPU", nil]
 *     ["BlockRemoved", [hash...], "GPU"]
 *     ["AllBlocksCleared"]
 *
 * The nils are of LoRA adapters; "GPU" is the tier that a request finds at once, which this engine's cache is on every
 * device. Who missed batches asks the ROUTER socket for those from a number on (a frame of 8 bytes behind an empty one) and
 * gets number and payload of each that is kept, then number 2^64-1 with an empty payload.
 *
 * The first batch of a server, number 0, is AllBlocksCleared: what a server before it had is gone.
 *
 * Nobody waits for a subscriber: the engine's step thread copies into a queue (kv_queue.h), a thread packs what is there
 * and sends it, and ZeroMQ drops what a slow subscriber does not take. Where the queue overflows, a number is left out
 * and AllBlocksCleared follows: a router then knows of too few prefixes, never of one that is gone.
 *
 * Threads: kv_events_put is the step thread's, the rest the loop's. In a build without the libraries kv_events_open fails
 * and says so. */
#ifndef PAGEDINFER_SERVE_KV_EVENTS_H
#define PAGEDINFER_SERVE_KV_EVENTS_H

#include <pagedinfer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kv_events kv_events;

typedef struct kv_events_config {
    const char *endpoint;  /* of the PUB socket: "tcp://ADDRESS:PORT", "ipc://PATH" */
    const char *replay;    /* of the ROUTER socket; "": none */
    const char *topic;     /* first frame of each batch */
    size_t keep;           /* batches kept for the ROUTER socket */
    size_t queue_bytes;    /* of changes that may wait to be packed */
} kv_events_config;

/* Opens the sockets and starts the thread. NULL: err says why. */
kv_events *kv_events_open(const kv_events_config *c, char err[256]);
/* A pi_cache_event_fn; ud is the kv_events. */
void kv_events_put(void *ud, const pi_cache_event *ev);
/* Where the socket is, as another program would name it: a port that was left open is filled in. "": there is none. */
const char *kv_events_endpoint(const kv_events *k, bool replay);
bool kv_events_is_bound(const kv_events *k); /* false: the PUB socket connects to who listens there */
uint64_t kv_events_sent(const kv_events *k);  /* batches */
uint64_t kv_events_lost(const kv_events *k);  /* changes that found the queue full, or no memory */
/* Ends the thread; after the engine is closed. NULL is fine. */
void kv_events_close(kv_events *k);

#endif
