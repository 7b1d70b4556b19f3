/* Internals of the disk tier (see tier.h): the index, the file layer, and the state shared by the step thread and the
 * tier's thread.
 *
 *   tier.c        open and close, the public calls, the tier's thread
 *   tier_index.c  the entries in the order of last use; memory only
 *   tier_io.c     names; writes or reads one file
 *   tier_scan.c   builds the index from the directory, at open
 *   tier_rescan.c rescan: finds files that other processes wrote or removed
 *
 * Slots of entries and loads are numbered from 1; 0 = none. So zeroed memory is an empty tier. */
#ifndef PI__TIER_IMPL_H
#define PI__TIER_IMPL_H

#include <dirent.h>
#include <pthread.h>
#include <sys/types.h>

#include "base/alloc.h"
#include "cache/tier.h"

enum {
    PI__TIER_PAGE = 4096,     /* unit of file sizes for the limit, bytes */
    PI__TIER_PATH = 176,      /* max bytes of a path below DIR, terminator included */
    PI__TIER_ALIGN = 64,      /* alignment of the data in a file, and of images in the ring */
};

/* ----------------------------------------------------------------------------------------------------------- index */
enum { PI__TIER_LRU, PI__TIER_DIRTY, PI__TIER_LISTS };
enum { PI__TIER_SHARDS = 256 };

typedef struct pi__tier_name { /* name of a file within a space, the folder of one fingerprint */
    pi__digest hash;    /* identifies the entry, together with group */
    uint64_t tenant;    /* tenant of the entry, for pi__tier_clear */
    int32_t group;      /* as given to put */
} pi__tier_name;

typedef struct pi__tier_entry {
    pi__tier_name name;
    int64_t used;       /* last use, ns since 1970; equals the file's modification time if dirty is false */
    int32_t space;      /* index into pi__tier.space; 0 = this model */
    uint32_t pages;     /* disk pages of PI__TIER_PAGE bytes that the file occupies */
    int32_t stage;      /* if staged: index into pi__tier.stage */
    int32_t chain;      /* next entry in the hash bucket, or next free slot; 0 = none */
    bool staged;        /* not yet written to disk */
    bool dirty;         /* on the DIRTY list: its file must still get the time of last use, or be removed */
    bool cleared;       /* no longer in the hash table; its file must be removed */
    bool seen;          /* the running rescan has found the file */
    struct { int32_t prev, next; } link[PI__TIER_LISTS]; /* next newer and next older entry in each list; 0 = none */
} pi__tier_entry;

typedef struct pi__tier_index {
    pi__tier_entry *entry;  /* [capacity + 1] */
    int32_t *bucket;        /* [n_buckets] first entry of each hash chain */
    uint32_t n_buckets;     /* a power of two */
    int32_t capacity;       /* max entries */
    int32_t n_touched;      /* slots 1..n_touched have been used; later slots are untouched memory */
    int32_t free;           /* first free slot <= n_touched; 0 = none */
    /* most and least recently used entry of each list; 0 = empty */
    struct { int32_t head, tail; } list[PI__TIER_LISTS];
    int32_t n_entries;      /* entries in use */
    int32_t n_own;          /* entries of space 0 that find returns */
    int32_t n_cleared;      /* cleared entries, part of n_entries */
    uint64_t n_pages;       /* disk pages of all entries */
    int64_t clock;          /* last time returned by pi__tier_tick */
} pi__tier_index;

/* Returns the slot of an entry of this model, 0 = none. */
int32_t pi__tier_find(const pi__tier_index *x, const pi__digest *hash, int32_t group);
/* Adds an entry, which must not exist, as most recently used. Returns its slot; 0 = no slot is free. */
int32_t pi__tier_add(pi__tier_index *x, int32_t space, const pi__tier_name *name, uint32_t pages, int64_t used);
void pi__tier_erase(pi__tier_index *x, int32_t slot);
/* Makes the entry the most recently used, with the current time. The entry becomes dirty unless it is staged. */
void pi__tier_use(pi__tier_index *x, int32_t slot);
/* Makes the entry the most recently used, with time `used`. Not dirty: the file already has this modification time. */
void pi__tier_used(pi__tier_index *x, int32_t slot, int64_t used);
void pi__tier_set_dirty(pi__tier_index *x, int32_t slot, bool dirty);
/* Hides the entry from pi__tier_find. The entry becomes dirty (its file is removed later) unless it is staged. */
void pi__tier_mark_cleared(pi__tier_index *x, int32_t slot);
/* Returns the current time, adjusted to be later than all times returned before. */
int64_t pi__tier_tick(pi__tier_index *x);

