/* Passes log lines to the caller's function (see log.h). */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void pi__logf(const pi__log *log, int level, const char *fmt, ...)
{
    if (!log || !log->fn || level > log->level) return;
    char line[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    log->fn(log->ud, level, line);
}
