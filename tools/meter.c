/* Progress on a terminal (see meter.h). */
#include "meter.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static const double EVERY = 0.1; /* minimum interval of updates, seconds */

double meter_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

void meter_begin(meter *m, const char *what, bool quiet, double delay)
{
    *m = (meter) {.what = what, .on = !quiet && isatty(STDERR_FILENO), .start = meter_now(), .first = UINT64_MAX};
    m->next = m->start + delay;
}

/* Formats "3 s", "2 min 5 s" or "1 h 10 min". */
static void time_text(double s, char out[32])
{
    const long n = s < 1e7 ? (long) (s + 0.5) : 9999999;
    if (n < 60) snprintf(out, 32, "%ld s", n);
    else if (n < 3600) snprintf(out, 32, "%ld min %ld s", n / 60, n % 60);
    else snprintf(out, 32, "%ld h %ld min", n / 3600, n / 60 % 60);
}

/* Draws the line. If it is too wide, the start of the name is cut off. */
static void show(const char *what, const char *text, int n)
{
    struct winsize w = {0};
    const int columns = !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : 80, room = columns - 1 - n;
    const char *slash = strrchr(what, '/'), *name = slash && (int) strlen(what) > room ? slash + 1 : what;
    const int len = (int) strlen(name);
    if (len <= room) fprintf(stderr, "\r\033[K%s%s", name, text);
    else if (room > 8) fprintf(stderr, "\r\033[K...%s%s", name + (len - room + 3), text);
    else fprintf(stderr, "\r\033[K%.*s", columns - 1, text);
    fflush(stderr);
}

void meter_update(meter *m, uint64_t done, uint64_t total)
{
    const double now = m->on ? meter_now() : 0;
    char a[32], b[32], c[32], left[32], text[200];
    int n;
    if (m->first == UINT64_MAX) m->first = done;
    if (!m->on || now < m->next) return;
    m->next = now + EVERY;
    const double rate = (double) (done - m->first) / (now - m->start > 1e-3 ? now - m->start : 1e-3);
    if (total) n = snprintf(text, sizeof text, "  %5.1f %%  %s of %s", 100.0 * (double) done / (double) total,
                            cli_bytes(done, a), cli_bytes(total, b));
    else n = snprintf(text, sizeof text, "  %s", cli_bytes(done, a));
    if (rate > 0) n += snprintf(text + n, sizeof text - (size_t) n, "  %s/s", cli_bytes((uint64_t) rate, c));
    if (rate > 0 && total >= done) {
        time_text((double) (total - done) / rate, left);
        n += snprintf(text + n, sizeof text - (size_t) n, "  %s left", left);
    }
    show(m->what, text, n);
    m->shown = true;
}

void meter_end(meter *m)
{
    if (m->shown) fputs("\r\033[K", stderr);
    m->shown = false;
}