/* ----------------------------------------------------------------------------------------------------------- files */
typedef struct pi__tier_head { /* the first bytes of a file, see tier.h */
    char magic[8];
    uint32_t version;
    int32_t group;
    pi__digest fingerprint, hash, parent;
    uint64_t tenant;
    uint64_t n_bytes;
    int32_t n_tokens;
    uint32_t zero;
    pi__digest data_sum;
    pi__digest head_sum;
} pi__tier_head;

typedef enum pi__tier_result {
    PI__TIER_OK,
    PI__TIER_MISS,     /* a valid file of another entry with this hash */
    PI__TIER_GONE,     /* the file does not exist */
    PI__TIER_DAMAGED,  /* the content is not valid */
    PI__TIER_PASSING,  /* a transient failure, e.g. out of descriptors */
    PI__TIER_FAILED,   /* a permanent write error; errno gives the reason */
    PI__TIER_ADOPTED,  /* nothing was written: another process has written the same entry */
} pi__tier_result;

/* The identity of an entry that is loaded or written. */
typedef struct pi__tier_entry_id {
    pi__digest fingerprint;
    pi__block_key key;
    int32_t group;
    const int32_t *tokens;
    int32_t n_tokens;
    size_t n_bytes;
} pi__tier_entry_id;

/* Return the bytes before the data (head), and the bytes of the complete file; SIZE_MAX = overflow. */
size_t pi__tier_head_size(int32_t n_tokens);
size_t pi__tier_file_size(int32_t n_tokens, size_t n_bytes);
/* Build the path below DIR of an entry's file, of a shard's folder, of a space's folder. */
void pi__tier_path(char path[PI__TIER_PATH], const pi__digest *fingerprint, const pi__tier_name *name);
void pi__tier_shard_path(char path[PI__TIER_PATH], const pi__digest *fingerprint, uint32_t shard);
void pi__tier_space_path(char path[PI__TIER_PATH], const pi__digest *fingerprint);
static inline uint32_t pi__tier_shard_of(const pi__tier_name *name) { return name->hash.byte[0]; }
/* Parse a name that the functions above build; return false for any other text. */
bool pi__tier_parse_entry(const char *text, pi__tier_name *name);
bool pi__tier_parse_space(const char *text, pi__digest *fingerprint);

/* Writes the entry as a file image of pi__tier_file_size() bytes. The sums stay 0; pi__tier_write computes them on the
 * tier's thread. */
void pi__tier_image(char *image, const pi__tier_entry_id *w, const void *data);
/* Computes the sums of the image and writes it to its file; `used` becomes the file's modification time. Returns OK,
 * ADOPTED, PASSING or FAILED. key: NULL = files without MACs, here and below. */
pi__tier_result pi__tier_write(int dir_fd, const pi__mac_key *key, char *image, size_t size, int64_t used);
/* Returns true if a valid image has the tokens, parent and data length of w. */
bool pi__tier_same_entry(const char *image, const pi__tier_entry_id *w);
/* Reads and checks the file of w; its data is written to dst. head [head_bytes]: a buffer, large enough for
 * w->n_tokens. Returns OK, MISS, GONE, DAMAGED or PASSING. */
pi__tier_result pi__tier_read(int dir_fd, const pi__mac_key *key, const pi__tier_entry_id *w, char *head,
                              size_t head_bytes, void *dst);
/* *pages = a file's size in pages, *used = its modification time. Returns OK, GONE, PASSING, or DAMAGED = not a regular
 * file. */
pi__tier_result pi__tier_stat(int dir_fd, const char *path, uint32_t *pages, int64_t *used);
/* Opens a directory below dir_fd for reading; returns NULL and sets errno on failure. */
DIR *pi__tier_read_dir(int dir_fd, const char *path);
/* Returns OK if a file can be created and written in this fingerprint's folder; else FAILED with errno. */
pi__tier_result pi__tier_probe(int dir_fd, const pi__digest *fingerprint);
/* Removes a file; flags AT_REMOVEDIR = an empty directory. Returns false if nothing was removed. */
bool pi__tier_unlink(int dir_fd, const char *path, int flags);
/* Sets the file's modification time. GONE = the file does not exist. */
pi__tier_result pi__tier_set_time(int dir_fd, const char *path, int64_t used);
/* Opens the directory, and creates it with its parents if missing. Returns -1 and sets errno on failure. */
int pi__tier_open_dir(const char *dir);

