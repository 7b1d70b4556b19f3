/* The disk tier: opening and closing, the calls of the step thread, and the tier's thread (see tier.h).
 *
 * One lock covers all shared state and is never held across a system call on a file. The caller of put writes the
 * entry's image into the ring without the lock, while stage.ready is false. After that the image belongs to the tier's
 * thread. Only the tier's thread frees ring space, removes entries and ends loads. So entries that it has looked up
 * stay valid while it reads or writes files without the lock. Memory: one region at open. */
#include "cache/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/trust.h"
#include "cache/tier_impl.h"

enum { MAX_ENTRIES = 1 << 20, MIN_STAGE = 16, MAX_STAGE = 4096, FLUSH_MS = 1000, RESCAN_MS = 2000, MAX_RESCUES = 64 };

static uint64_t pages_of(size_t size) { return ((uint64_t) size + PI__TIER_PAGE - 1) / PI__TIER_PAGE; }

static const pi__mac_key *key_of(const pi__tier *t) { return t->keyed ? &t->key : NULL; }

/* ----------------------------------------------------------------------------------------------- the tier's thread */
static void push(pi__tier *t, pi__tier_queue *q, int32_t slot)
{
    t->load[slot].next = 0;
    if (q->tail) t->load[q->tail].next = slot;
    else q->head = slot;
    q->tail = slot;
}

static int32_t pop(pi__tier *t, pi__tier_queue *q)
{
    int32_t slot = q->head;
    q->head = t->load[slot].next;
    if (!q->head) q->tail = 0;
    return slot;
}

static int32_t *load_tokens(const pi__tier *t, int32_t slot)
{
    return t->load_tokens + (size_t) slot * (size_t) t->config.max_tokens;
}

static void free_load(pi__tier *t, int32_t slot)
{
    pi__tier_load_slot *l = &t->load[slot];
    *l = (pi__tier_load_slot) {.round = l->round + 1, .next = t->load_free};
    t->load_free = slot;
}

/* Removes the entry from the index, and its file if unlink_file is true. The entry counts towards the limit until its
 * file is removed. Releases the lock while the file is removed. */
static void remove_entry(pi__tier *t, int32_t slot, bool unlink_file)
{
    if (unlink_file) {
        const pi__tier_entry *e = &t->index.entry[slot];
        char path[PI__TIER_PATH];
        pi__tier_path(path, &t->space[e->space], &e->name);
        pi__tier_mark_cleared(&t->index, slot); /* pi__tier_find no longer returns the entry */
        pthread_mutex_unlock(&t->lock);
        (void) pi__tier_unlink(t->dir_fd, path, 0);
        pthread_mutex_lock(&t->lock);
    }
    pi__tier_erase(&t->index, slot);
}

/* Returns true if the entry was used after entry.used: by another process (its file's time is later), or by this
 * process during the check. Releases the lock while the file's time is read. */
static bool used_again(pi__tier *t, int32_t slot)
{
    const pi__tier_entry *e = &t->index.entry[slot];
    const int64_t before = e->used;
    char path[PI__TIER_PATH];
    uint32_t pages;
    int64_t used;
    if (e->dirty) return false;
    pi__tier_path(path, &t->space[e->space], &e->name);
    pthread_mutex_unlock(&t->lock);
    pi__tier_result rc = pi__tier_stat(t->dir_fd, path, &pages, &used);
    pthread_mutex_lock(&t->lock);
    if (e->used != before) return true;
    if (rc || used <= e->used) return false;
    pi__tier_used(&t->index, slot, used);
    return true;
}

/* Evicts the least recently used files until the limits on pages and entries hold. Staged entries already count towards
 * the limits. */
static void evict(pi__tier *t)
{
    pi__tier_index *x = &t->index;
    for (int rescued = 0; x->n_pages > t->limit_pages || x->n_entries > x->capacity - t->n_stage;) {
        int32_t victim = x->list[PI__TIER_LRU].tail;
        while (victim && x->entry[victim].staged) victim = x->entry[victim].link[PI__TIER_LRU].prev;
        if (!victim) return;
        if (rescued < MAX_RESCUES && used_again(t, victim)) {
            rescued++;
            continue;
        }
        t->stats.evicted++;
        remove_entry(t, victim, true);
    }
}

