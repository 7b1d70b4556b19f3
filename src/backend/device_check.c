/* The check of a device backend's functions (see pi__device_fns and pi__device_opt). No memory, any thread. */
#include <stddef.h>
#include <string.h>

#include "backend/device.h"
#include "base/error.h"

typedef struct fn {
    const char *name;
    size_t at; /* byte offset of the function pointer in the struct */
} fn;

#define FN(name) {#name, offsetof(pi__device_fns, name)}
static const fn obligatory[] = {
    FN(destroy), FN(describe), FN(n_threads), FN(alloc), FN(free), FN(commit), FN(trim), FN(host_alloc), FN(host_free),
    FN(upload), FN(download), FN(weight_size), FN(weight_load), FN(kv_bytes), FN(state_bytes), FN(snapshot_bytes),
    FN(scratch_bytes), FN(reserve), FN(begin), FN(finish),
};
#undef FN
enum { N_OBLIGATORY = sizeof obligatory / sizeof *obligatory };
_Static_assert(N_OBLIGATORY * sizeof(void (*)(void)) == sizeof(pi__device_fns), "a function is missing in the list");

#define FN(name) {#name, offsetof(pi__device_opt, name)}
/* Groups of optional functions: all of a group or none. */
static const fn groups[][6] = {
    {FN(arena_alloc), FN(arena_free), FN(arena_map), FN(arena_unmap)},
    {FN(arena_map_host), FN(slots_bytes)},
    {FN(arena_share), FN(arena_adopt)},
    {FN(copy_out), FN(copy_in), FN(copies), FN(pin), FN(unpin)},
    {FN(mark), FN(wait)},
    {FN(follow), FN(feed)},
    {FN(graph_lookup), FN(graph_segment), FN(make_graph), FN(end_capture), FN(graph_reset)},
};
#undef FN
enum { N_GROUPS = sizeof groups / sizeof *groups, MAX_GROUP = sizeof groups[0] / sizeof groups[0][0] };

static bool has(const void *fns, const fn *f)
{
    void (*p)(void);
    memcpy(&p, (const char *) fns + f->at, sizeof p);
    return p != NULL;
}

static int check_group(const pi__backend *be, const fn *group, pi_error *err)
{
    for (int i = 1; i < MAX_GROUP && group[i].name; i++)
        if (has(be->opt, &group[i]) != has(be->opt, &group[0]))
            return pi__fail(err, PI_EINTERNAL, "device backend: %s and %s: provide both, or neither", group[0].name,
                            group[i].name);
    return PI_OK;
}

/* Checks the functions and properties that require other functions. */
static int check_requirements(const pi__backend *be, pi_error *err)
{
    const pi__device_opt *o = be->opt;
    const struct { bool set, met; const char *text; } rules[] = {
        {be->page != 0, o->arena_alloc, "a page requires arena_alloc"},
        {be->exports, o->arena_share, "exports requires arena_share"},
        {o->draw, o->mark, "draw requires mark"},
        {o->follow, o->mark && o->draw && o->graph_segment, "follow requires mark, draw and graph_segment"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].set && !rules[i].met) return pi__fail(err, PI_EINTERNAL, "device backend: %s", rules[i].text);
    return PI_OK;
}

int pi__device_check(const pi__backend *be, pi_error *err)
{
    if (!be->dev || !be->opt || !be->ops) return pi__fail(err, PI_EINTERNAL, "device backend: set dev, opt and ops");
    int rc = PI_OK;
    for (int i = 0; i < N_OBLIGATORY && !rc; i++)
        if (!has(be->dev, &obligatory[i]))
            rc = pi__fail(err, PI_EINTERNAL, "device backend: provide %s, as every backend does", obligatory[i].name);
    for (int i = 0; i < N_GROUPS && !rc; i++) rc = check_group(be, groups[i], err);
    return rc ? rc : check_requirements(be, err);
}
