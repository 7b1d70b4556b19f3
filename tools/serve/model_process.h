/* The process of a model or of a download, as the front end sees it (supervised.h is a model's side): start, lines of
 * standard output and of the log, commands, signals, and its end. The end is reported after all lines.
 *
 * Memory: one line of each stream, limited. Runs on the loop's thread. */
#ifndef PAGEDINFER_SERVE_MODEL_PROCESS_H
#define PAGEDINFER_SERVE_MODEL_PROCESS_H

#include <stdint.h>
#include <uv.h>

typedef struct model_process model_process;

typedef struct process_events {
    void (*on_line)(void *ud, const char *line); /* a line of standard output */
    void (*on_log)(void *ud, const char *line);  /* a line of standard error */
    /* The process has ended with an exit status, or by a signal if signal != 0. It is freed after this call. */
    void (*on_exit)(void *ud, int status, int signal);
    void *ud;
} process_events;

/* Starts `pagedinfer COMMAND --config ini`; command: "serve" or "pull". The process has its own session: signals of a
 * terminal do not reach it. If the result is NULL, *rc is a negative libuv error. */
model_process *model_process_start(uv_loop_t *loop, const char *command, const char *ini,
                                   const process_events *events, int *rc);
/* Sends a command, without its newline. */
void model_process_say(model_process *p, const char *command);
void model_process_signal(model_process *p, int signal);

#endif
