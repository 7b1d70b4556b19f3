/* The interface between the library and its MPI plug-in, libpagedinfer-mpi.so (plugin.c). The library loads the
 * plug-in when it joins processes, and so does not depend on MPI itself. The plug-in exports one function,
 * pi_mpi_plugin, which returns this table.
 *
 * One thread at a time may call. ms and false have the same meaning as in pi__ranks_fns. */
#ifndef PI__MPI_PLUGIN_H
#define PI__MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PI__MPI_PLUGIN_VERSION = 1 };

typedef struct pi__mpi_plugin {
    uint32_t version;
    /* Joins all processes of the launch, and waits for them. Sets the rank of this process, the number of ranks,
     * and both numbers among the ranks of its machine. On failure writes one line to `why` and returns false. */
    bool (*open)(int32_t *rank, int32_t *n, int32_t *local, int32_t *n_local, char *why, size_t cap);
    bool (*bcast)(void *p, size_t n, double ms);
    bool (*gather)(void *buf, size_t n, double ms);
    bool (*send)(int32_t to, const void *p, size_t n, double ms);
    bool (*receive)(void *p, size_t n, double ms);
    /* Called at the end of the process, if no call has failed. */
    void (*close)(void);
} pi__mpi_plugin;

typedef const pi__mpi_plugin *(*pi__mpi_plugin_fn)(void);

#endif
