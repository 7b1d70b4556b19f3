/* Inside the disk tier (see tier.h): the index, the file layer, and the state that the step thread and the tier's
 * thread share.
 *
 *   tier.c        open and close, the calls, the thread
 *   tier_index.c  which entries exist, in the order of last use; memory only
 *   tier_io.c     names; one file written or read
 *   tier_scan.c   from the directory to an index, at open
 *   tier_look.c   what others have changed in it since
 *
 * Slots of entries and loads are numbered from 1, and 0 is none: a region of zeros is an empty tier. */
#ifndef PI__TIER_IMPL_H
#define PI__TIER_IMPL_H

#include <dirent.h>
#include <pthread.h>
#include <sys/types.h>

#include "base/alloc.h"
#include "cache/tier.h"

enum {
    PI__TIER_PAGE = 4096,     /* files count in multiples of this */
    PI__TIER_PATH = 176,      /* bytes of the longest path below DIR, its end included */
    PI__TIER_ALIGN = 64,      /* where the data starts in a file, and images in the ring */
};

/* ------------------------------------------------------------------------------------------------------------ index */
enum { PI__TIER_LRU, PI__TIER_DIRTY, PI__TIER_LISTS };
enum { PI__TIER_SHARDS = 256 };

typedef struct pi__tier_name { /* of a file, in its space */
    pi__digest hash;    /* with group: which entry it is */
    uint64_t tenant;    /* whom cache_clear removes it for */
    int32_t group;      /* as given */
} pi__tier_name;

typedef struct pi__tier_entry {
    pi__tier_name name;
    int64_t used;       /* last use, ns since 1970; the file's modification time unless dirty */
    int32_t space;      /* index into pi__tier.space; 0: this model */
    uint32_t pages;     /* of disk, in PI__TIER_PAGE */
    int32_t stage;      /* with staged: index into pi__tier.stage */
    int32_t chain;      /* next in the hash bucket, or next free slot */
    bool staged;        /* not written yet */
    bool dirty;         /* on the list of those whose file must still get the time of last use, or be removed */
    bool doomed;        /* cleared: no longer in the hash table */
    bool seen;          /* by the look that runs, in its shard */
    struct { int32_t prev, next; } link[PI__TIER_LISTS]; /* neighbours: newer, older */
} pi__tier_entry;

typedef struct pi__tier_index {
    pi__tier_entry *entry;  /* [capacity + 1] */
    int32_t *bucket;        /* [n_buckets] first entry of each hash chain */
    uint32_t n_buckets;     /* a power of two */
    int32_t capacity;       /* entries at most */
    int32_t n_touched;      /* slots that were ever in use */
    int32_t free;           /* first free slot below that */
    struct { int32_t head, tail; } list[PI__TIER_LISTS]; /* most and least recently used */
    int32_t n_entries;      /* in use */
    int32_t n_own;          /* of them, of space 0 and findable */
    int32_t n_doomed;       /* of them, cleared */
    uint64_t n_pages;       /* of all entries */
    int64_t clock;          /* the latest time given out */
} pi__tier_index;

/* Slot of the entry of this model, or 0. */
int32_t pi__tier_find(const pi__tier_index *x, const pi__digest *hash, int32_t group);
/* A new entry, most recently used; 0: no slot is free. It must not be there. */
int32_t pi__tier_add(pi__tier_index *x, int32_t space, const pi__tier_name *name, uint32_t pages, int64_t used);
void pi__tier_erase(pi__tier_index *x, int32_t slot);
/* Most recently used from now on; becomes dirty unless it is staged. */
void pi__tier_use(pi__tier_index *x, int32_t slot);
/* The same where its file has that time already. */
void pi__tier_used(pi__tier_index *x, int32_t slot, int64_t used);
void pi__tier_set_dirty(pi__tier_index *x, int32_t slot, bool dirty);
/* It cannot be found any more and becomes dirty unless it is staged. */
void pi__tier_doom(pi__tier_index *x, int32_t slot);
/* The time now, later than every time before. */
int64_t pi__tier_tick(pi__tier_index *x);

/* ------------------------------------------------------------------------------------------------------------ files */
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
    PI__TIER_MISS,     /* a sound file of another entry with this hash */
    PI__TIER_GONE,     /* no file */
    PI__TIER_DAMAGED,  /* not what was written */
    PI__TIER_PASSING,  /* out of descriptors or the like: might work the next time */
    PI__TIER_FAILED,   /* a write that will not work the next time either; errno says why */
    PI__TIER_ADOPTED,  /* nothing was written: another process has written the same entry */
} pi__tier_result;

/* The identity of an entry: of a load, or of an image. */
typedef struct pi__tier_what {
    pi__digest fingerprint;
    pi__block_key key;
    int32_t group;
    const int32_t *tokens;
    int32_t n_tokens;
    size_t n_bytes;
} pi__tier_what;

/* Bytes in front of the data; and of the whole file, SIZE_MAX where that does not fit a size_t. */
size_t pi__tier_head_size(int32_t n_tokens);
size_t pi__tier_file_size(int32_t n_tokens, size_t n_bytes);
/* The path below DIR of an entry; of a shard alone; of the space alone. */
void pi__tier_path(char path[PI__TIER_PATH], const pi__digest *fingerprint, const pi__tier_name *name);
void pi__tier_shard_path(char path[PI__TIER_PATH], const pi__digest *fingerprint, uint32_t shard);
void pi__tier_space_path(char path[PI__TIER_PATH], const pi__digest *fingerprint);
static inline uint32_t pi__tier_shard_of(const pi__tier_name *name) { return name->hash.byte[0]; }
/* Exactly the names that the functions above write; false for all others. */
bool pi__tier_parse_entry(const char *text, pi__tier_name *name);
bool pi__tier_parse_space(const char *text, pi__digest *fingerprint);