/* ------------------------------------------------------------------------------------------------------------ tier */
typedef struct pi__tier_stage { /* an entry's image in the ring */
    size_t off, size;  /* bytes */
    int32_t entry;     /* slot of the entry in the index */
    bool ready;        /* the image is complete */
} pi__tier_stage;

typedef enum pi__tier_load_state {
    PI__TIER_FREE,
    PI__TIER_QUEUED,
    PI__TIER_RUNNING, /* the tier's thread is writing dst */
    PI__TIER_DONE,
} pi__tier_load_state;

typedef struct pi__tier_load_slot {
    pi__block_key key;
    int32_t group;
    int32_t n_tokens;
    size_t n_bytes;
    void *dst;
    uint64_t tag;
    uint32_t round;             /* generation of this slot, a part of the load's id, so that ids are not reused */
    int32_t next;               /* next load in the queue, or next free slot; 0 = none */
    pi__tier_load_state state;
    bool cancelled;             /* true = not reported; the slot is freed when the load leaves its queue */
    bool ok;                    /* valid in state PI__TIER_DONE: true = dst has the entry */
} pi__tier_load_slot;

typedef struct pi__tier_queue { int32_t head, tail; } pi__tier_queue; /* list of loads, linked by next */

struct pi__tier {
    /* set at open */
    pi__tier_config config;       /* as given to open, with defaults; dir and key are NULL */
    pi__mac_key key;              /* valid if keyed is true */
    bool keyed;                   /* files carry MACs */
    char *dir;                    /* as given, for messages */
    char *region;                 /* memory of all arrays below */
    size_t region_size;
    char *ring;                   /* [config.staging_bytes] images */
    pi__tier_stage *stage;        /* [n_stage] ring buffer of images, oldest first */
    pi__tier_load_slot *load;     /* [config.max_loads + 1] */
    int32_t *load_tokens;         /* [config.max_loads + 1, config.max_tokens] */
    char *head;                   /* [head_bytes] buffer for the head of a file, used by the tier's thread */
    size_t head_bytes;
    pi__digest *space;            /* [n_spaces] fingerprints found in the directory; space[0] is this model's */
    size_t n_spaces, cap_spaces;
    uint64_t limit_pages;
    int32_t n_stage;              /* capacity of stage */
    int dir_fd;
    /* Tier's thread only. time: modification time of a shard's folder at the last rescan, 0 = unknown. since: when that
     * time was first seen, monotonic ns. */
    struct { int64_t time, since; } shard[PI__TIER_SHARDS];
    int64_t rescanned_at;         /* tier's thread only: end of the last rescan, or of open, monotonic ns */

    pthread_mutex_t lock;         /* guards all fields below */
    pthread_cond_t work;          /* signals work for the tier's thread */
    pthread_cond_t idle;          /* signals that a load has finished */
    pthread_t thread;
    bool thread_started;
    bool closing;
    int64_t close_at;             /* if closing: time to stop writing, monotonic ns */
    /* when to write the times of last use of dirty entries to their files, monotonic ns; 0 = no entry is dirty */
    int64_t flush_at;
    pi__tier_index index;
    int32_t stage_first;          /* index of the oldest image */
    int32_t stage_count;
    uint64_t stage_pages;         /* disk pages of staged entries */
    pi__tier_queue queued, done;  /* loads to run; loads to poll */
    int32_t load_free;            /* first free load slot */
    bool told_damage;             /* a warning about a damaged file was logged */
    uint64_t n_clears;            /* number of clear calls */
    /* rescans are numbered from 1: number of the last one requested, begun, done */
    uint64_t rescans_requested, rescans_begun, rescans_done;
    pi__tier_stats stats;         /* counters; pi__tier_get_stats fills in the rest */
};

/* Rescans the directory and updates the index. Call on the tier's thread with the lock held; the lock is released while
 * files are read. */
void pi__tier_rescan_folders(pi__tier *t);
/* Fills the empty index from the directory; removes files over the limit and temporary files of dead writers. */
int pi__tier_scan(pi__tier *t, pi_error *err);

#endif