static void write_error(pi__tier *t, int e)
{
    t->stats.write_errors++;
    if (!t->stats.writable) return;
    t->stats.writable = false;
    pthread_mutex_unlock(&t->lock);
    pi__logf(&t->config.log, PI_LOG_WARN, "prefix cache: cannot write to %s: %s: it is read-only from now on", t->dir,
             strerror(e));
    pthread_mutex_lock(&t->lock);
}

/* Rescans the directory, on behalf of all requests made so far. Releases the lock while files are read. */
static void rescan(pi__tier *t)
{
    const uint64_t number = t->rescans_begun = t->rescans_requested;
    pi__tier_rescan_folders(t);
    const bool awaited = t->rescans_done < number;
    t->rescans_done = number;
    t->rescanned_at = pi__now_ns();
    if (!awaited || !t->config.wake) return;
    pthread_mutex_unlock(&t->lock);
    t->config.wake(t->config.wake_ud);
    pthread_mutex_lock(&t->lock);
}

/* Writes the oldest staged entry to its file. Drops the entry if the tier is not writable, if it was cleared, or if
 * late is true (close_ms has passed). */
static void write_staged(pi__tier *t, bool late)
{
    pi__tier_stage *s = &t->stage[t->stage_first];
    pi__tier_entry *e = &t->index.entry[s->entry];
    pi__tier_result rc = PI__TIER_PASSING;
    int64_t used = e->used;
    if (t->stats.writable && !late && !e->cleared) {
        /* files of other processes count towards the limit */
        if (pi__now_ns() - t->rescanned_at > (int64_t) RESCAN_MS * 1000000 && !t->closing) rescan(t);
        evict(t);
        used = e->used;
        pthread_mutex_unlock(&t->lock);
        errno = 0;
        rc = pi__tier_write(t->dir_fd, key_of(t), t->ring + s->off, s->size, used);
        int error = errno;
        pthread_mutex_lock(&t->lock);
        if (rc == PI__TIER_FAILED) write_error(t, error);
    }
    t->stage_first = (t->stage_first + 1) % t->n_stage;
    t->stage_count--;
    t->stage_pages -= e->pages;
    if (rc == PI__TIER_OK || rc == PI__TIER_ADOPTED) {
        t->stats.writes += rc == PI__TIER_OK;
        e->staged = false;
        pi__tier_set_dirty(&t->index, s->entry, e->cleared || e->used != used);
    } else {
        t->stats.dropped += !e->cleared;
        remove_entry(t, s->entry, false);
    }
}

/* Loads a staged entry from its image in the ring; its file does not exist yet. */
static pi__tier_result copy_staged(const char *image, const pi__tier_entry_id *w, void *dst)
{
    if (!pi__tier_same_entry(image, w)) return PI__TIER_MISS;
    if (w->n_bytes) memcpy(dst, image + pi__tier_head_size(w->n_tokens), w->n_bytes);
    return PI__TIER_OK;
}

static void damaged(pi__tier *t, int32_t entry)
{
    char path[PI__TIER_PATH];
    const pi__tier_entry *e = &t->index.entry[entry];
    pi__tier_path(path, &t->space[0], &e->name);
    int level = t->told_damage ? PI_LOG_DEBUG : PI_LOG_WARN;
    t->told_damage = true;
    t->stats.damaged++;
    remove_entry(t, entry, true);
    pthread_mutex_unlock(&t->lock);
    pi__logf(&t->config.log, level, "prefix cache: removed %s/%s, which was damaged", t->dir, path);
    pthread_mutex_lock(&t->lock);
}