/* Lays the entry out at image[pi__tier_file_size()]; the sums are left for pi__tier_write, on the other thread. */
void pi__tier_image(char *image, const pi__tier_what *w, const void *data);
/* Sums the image and writes it; used becomes the file's time. OK, ADOPTED, PASSING or FAILED. key: NULL without one, here and
 * below. */
pi__tier_result pi__tier_write(int dir_fd, const pi__mac_key *key, char *image, size_t size, int64_t used);
/* true: the image, sound so far, has the tokens and the length of w. */
bool pi__tier_same_entry(const char *image, const pi__tier_what *w);
/* Reads the data into dst, through head[head_bytes], which has room for w->n_tokens. OK, MISS, GONE, DAMAGED or
 * PASSING. */
pi__tier_result pi__tier_read(int dir_fd, const pi__mac_key *key, const pi__tier_what *w, char *head,
                              size_t head_bytes, void *dst);
/* Its size in pages and its time. GONE, PASSING, or DAMAGED: it is no file. */
pi__tier_result pi__tier_stat(int dir_fd, const char *path, uint32_t *pages, int64_t *used);
/* A directory below dir_fd to read; NULL with errno. */
DIR *pi__tier_read_dir(int dir_fd, const char *path);
/* OK when a file can be made and written where this fingerprint's files go; else FAILED with errno. */
pi__tier_result pi__tier_probe(int dir_fd, const pi__digest *fingerprint);
/* Removes a file, or with flags AT_REMOVEDIR an empty directory. */
bool pi__tier_unlink(int dir_fd, const char *path, int flags);
/* The file's modification time. GONE where there is no file. */
pi__tier_result pi__tier_set_time(int dir_fd, const char *path, int64_t used);
/* The directory with its parents, opened; -1 with errno. */
int pi__tier_open_dir(const char *dir);

/* ------------------------------------------------------------------------------------------------------------- tier */
typedef struct pi__tier_stage { /* an image in the ring */
    size_t off, size;  /* bytes */
    int32_t entry;     /* slot */
    bool ready;        /* it is complete */
} pi__tier_stage;

typedef enum pi__tier_load_state {
    PI__TIER_FREE,
    PI__TIER_QUEUED,
    PI__TIER_RUNNING, /* dst is being written */
    PI__TIER_DONE,
} pi__tier_load_state;

typedef struct pi__tier_load_slot {
    pi__block_key key;
    int32_t group;
    int32_t n_tokens;
    size_t n_bytes;
    void *dst;
    uint64_t tag;
    uint32_t round;             /* generation of this slot, so that ids are not used twice */
    int32_t next;               /* in the queue, or the next free slot */
    pi__tier_load_state state;
    bool cancelled;             /* not reported: becomes free when it leaves its queue */
    bool ok;                    /* with DONE */
} pi__tier_load_slot;

typedef struct pi__tier_queue { int32_t head, tail; } pi__tier_queue; /* of loads, by next */

struct pi__tier {
    /* set at open */
    pi__tier_config config;       /* without zeros; dir and key are not kept */
    pi__mac_key key;              /* with keyed */
    bool keyed;                   /* files carry MACs */
    char *dir;                    /* as given, for messages */
    char *region;                 /* all arrays below */
    size_t region_size;
    char *ring;                   /* [config.staging_bytes] images */
    pi__tier_stage *stage;        /* [n_stage] a circle: those in the ring, oldest first */
    pi__tier_load_slot *load;     /* [config.max_loads + 1] */
    int32_t *load_tokens;         /* [config.max_loads + 1, config.max_tokens] */
    char *head;                   /* [head_bytes] of the file that the tier's thread reads */
    size_t head_bytes;
    pi__digest *space;            /* [n_spaces] fingerprints seen in the directory; 0: this model */
    size_t n_spaces, cap_spaces;
    uint64_t limit_pages;
    int32_t n_stage;              /* capacity of stage */
    int dir_fd;
    struct { int64_t time, since; } shard[PI__TIER_SHARDS]; /* the tier's thread: its time at the last look, and when that
                                   * was first seen, monotonic ns */
    int64_t looked_at;            /* the tier's thread: when the last look ended, or open, monotonic ns */

    pthread_mutex_t lock;         /* of everything below */
    pthread_cond_t work;          /* the thread has something to do */
    pthread_cond_t idle;          /* a load is no longer running */
    pthread_t thread;
    bool thread_started;
    bool closing;
    int64_t close_at;             /* with closing: when to stop writing, monotonic ns */
    int64_t flush_at;             /* when to write times back, monotonic ns; 0: none are dirty */
    pi__tier_index index;
    int32_t stage_first;          /* oldest in stage */
    int32_t stage_count;
    uint64_t stage_pages;         /* of entries in it */
    pi__tier_queue queued, done;
    int32_t load_free;            /* first free load slot */
    bool told_damage;             /* logged once */
    uint64_t n_clears;            /* calls of clear */
    uint64_t looks_asked, looks_begun, looks_done; /* numbers of looks */
    pi__tier_stats stats;         /* the counters; the rest is filled in when asked */
};

/* Puts the index right with the files of this model. On the tier's thread, with the lock held; unlocks meanwhile. */
void pi__tier_look_again(pi__tier *t);
/* Fills the empty index from the directory, removes what is over the limit and what dead writers left. */
int pi__tier_scan(pi__tier *t, pi_error *err);

#endif
