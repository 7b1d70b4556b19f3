/* The disk tier: stores cache blocks and snapshots as files in a directory, so that they outlive the pools and the
 * process.
 *
 *     step thread                          the tier's thread                    DIR/v2-FINGERPRINT/3f/3f9c...e1-0
 *     put   ---> staging ring   ---------> checksum, temporary file, rename --> one file per entry
 *     has   ---> index in memory <-------- files on disk; evicts the least recently used
 *     load  ---> queue of loads  --------> read, verify, copy to dst   <------
 *     poll  <--- finished loads <---------
 *
 * An entry is opaque bytes under (hash, group), with its parent hash and its token ids. A load compares parent and
 * tokens, as the block pool does on a hit. An entry is written once and never changed. No failure here is an error for
 * a request: a file that is damaged, truncated, removed or from another model is a miss. A put that finds no room in
 * the ring is dropped. All calls except open and close take one short lock and neither wait for the disk nor allocate.
 * The exception is pi__tier_cancel, which may wait for a running read.
 *
 * Files. DIR/v2-FINGERPRINT/SHARD/HASH-TENANT-GROUP, all in lower-case hexadecimal: FINGERPRINT and HASH (the block
 * hash) 64 digits, SHARD the first two digits of HASH, TENANT 16 digits, GROUP without leading zeros. Numbers are in
 * the byte order of the machine.
 *
 *     offset  bytes
 *          0      8  magic 89 'P' 'I' 't' 'i' 'e' 'r' 0a
 *          8      4  version, 2 (also the 2 of "v2-")
 *         12      4  group
 *         16     32  fingerprint
 *         48     32  hash
 *         80     32  parent
 *        112      8  tenant
 *        120      8  n_bytes
 *        128      4  n_tokens
 *        132      4  0
 *        136     32  sum of the data
 *        168     32  sum of bytes 0 to 167 and of the tokens with their padding
 *        200         int32 token ids, then zeros up to the next multiple of 64
 *                    n_bytes of data; the file ends here
 *
 * Trust. With a key the sums are MACs (pi__mac_bulk of the data; HMAC-SHA-256 of the head, which includes the data's
 * MAC). The MACs cover every byte and the entry's identity. A file is a miss if its writer did not have the key, or if
 * the file was changed, renamed or moved to another model. FINGERPRINT then also depends on the key: servers with
 * different keys do not see each other's files.
 *
 * Without a key the sums are XXH3-64 (and zeros), which detect damage but not manipulation. So pi__tier_open refuses
 * a directory that other users can write to, and files that other users own or can write to are misses. Folders below
 * DIR are never reached through symbolic links.
 *
 * A file gets its name by rename when it is complete, so a process may be killed at any moment. A killed process
 * leaves at most one file "tmp-..." on which it held a lock; a later open removes the file, since its lock is free.
 * Nothing is synced: a file torn by a power failure fails its checksum.
 *
 * The modification time is the time of last use (written back in batches), and gives the eviction order after the next
 * open. Files are readable by their owner only, since the text can be reconstructed from cached keys and values. Files
 * with other names are ignored.
 *
 * Several processes may use one directory, on one machine or on several that mount it, also with different models. A
 * rescan finds the files of other processes: it reads the shard folders with a changed modification time. No process
 * waits for a lock of another process.
 *
 * The limit holds for all files in the directory, of all models. Each process counts the files found at open, its own
 * writes, and for its own model the files found since. It rescans before a write if the last rescan is older than
 * RESCAN_MS (tier.c). So concurrent writers may exceed the limit for that time. Before eviction, a process reads the
 * file's time, so a file that another process used recently is not evicted. On a network file system the client's
 * directory cache determines how soon files of others are seen.
 *
 * Memory: one region at open, see pi__tier_memory. Threads: the tier has one thread; any thread may call. */
#ifndef PI__TIER_H
#define PI__TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "cache/block_pool.h"

typedef struct pi__tier pi__tier;

typedef struct pi__tier_config {
    const char *dir;         /* created if missing, with its parents */
    uint64_t limit_bytes;    /* max disk bytes, each file rounded up to 4 KiB; all models together */
    const pi__mac_key *key;  /* authenticates files; NULL = protected by directory permissions only */
    bool read_only;          /* true = never writes; the directory need not be writable */
    pi__digest fingerprint;  /* digest of everything that determines the bytes: model, layout, types, block size */
    size_t staging_bytes;    /* bytes of the ring of entries that wait to be written; 0 = 64 MiB */
    int32_t max_tokens;      /* max tokens of an entry; 0 = 256 */
    int32_t max_loads;       /* max loads that are not yet polled; 0 = 256 */
    int32_t close_ms;        /* max time that close continues writing staged entries, ms; 0 = 2,000 */
    /* called when a load or rescan has ended, on the tier's thread; must not call the tier; NULL = not called */
    void (*wake)(void *ud);
    void *wake_ud;           /* argument of wake */
    pi__log log;             /* reports entries at open, the first failed write, the first damaged file */
} pi__tier_config;

