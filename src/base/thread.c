/* Threads of the library (see thread.h). */
#include "base/thread.h"

#include <signal.h>

static const size_t min_stack_bytes = (size_t) 8 << 20;

static int create(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    size_t size = 0;
    int rc = pthread_attr_init(&attr);
    if (rc) return rc;
    rc = pthread_attr_getstacksize(&attr, &size);
    if (!rc && size < min_stack_bytes) rc = pthread_attr_setstacksize(&attr, min_stack_bytes);
    if (!rc) rc = pthread_create(thread, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return rc;
}

int pi__thread_create(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int rc = create(thread, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

bool pi__thread_start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    return !pi__thread_create(thread, fn, arg);
}
