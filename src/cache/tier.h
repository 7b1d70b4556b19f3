/* The disk tier: cache blocks and snapshots that outlive the pools and the process, as files in a directory.
 *
 *     step thread                          the tier's thread                    DIR/v2-FINGERPRINT/3f/3f9c...e1-0
 *     put   ---> staging ring   ---------> checksum, temporary file, rename --> one file an entry
 *     has   ---> index in memory <-------- what is on disk; evicts the least recently used
 *     load  ---> queue of loads  --------> read, verify, copy to dst   <------
 *     poll  <--- finished loads <---------
 *
 * An entry is opaque bytes under (hash, group), with its parent and the token ids it stands for, which are compared on a
 * load as the block pool compares them on a hit. It is written once and never changed. Nothing here is an error for a request: a
 * file that is damaged, cut, vanished or of another model is a miss, and a write that finds no room in the ring is
 * dropped. All calls but open and close take one short lock and neither wait for the disk nor allocate (the exception
 * is cancel, see there).
 *
 * Files. DIR/v2-FINGERPRINT/SHARD/HASH-TENANT-GROUP, all in lower-case hexadecimal: FINGERPRINT and HASH (the block hash)
 * 64 digits, SHARD the first two digits of HASH, TENANT 16 digits, GROUP without leading zeros. Numbers are in the byte
 * order of the machine.
 *
 *     offset  bytes
 *          0      8  magic 89 'P' 'I' 't' 'i' 'e' 'r' 0a
 *          8      4  version, 2 (the 2 of "v2-" too)
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
 * Trust. With a key the sums are MACs (pi__mac_bulk of the data, HMAC-SHA-256 of the head, which has the former), so they
 * cover every byte and the entry's identity: a file is a miss if no holder of the key wrote it, or if it was changed,
 * renamed or moved to another model. FINGERPRINT then has the key in it as well: servers with different keys do not see
 * each other's files. Without a key the sums are XXH3-64 (and zeros), which find damage and no intent. So pi__tier_open
 * refuses a directory that other users can write to, and files that others own or can write to are misses. Folders below
 * DIR are never reached through links.
 *
 * A file gets its name by rename when it is complete, so a process may be killed at any moment; it then leaves at most
 * one file "tmp-...", whose writer held a lock on it, and a later open removes those whose lock is free. Nothing is
 * synced: what a power cut tears fails its checksum. The modification time is the time of last use (written back in
 * batches), and gives the order of eviction after the next open. Files are readable by their owner only, since a cache
 * can be turned back into the text it was computed from. Names that are not of this form are left alone.
 *
 * Several processes may use one directory, on one machine or on several that mount it, also with different models. What
 * another one has written is found after a look: the shards whose time has changed are read again. There is no lock that
 * anybody waits for. The limit holds for everything in it, of all models: each process counts what was there when it
 * opened, what it wrote itself and, of its own model, what it saw since; it looks before it writes where the last look is
 * LOOK_MS (tier.c) old, so what several write at once may exceed the limit for so long. A file that somebody else used
 * lately is not evicted by who used it longer ago. On a network file system the client's cache of directories decides how
 * soon files of others are seen.
 *
 * Memory: one region at open, see pi__tier_memory. Threads: one of its own; any thread may call. */
#ifndef PI__TIER_H
#define PI__TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "cache/block_pool.h"

typedef struct pi__tier pi__tier;

typedef struct pi__tier_config {
    const char *dir;         /* made if missing, with its parents */
    uint64_t limit_bytes;    /* of disk, each file rounded up to 4 KiB; all models together */
    const pi__mac_key *key;  /* authenticates files; NULL: the directory's permissions have to */
    bool read_only;          /* nothing is written, nor need it be possible */
    pi__digest fingerprint;  /* of everything that gives the bytes their meaning: model, layout, types, block size */
    size_t staging_bytes;    /* of the ring in which entries wait to be written; 0: 64 MiB */
    int32_t max_tokens;      /* of an entry; 0: 256 */
    int32_t max_loads;       /* not yet polled, at one time; 0: 256 */
    int32_t close_ms;        /* close goes on writing what is staged for at most this long; 0: 2,000 */
    void (*wake)(void *ud);  /* a load or look has ended. On the tier's thread; must not call the tier; may be NULL */
    void *wake_ud;           /* its argument */
    pi__log log;             /* what was found at open, the first failed write, the first damaged file */
} pi__tier_config;

