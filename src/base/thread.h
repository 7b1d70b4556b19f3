/* Threads of the library. */
#ifndef PI__THREAD_H
#define PI__THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts fn(arg) on a thread that takes no signals: they are for the threads of the program. false: there can be no more
 * threads. Any thread. */
bool pi__thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

#endif