/* Executes the load in this slot. Returns true on a hit. Releases the lock while the entry is read. */
static bool read_entry(pi__tier *t, int32_t slot)
{
    const pi__tier_load_slot *l = &t->load[slot];
    const pi__tier_entry_id w = {t->space[0], l->key, l->group, load_tokens(t, slot), l->n_tokens, l->n_bytes};
    void *dst = l->dst;
    int32_t entry = pi__tier_find(&t->index, &w.key.hash, w.group);
    if (!entry) return false;
    const pi__tier_stage *s = t->index.entry[entry].staged ? &t->stage[t->index.entry[entry].stage] : NULL;
    if (s && !s->ready) return false;
    pthread_mutex_unlock(&t->lock);
    pi__tier_result rc = s ? copy_staged(t->ring + s->off, &w, dst)
                           : pi__tier_read(t->dir_fd, key_of(t), &w, t->head, t->head_bytes, dst);
    pthread_mutex_lock(&t->lock);
    if (rc == PI__TIER_OK) pi__tier_use(&t->index, entry);
    if (rc == PI__TIER_GONE) remove_entry(t, entry, false);
    if (rc == PI__TIER_DAMAGED) damaged(t, entry);
    return rc == PI__TIER_OK;
}

static void serve_load(pi__tier *t)
{
    int32_t slot = pop(t, &t->queued);
    pi__tier_load_slot *l = &t->load[slot];
    if (l->cancelled) {
        free_load(t, slot);
        return;
    }
    l->state = PI__TIER_RUNNING;
    bool ok = read_entry(t, slot);
    l->ok = ok;
    l->state = PI__TIER_DONE;
    if (ok) t->stats.hits++;
    else t->stats.misses++;
    push(t, &t->done, slot);
    pthread_cond_broadcast(&t->idle);
    if (!t->config.wake) return;
    pthread_mutex_unlock(&t->lock);
    t->config.wake(t->config.wake_ud);
    pthread_mutex_lock(&t->lock);
}

/* Writes the time of last use of one dirty entry to its file, or removes the file of a cleared entry. */
static void flush_one(pi__tier *t)
{
    int32_t slot = t->index.list[PI__TIER_DIRTY].tail;
    const pi__tier_entry e = t->index.entry[slot];
    pi__tier_set_dirty(&t->index, slot, false);
    if (!t->index.list[PI__TIER_DIRTY].tail) t->flush_at = 0;
    if (e.cleared) {
        remove_entry(t, slot, true);
        return;
    }
    pthread_mutex_unlock(&t->lock);
    char path[PI__TIER_PATH];
    pi__tier_path(path, &t->space[e.space], &e.name);
    pi__tier_result rc = pi__tier_set_time(t->dir_fd, path, e.used);
    pthread_mutex_lock(&t->lock);
    if (rc == PI__TIER_GONE) remove_entry(t, slot, false);
}

static void wait_for_work(pi__tier *t)
{
    if (!t->flush_at) {
        pthread_cond_wait(&t->work, &t->lock);
        return;
    }
    const struct timespec until = {(time_t) (t->flush_at / 1000000000), (long) (t->flush_at % 1000000000)};
    pthread_cond_timedwait(&t->work, &t->lock, &until);
}

/* Loads precede writes, since requests wait for loads. Removal of cleared entries precedes both, so that a new file
 * with the same name is not removed. A cleared entry that is still staged is not on the DIRTY list: write_staged drops
 * it. */