typedef struct pi__tier_done {
    uint64_t id;   /* as pi__tier_load returned it */
    uint64_t tag;  /* as it was given to pi__tier_load */
    bool ok;       /* dst holds the entry; else it is a miss and dst holds anything */
} pi__tier_done;

typedef struct pi__tier_stats {
    int64_t entries;       /* that has() finds, staged ones included */
    int64_t bytes;         /* that count towards the limit, all models and staged entries included */
    int64_t staged;        /* entries not yet written */
    int64_t hits;          /* loads that gave the entry */
    int64_t misses;        /* loads that did not, cancelled ones excluded */
    int64_t writes;        /* files written */
    int64_t dropped;       /* puts that were not kept: no room in the ring, too large, or not writable in time */
    int64_t evicted;       /* files removed to stay within the limit, those at open included */
    int64_t damaged;       /* files removed because they were not what was written */
    int64_t write_errors;  /* writes that failed for other reasons than passing ones */
    bool writable;         /* false after the first of those: nothing is written any more, loads go on */
} pi__tier_stats;

/* Reads the names in the directory and starts the thread. PI_EIO or PI_EINVAL when a file cannot be written there; where
 * that is because the disk is full, it opens with a warning and is only read, as after a first failed write. */
int pi__tier_open(pi__tier **out, const pi__tier_config *config, pi_error *err);
/* Writes what is staged (for close_ms), ends pending loads without reporting them, and frees everything. No other call
 * may be running. NULL is fine. */
void pi__tier_close(pi__tier *t);
/* Bytes that open takes, for the planner. Pages of the index are touched only as entries come; 0: invalid config. */
size_t pi__tier_memory(const pi__tier_config *config);

/* true: a load would find the entry, as far as memory knows. O(1). */
bool pi__tier_has(pi__tier *t, const pi__digest *hash, int32_t group);
/* Asks for another look at the directory, where other processes may have written and removed files of this model since;
 * returns its number. One that is asked for but has not begun is shared. wake is called when it has ended. */
uint64_t pi__tier_look(pi__tier *t);
/* true: look n has ended, and has() knows what was there when it was asked for. */
bool pi__tier_looked(pi__tier *t, uint64_t n);
/* The entry was used: it is evicted later than all others. Touch a sequence's entries from its end when it is done, as
 * its blocks are released, so that tails are evicted before heads. O(1); does nothing for an unknown entry. */
void pi__tier_touch(pi__tier *t, const pi__digest *hash, int32_t group);
/* Copies the entry into the staging ring. true: it is known now, or was already (then it is touched). */
bool pi__tier_put(pi__tier *t, const pi__block_key *key, int32_t group, const int32_t *tokens, int32_t n_tokens,
                  const void *data, size_t n_bytes);

/* Starts reading the entry into dst[n_bytes], which must stay valid until the load is polled or cancelled; tokens are
 * copied. Returns its id, or 0: a miss at once (unknown entry, or max_loads pending), nothing will be reported. */
uint64_t pi__tier_load(pi__tier *t, const pi__block_key *key, int32_t group, const int32_t *tokens, int32_t n_tokens,
                       void *dst, size_t n_bytes, uint64_t tag);
/* Takes up to n finished loads, in the order in which they finished; returns how many. */
int32_t pi__tier_poll(pi__tier *t, pi__tier_done *out, int32_t n);
/* When this returns, dst is not written any more and the load will not be reported. Waits only if the file is being
 * read at this moment. Does nothing for an id that was polled or cancelled. */
void pi__tier_cancel(pi__tier *t, uint64_t id);

/* Forgets all entries of this model, or those of one tenant: has() is false when this returns, and the tier's thread
 * removes the files before it does anything else. Only the files that this process knows of. O(entries). */
void pi__tier_clear(pi__tier *t, const uint64_t *tenant);

void pi__tier_get_stats(pi__tier *t, pi__tier_stats *out);

#endif
