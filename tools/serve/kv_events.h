/* KV events: publishes changes of the prefix cache over ZeroMQ, in vLLM's format, which routers read.
 *
 * A PUB socket sends batches of three frames: topic, batch number, payload. The batch number is 64 bits, big endian,
 * and increases by 1. The payload is msgpack: [time, [event...], 0]. An event is an array:
 *
 *     ["BlockStored", [hash...], hash of the previous block or nil, [token...], tokens per block, nil, "GPU", nil]
 *     ["BlockRemoved", [hash...], "GPU"]
 *     ["AllBlocksCleared"]
 *
 * The nil fields belong to LoRA adapters. "GPU" is the cache tier that a request can use directly; this engine's cache
 * is such a tier on every device.
 *
 * A subscriber that missed batches sends a request to the ROUTER socket: an empty frame, then a frame of 8 bytes with
 * the first batch number that it needs. The socket returns number and payload of each kept batch from that number on,
 * then number 2^64-1 with an empty payload.
 *
 * The first batch of a server, number 0, is AllBlocksCleared: it invalidates the state of an earlier server.
 *
 * The engine never waits for a subscriber. Its step thread copies changes into a queue (kv_queue.h). A second thread
 * packs and sends the queued changes, and ZeroMQ drops the messages that a slow subscriber does not read. If the queue
 * overflows, one batch number is skipped and AllBlocksCleared follows. A router may then miss prefixes, but never
 * routes to a removed one.
 *
 * A batch that cannot be allocated counts as lost. ZeroMQ itself ends the process if it runs out of memory.
 * Threads: the step thread calls kv_events_put; the loop calls the other functions. ZeroMQ has its own threads.
 * In a build without the libraries kv_events_open fails with an error text. */
#ifndef PAGEDINFER_SERVE_KV_EVENTS_H
#define PAGEDINFER_SERVE_KV_EVENTS_H

#include <pagedinfer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kv_events kv_events;

typedef struct kv_events_config {
    const char *endpoint;  /* address of the PUB socket: "tcp://ADDRESS:PORT", "ipc://PATH" */
    const char *replay;    /* address of the ROUTER socket; "" = no replay */
    const char *topic;     /* first frame of each batch */
    size_t keep;           /* number of batches kept for the ROUTER socket */
    size_t queue_bytes;    /* capacity of the queue of unpacked changes, bytes */
} kv_events_config;

/* Opens the sockets and starts the thread. Returns NULL on failure, with the reason in err. */
kv_events *kv_events_open(const kv_events_config *c, char err[256]);
/* A pi_cache_event_fn; ud is the kv_events. */
void kv_events_put(void *ud, const pi_cache_event *ev);
/* Returns the address of a socket for other programs, with the actual port number. Returns "" if the socket is not
 * open. */
const char *kv_events_endpoint(const kv_events *k, bool replay);
bool kv_events_is_bound(const kv_events *k); /* false = the PUB socket connects to a listening peer */
uint64_t kv_events_sent(const kv_events *k);  /* number of batches sent */
uint64_t kv_events_lost(const kv_events *k);  /* number of changes lost: queue full or out of memory */
/* Ends the thread; called after the engine is closed. NULL is allowed. */
void kv_events_close(kv_events *k);

#endif
