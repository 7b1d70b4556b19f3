/* Opens files that the server reads while it runs (see file.h). */
#include "serve/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *file_open(const char *path, const char **wrong)
{
    struct stat st;
    FILE *f = NULL;
    /* O_NONBLOCK: opening a pipe without a writer would block */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *wrong = NULL;
    if (fd < 0 || fstat(fd, &st)) *wrong = strerror(errno);
    else if (S_ISDIR(st.st_mode)) *wrong = "it is a directory: give a file";
    else if (!S_ISREG(st.st_mode)) *wrong = "it is a pipe or a device: give a regular file";
    else if (st.st_size > FILE_MAX) *wrong = "it has more than 1 MiB: give another file";
    else if (!(f = fdopen(fd, "r"))) *wrong = strerror(errno);
    if (!f && fd >= 0) (void) close(fd);
    return f;
}
