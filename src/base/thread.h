/* Threads of the library. */
#ifndef PI__THREAD_H
#define PI__THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts fn(arg) on a thread with all signals blocked: signals go to the program's threads. false = no thread could
 * be started. Any thread. */
bool pi__thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

#endif
