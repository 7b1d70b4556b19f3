/* Threads of the library. */
#ifndef PI__THREAD_H
#define PI__THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts fn(arg) on a thread with all signals blocked: signals go to the program's threads. The stack has at least
 * 8 MiB, glibc's default; musl's is 128 KiB. Returns 0 or an error number. Any thread. */
int pi__thread_create(pthread_t *thread, void *(*fn)(void *), void *arg);

/* pi__thread_create without the error number: false = no thread could be started. */
bool pi__thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

#endif