static void *tier_thread(void *arg)
{
    pi__tier *t = arg;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        bool dirty = t->index.list[PI__TIER_DIRTY].tail != 0, late = t->closing && pi__now_ns() >= t->close_at;
        if (!dirty) t->flush_at = 0;
        else if (!t->flush_at) t->flush_at = pi__now_ns() + (int64_t) FLUSH_MS * 1000000;
        if (t->index.n_cleared && dirty) flush_one(t);
        else if (t->queued.head && !t->closing) serve_load(t);
        else if (t->rescans_begun < t->rescans_requested && !t->closing) rescan(t);
        else if (t->stage_count && t->stage[t->stage_first].ready) write_staged(t, late);
        else if (dirty && !late && (t->closing || pi__now_ns() >= t->flush_at)) flush_one(t);
        else if (t->closing) break;
        else wait_for_work(t);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* -------------------------------------------------------------------------------------------------- open and close */
/* Checks the configuration and replaces zeros by defaults. */
static int check_config(pi__tier_config *c, pi_error *err)
{
    if (!c->dir || !c->dir[0]) return pi__fail(err, PI_EINVAL,
                                               "prefix cache: no directory is given: set prefix-cache-dir");
    if (!c->staging_bytes) c->staging_bytes = (size_t) 64 << 20;
    if (!c->max_tokens) c->max_tokens = 256;
    if (!c->max_loads) c->max_loads = 256;
    if (!c->close_ms) c->close_ms = 2000;
    if (c->limit_bytes < PI__TIER_PAGE)
        return pi__fail(err, PI_EINVAL, "prefix cache: the limit of %llu bytes on disk is too small: raise it",
                        (unsigned long long) c->limit_bytes);
    if (c->max_tokens < 0 || c->max_loads < 0 || c->max_loads > 1 << 20 || c->close_ms < 0)
        return pi__fail(err, PI_EINVAL, "prefix cache: a count is out of range");
    return PI_OK;
}

/* Takes t's arrays from arena a. If the arena has no memory, only adds up their bytes in a->used. The ring is last,
 * because often only its first pages are touched. */
static void lay_out(pi__tier *t, pi__arena *a)
{
    const pi__tier_config *c = &t->config;
    size_t loads = (size_t) c->max_loads + 1, tokens;
    pi__tier_index *x = &t->index;
    t->limit_pages = c->limit_bytes / PI__TIER_PAGE;
    size_t n_stage = c->staging_bytes / PI__TIER_PAGE;
    t->n_stage = n_stage < MIN_STAGE ? MIN_STAGE : n_stage > MAX_STAGE ? MAX_STAGE : (int32_t) n_stage;
    x->capacity = (t->limit_pages < MAX_ENTRIES ? (int32_t) t->limit_pages : MAX_ENTRIES) + t->n_stage;
    x->n_buckets = 16;
    while (x->n_buckets < (uint32_t) x->capacity) x->n_buckets *= 2;
    if (!pi__mul_ok(loads * sizeof(int32_t), (size_t) c->max_tokens, &tokens)) tokens = SIZE_MAX;
    x->entry = pi__arena_take(a, ((size_t) x->capacity + 1) * sizeof *x->entry);
    x->bucket = pi__arena_take(a, x->n_buckets * sizeof *x->bucket);
    t->stage = pi__arena_take(a, (size_t) t->n_stage * sizeof *t->stage);
    t->load = pi__arena_take(a, loads * sizeof *t->load);
    t->load_tokens = pi__arena_take(a, tokens);
    t->head_bytes = pi__tier_head_size(c->max_tokens);
    t->head = pi__arena_take(a, t->head_bytes);
    t->ring = pi__arena_take(a, c->staging_bytes);
}

size_t pi__tier_memory(const pi__tier_config *config)
{
    pi__tier t = {.config = *config};
    pi__arena a = {0};
    if (check_config(&t.config, NULL)) return 0;
    lay_out(&t, &a);
    return a.used == SIZE_MAX ? 0 : a.used;
}

static bool start_thread(pi__tier *t) { return t->thread_started = pi__thread_start(&t->thread, tier_thread, t); }

/* Returns true if errno value e means a full disk: the directory can still be read. */
static bool is_full(int e) { return e == ENOSPC || e == EDQUOT || e == EFBIG; }

/* Checks that files can be written. A full disk is no error: *full is set. The caller then repeats the check after the
 * scan (scanned true), which removes files over the limit. If the disk is still full, the tier becomes read-only. */
static int probe(pi__tier *t, bool scanned, bool *full, pi_error *err)
{
    *full = false;
    if (pi__tier_probe(t->dir_fd, &t->space[0]) == PI__TIER_OK) return PI_OK;
    const int e = errno;
    *full = is_full(e);
    if (!*full)
        return pi__fail(err, PI_EIO, "prefix cache: cannot write in the directory %.140s: %s", t->dir, strerror(e));
    if (!scanned) return PI_OK;
    pthread_mutex_lock(&t->lock);
    write_error(t, e);
    pthread_mutex_unlock(&t->lock);
    return PI_OK;
}

/* Returns the fingerprint of this model's folder. With a key, the fingerprint also depends on the key: files written
 * with another key, or without one, are in another folder. */
static pi__digest space_of(const pi__tier *t)
{
    static const char what[] = "prefix directory";
    pi__hasher h;
    if (!t->keyed) return t->config.fingerprint;
    pi__mac_begin(&h, &t->key);
    pi__sha256_add(&h, what, sizeof what);
    const pi__digest id = pi__mac_end(&h, &t->key);
    return pi__hash_chain(PI__HASH_KEYED_SPACE, &t->config.fingerprint, &id, sizeof id);
}

static int open_files(pi__tier *t, pi_error *err)
{
    bool full;
    const char *dir = t->config.dir;
    t->dir = pi__strdup(dir);
    t->cap_spaces = 8;
    t->space = pi__calloc(t->cap_spaces, sizeof *t->space);
    if (!t->dir || !t->space) return pi__fail_mem(err, "the prefix cache");
    t->config.dir = NULL;
    t->space[t->n_spaces++] = space_of(t);
    t->dir_fd = pi__tier_open_dir(t->dir);
    if (t->dir_fd < 0)
        return pi__fail(err, PI_EIO, "prefix cache: cannot open the directory %.140s: %s", t->dir, strerror(errno));
    int rc = t->keyed ? PI_OK : pi__trust_dir(t->dir_fd, t->dir, "prefix-cache-dir", "set prefix-cache-key", err);
    if (rc || t->config.read_only) return rc ? rc : pi__tier_scan(t, err);
    rc = probe(t, false, &full, err);
    if (!rc) rc = pi__tier_scan(t, err);
    return rc || !full ? rc : probe(t, true, &full, err);
}

int pi__tier_open(pi__tier **out, const pi__tier_config *config, pi_error *err)
{
    *out = NULL;
    pi__tier *t = pi__calloc(1, sizeof *t);
    if (!t) return pi__fail_mem(err, "the prefix cache");
    t->config = *config;
    t->keyed = config->key != NULL;
    if (t->keyed) t->key = *config->key;
    t->config.key = NULL;
    t->dir_fd = -1;
    pthread_mutex_init(&t->lock, NULL);
    (void) pi__cond_init(&t->work); /* fails on no known system */
    pthread_cond_init(&t->idle, NULL);

    int rc = check_config(&t->config, err);
    if (rc) goto out;
    pi__arena a = {0};
    lay_out(t, &a);
    t->region_size = a.used;
    t->region = a.used == SIZE_MAX ? NULL : pi__map(a.used);
    if (!t->region) {
        rc = pi__fail_mem(err, "the prefix cache's staging buffer");
        goto out;
    }
    a = (pi__arena) {.base = t->region, .size = t->region_size};
    lay_out(t, &a);
    for (int32_t i = t->config.max_loads; i > 0; i--) free_load(t, i);
    t->stats.writable = !t->config.read_only;
    rc = open_files(t, err);
    t->rescanned_at = pi__now_ns();
    if (rc) goto out;
    if (!start_thread(t)) rc = pi__fail(err, PI_ENOMEM, "cannot start the prefix cache's thread");
out:
    if (rc) {
        pi__tier_close(t);
        return rc;
    }
    pi__tier_stats s;
    pi__tier_get_stats(t, &s);
    pi__logf(&t->config.log, PI_LOG_INFO, "prefix cache: %s holds %lld entries of this model; %.1f of %.1f MiB used",
             t->dir, (long long) s.entries, (double) s.bytes / 1048576, (double) config->limit_bytes / 1048576);
    *out = t;
    return PI_OK;
}

void pi__tier_close(pi__tier *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->closing = true;
    t->close_at = pi__now_ns() + (int64_t) t->config.close_ms * 1000000;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
    if (t->thread_started) pthread_join(t->thread, NULL);
    if (t->dir_fd >= 0) (void) close(t->dir_fd);
    pthread_cond_destroy(&t->idle);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    pi__unmap(t->region, t->region_size);
    pi__free(t->space);
    pi__free(t->dir);
    pi__free(t);
}

/* ----------------------------------------------------------------------------------------------------------- calls */
bool pi__tier_has(pi__tier *t, const pi__digest *hash, int32_t group)
{
    pthread_mutex_lock(&t->lock);
    bool has = pi__tier_find(&t->index, hash, group) != 0;
    pthread_mutex_unlock(&t->lock);
    return has;
}

uint64_t pi__tier_rescan(pi__tier *t)
{
    pthread_mutex_lock(&t->lock);
    if (t->rescans_requested == t->rescans_begun) t->rescans_requested++;
    const uint64_t number = t->rescans_requested;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
    return number;
}

bool pi__tier_rescanned(pi__tier *t, uint64_t n)
{
    pthread_mutex_lock(&t->lock);
    const bool done = t->rescans_done >= n;
    pthread_mutex_unlock(&t->lock);
    return done;
}

/* Marks an entry as used. Signals the tier's thread if this is the first dirty entry: without dirty entries the thread
 * waits without a timeout. */
static void use(pi__tier *t, int32_t entry)
{
    bool was_dirty = t->index.list[PI__TIER_DIRTY].tail != 0;
    pi__tier_use(&t->index, entry);
    if (!was_dirty && t->index.list[PI__TIER_DIRTY].tail) pthread_cond_signal(&t->work);
}

void pi__tier_touch(pi__tier *t, const pi__digest *hash, int32_t group)
{
    pthread_mutex_lock(&t->lock);
    int32_t entry = pi__tier_find(&t->index, hash, group);
    if (entry) use(t, entry);
    pthread_mutex_unlock(&t->lock);
}

/* Returns the ring offset for an image of `size` bytes; SIZE_MAX = no free range is large enough. An image is
 * contiguous, and images are in the order of t->stage. So the used space is one range, or two ranges if it wraps
 * around. */
static size_t find_room(const pi__tier *t, size_t size)
{
    size_t all = t->config.staging_bytes;
    if (!t->stage_count) return size <= all ? 0 : SIZE_MAX;
    if (t->stage_count == t->n_stage) return SIZE_MAX;
    const pi__tier_stage *last = &t->stage[(t->stage_first + t->stage_count - 1) % t->n_stage];
    size_t first = t->stage[t->stage_first].off, end = last->off + last->size;
    end = (end + PI__TIER_ALIGN - 1) / PI__TIER_ALIGN * PI__TIER_ALIGN;
    if (last->off < first) return end <= first && first - end >= size ? end : SIZE_MAX;
    if (end <= all && all - end >= size) return end;
    return first >= size ? 0 : SIZE_MAX;
}

/* Reserves space in the ring and an entry in the index. Returns the index into t->stage; -1 = no space, or the tier is
 * not writable. */
static int32_t reserve(pi__tier *t, const pi__tier_name *name, size_t size)
{
    uint64_t pages = pages_of(size);
    if (!t->stats.writable || t->closing || pages > UINT32_MAX || t->stage_pages + pages > t->limit_pages) return -1;
    size_t off = find_room(t, size);
    if (off == SIZE_MAX) return -1;
    int32_t entry = pi__tier_add(&t->index, 0, name, (uint32_t) pages, pi__tier_tick(&t->index));
    if (!entry) return -1;
    int32_t at = (t->stage_first + t->stage_count) % t->n_stage;
    t->stage[at] = (pi__tier_stage) {off, size, entry, false};
    t->stage_count++;
    t->stage_pages += pages;
    t->index.entry[entry].staged = true;
    t->index.entry[entry].stage = at;
    return at;
}

bool pi__tier_put(pi__tier *t, const pi__block_key *key, int32_t group, const int32_t *tokens, int32_t n_tokens,
                  const void *data, size_t n_bytes)
{
    const pi__tier_name name = {key->hash, key->tenant, group};
    bool fits = n_tokens >= 0 && n_tokens <= t->config.max_tokens;
    size_t size = fits ? pi__tier_file_size(n_tokens, n_bytes) : SIZE_MAX;
    pthread_mutex_lock(&t->lock);
    int32_t entry = pi__tier_find(&t->index, &key->hash, group);
    if (entry) use(t, entry);
    int32_t at = entry || size == SIZE_MAX ? -1 : reserve(t, &name, size);
    t->stats.dropped += !entry && at < 0;
    pthread_mutex_unlock(&t->lock);
    if (at < 0) return entry != 0;

    const pi__tier_entry_id w = {t->space[0], *key, group, tokens, n_tokens, n_bytes};
    pi__tier_image(t->ring + t->stage[at].off, &w, data);
    pthread_mutex_lock(&t->lock);
    t->stage[at].ready = true;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
    return true;
}

uint64_t pi__tier_load(pi__tier *t, const pi__block_key *key, int32_t group, const int32_t *tokens, int32_t n_tokens,
                       void *dst, size_t n_bytes, uint64_t tag)
{
    uint64_t id = 0;
    bool fits = n_tokens >= 0 && n_tokens <= t->config.max_tokens;
    pthread_mutex_lock(&t->lock);
    int32_t slot = t->load_free;
    if (fits && slot && pi__tier_find(&t->index, &key->hash, group)) {
        pi__tier_load_slot *l = &t->load[slot];
        t->load_free = l->next;
        *l = (pi__tier_load_slot) {.key = *key, .group = group, .n_tokens = n_tokens, .n_bytes = n_bytes, .dst = dst,
                                   .tag = tag, .round = l->round, .state = PI__TIER_QUEUED};
        if (n_tokens)
            memcpy(load_tokens(t, slot), tokens, (size_t) n_tokens * sizeof *tokens);
        push(t, &t->queued, slot);
        pthread_cond_signal(&t->work);
        id = (uint64_t) l->round << 32 | (uint32_t) slot;
    } else {
        t->stats.misses++;
    }
    pthread_mutex_unlock(&t->lock);
    return id;
}

int32_t pi__tier_poll(pi__tier *t, pi__tier_done *out, int32_t n)
{
    int32_t got = 0;
    pthread_mutex_lock(&t->lock);
    while (got < n && t->done.head) {
        int32_t slot = pop(t, &t->done);
        const pi__tier_load_slot *l = &t->load[slot];
        if (!l->cancelled) out[got++] = (pi__tier_done) {(uint64_t) l->round << 32 | (uint32_t) slot, l->tag, l->ok};
        free_load(t, slot);
    }
    pthread_mutex_unlock(&t->lock);
    return got;
}

void pi__tier_cancel(pi__tier *t, uint64_t id)
{
    uint32_t slot = (uint32_t) id, round = (uint32_t) (id >> 32);
    if (!slot || slot > (uint32_t) t->config.max_loads) return;
    pthread_mutex_lock(&t->lock);
    pi__tier_load_slot *l = &t->load[slot];
    while (l->round == round && l->state == PI__TIER_RUNNING) pthread_cond_wait(&t->idle, &t->lock);
    if (l->round == round && l->state != PI__TIER_FREE) l->cancelled = true;
    pthread_mutex_unlock(&t->lock);
}

void pi__tier_clear(pi__tier *t, const uint64_t *tenant)
{
    pthread_mutex_lock(&t->lock);
    t->n_clears++;
    for (int32_t i = t->index.list[PI__TIER_LRU].head; i; i = t->index.entry[i].link[PI__TIER_LRU].next)
        if (t->index.entry[i].space == 0 && (!tenant || t->index.entry[i].name.tenant == *tenant))
            pi__tier_mark_cleared(&t->index, i);
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

void pi__tier_get_stats(pi__tier *t, pi__tier_stats *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->stats;
    out->entries = t->index.n_own;
    out->bytes = (int64_t) (t->index.n_pages * PI__TIER_PAGE);
    out->staged = t->stage_count;
    pthread_mutex_unlock(&t->lock);
}
