/* The interface of the library to its plug-in over MPI, libpagedinfer-mpi.so (plugin.c), which is loaded when processes are
 * to be joined: so the library itself needs no MPI. One function is exported, pi_mpi_plugin, which gives this table.
 *
 * All calls from one thread at a time. ms, and false: as of pi__ranks_fns. */
#ifndef PI__MPI_PLUGIN_H
#define PI__MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PI__MPI_PLUGIN_VERSION = 1 };

typedef struct pi__mpi_plugin {
    uint32_t version;
    /* Joins the processes that were launched together, and waits for them; `why` gets a line where that fails. */
    bool (*open)(int32_t *rank, int32_t *n, int32_t *local, int32_t *n_local, char *why, size_t cap);
    bool (*bcast)(void *p, size_t n, double ms);
    bool (*gather)(void *buf, size_t n, double ms);
    bool (*send)(int32_t to, const void *p, size_t n, double ms);
    bool (*receive)(void *p, size_t n, double ms);
    /* At the end of the process, where all went well. */
    void (*close)(void);
} pi__mpi_plugin;

typedef const pi__mpi_plugin *(*pi__mpi_plugin_fn)(void);

#endif
