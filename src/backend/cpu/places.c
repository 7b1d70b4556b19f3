/* NUMA nodes and priorities on Linux (see places.h): /sys/devices/system/node, nice values of threads, and scheduling
 * policies. */
#include "backend/cpu/places.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sets *out to the CPUs of a list like "0-3,8-11" in the file `path`. Returns false if the file cannot be read or
 * parsed. */
static bool read_list(const char *path, cpu_set_t *out)
{
    char text[4096];
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    CPU_ZERO(out);
    for (char *p = text; *p && *p != '\n';) {
        char *end;
        const long lo = strtol(p, &end, 10);
        if (end == p) return false;
        const long hi = *end == '-' ? strtol(end + 1, &end, 10) : lo;
        for (long i = lo; i >= 0 && i <= hi && i < CPU_SETSIZE; i++) CPU_SET((int) i, out);
        p = *end == ',' ? end + 1 : end;
        if (p == end && *p && *p != '\n') return false;
    }
    return true;
}

int32_t pi__numa_nodes(const char *root, cpu_set_t *node, int32_t max)
{
    cpu_set_t allowed, set;
    int32_t n = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 0;
    for (int i = 0; i < PI__MAX_NODES && n < max; i++) { /* node numbers may have gaps */
        char path[512];
        snprintf(path, sizeof path, "%s/node%d/cpulist", root, i);
        if (!read_list(path, &set)) continue;
        CPU_AND(&set, &set, &allowed);
        if (CPU_COUNT(&set)) node[n++] = set;
    }
    return n;
}

static pid_t thread_id(void) { return (pid_t) syscall(SYS_gettid); }

bool pi__prio_set(int prio)
{
    static const int nice_of[] = {10, 0, -5, -10};
    if (prio >= 3) {
        const struct sched_param p = {.sched_priority = sched_get_priority_min(SCHED_RR)};
        return !sched_setscheduler(thread_id(), SCHED_RR, &p);
    }
    return !setpriority(PRIO_PROCESS, (id_t) thread_id(), nice_of[prio < -1 ? 0 : prio + 1]);
}

bool pi__prio_allowed(int prio)
{
    if (prio <= 0) return true; /* lowering the priority is always allowed */
    const struct sched_param normal = {0};
    const int before = getpriority(PRIO_PROCESS, (id_t) thread_id()), policy = sched_getscheduler(thread_id());
    if (policy != SCHED_OTHER || !pi__prio_set(prio)) return policy == SCHED_RR || policy == SCHED_FIFO;
    if (prio >= 3) sched_setscheduler(thread_id(), SCHED_OTHER, &normal);
    else setpriority(PRIO_PROCESS, (id_t) thread_id(), before);
    return true;
}