typedef struct pi__tier_done {
    uint64_t id;   /* as pi__tier_load returned it */
    uint64_t tag;  /* as it was given to pi__tier_load */
    bool ok;       /* true = dst holds the entry; false = a miss, dst is undefined */
} pi__tier_done;

typedef struct pi__tier_stats {
    int64_t entries;       /* entries that has() finds, staged ones included */
    int64_t bytes;         /* bytes that count towards the limit: all models, staged entries included */
    int64_t staged;        /* entries not yet written */
    int64_t hits;          /* loads that returned the entry */
    int64_t misses;        /* loads that did not return it, without cancelled loads */
    int64_t writes;        /* files written */
    int64_t dropped;       /* puts that were not stored: no space in the ring, too large, or not written before close */
    int64_t evicted;       /* files removed to stay within the limit, including at open */
    int64_t damaged;       /* files removed because their content was not valid */
    int64_t write_errors;  /* failed writes, except transient failures */
    bool writable;         /* false after the first write error: no more writes, loads continue */
} pi__tier_stats;

/* Reads the names in the directory and starts the thread. Returns PI_EIO or PI_EINVAL if no file can be written there.
 * If the disk is full, logs a warning and opens read-only, as after a first failed write. */
int pi__tier_open(pi__tier **out, const pi__tier_config *config, pi_error *err);
/* Writes staged entries (for up to close_ms), ends pending loads without reporting them, and frees everything. No other
 * call may be running. t may be NULL. */
void pi__tier_close(pi__tier *t);
/* Returns the bytes that open allocates, for the planner; 0 = invalid config. Pages of the index are touched only as
 * entries are added. */
size_t pi__tier_memory(const pi__tier_config *config);

/* Returns true if the index in memory has the entry, so that a load would find it. O(1). */
bool pi__tier_has(pi__tier *t, const pi__digest *hash, int32_t group);
/* Requests a rescan of the directory for files that other processes wrote or removed. Returns the rescan's number;
 * requests made before a rescan begins share it. config.wake is called when it has ended. */
uint64_t pi__tier_rescan(pi__tier *t);
/* Returns true if rescan n has ended: pi__tier_has then knows the files that existed when it was requested. */
bool pi__tier_rescanned(pi__tier *t, uint64_t n);
/* Marks the entry as used now. Touch the entries of a finished sequence from the last to the first, so that its first
 * blocks are evicted last. O(1); no-op for an unknown entry. */
void pi__tier_touch(pi__tier *t, const pi__digest *hash, int32_t group);
/* Copies the entry into the staging ring. Returns true if the tier has the entry now; an entry that it already had is
 * touched. */
bool pi__tier_put(pi__tier *t, const pi__block_key *key, int32_t group, const int32_t *tokens, int32_t n_tokens,
                  const void *data, size_t n_bytes);

/* Starts reading the entry into dst[n_bytes], which must stay valid until the load is polled or cancelled; tokens are
 * copied. Returns its id, or 0 = an immediate miss (unknown entry, or max_loads pending) that will not be reported. */
uint64_t pi__tier_load(pi__tier *t, const pi__block_key *key, int32_t group, const int32_t *tokens, int32_t n_tokens,
                       void *dst, size_t n_bytes, uint64_t tag);
/* Stores up to n finished loads in out, in the order in which they finished. Returns their number. */
int32_t pi__tier_poll(pi__tier *t, pi__tier_done *out, int32_t n);
/* Cancels a load: when this returns, dst is no longer written and the load will not be reported. Waits only if the
 * file is being read at this moment. No-op for an id that was polled or cancelled. */
void pi__tier_cancel(pi__tier *t, uint64_t id);

/* Drops all entries of this model; tenant not NULL = only this tenant's. pi__tier_has is false for them when this
 * returns; the tier's thread removes the files before any other work. Covers only files that this process knows.
 * O(entries). */
void pi__tier_clear(pi__tier *t, const uint64_t *tenant);

void pi__tier_get_stats(pi__tier *t, pi__tier_stats *out);

#endif
