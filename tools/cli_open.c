/* Opens an engine from the command line; shows the progress on a terminal and handles signals (see cli.h). */
#include "cli.h"

#include <string.h>

#include "meter.h"

static const double QUICK = 0.5; /* loading times below this show no progress line, seconds */

typedef struct opening {
    meter m;   /* the progress line */
    int stage; /* displayed stage; 0 = none yet */
    bool quiet;
} opening;

static bool on_progress(void *ud, int stage, uint64_t done, uint64_t total)
{
    opening *o = ud;
    if (stage != o->stage || !done) {
        meter_end(&o->m);
        meter_begin(&o->m, stage == PI_LOAD_READ ? "reading the model" : "loading the model", o->quiet,
                    o->stage ? 0 : QUICK);
        o->stage = stage;
    }
    if (done < total) meter_update(&o->m, done, total);
    else meter_end(&o->m);
    return cli_signal() != 0;
}

bool cli_reads_images(const cli *c)
{
    static const char *const names[] = {"run", "chat", "serve", "pull"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(c->cmd->name, names[i])) return cli_bool(c, "mmproj-auto");
    return false;
}

bool cli_without_mmproj(const cli *c, pi_options *o, int rc, const pi_error *err)
{
    if (!rc || !c->found_mmproj || (rc != PI_EUNSUPPORTED && rc != PI_EFORMAT && rc != PI_EINVAL)) return false;
    if (!strstr(err->msg, "mmproj")) return false;
    fprintf(stderr, "%s: %s; continuing without images\n", c->name, err->msg);
    return pi_options_set(o, "mmproj", "", NULL) == PI_OK;
}

int cli_open(const cli *c, pi_options *o, pi_engine **e)
{
    opening op = {.quiet = !cli_logs(c, PI_LOG_WARN)};
    pi_error err = {0};
    *e = NULL;
    int code = cli_catch_signals();
    if (code) return code;
    pi_options_set_progress(o, on_progress, &op);
    int rc = pi_engine_open(e, o, &err);
    if (cli_without_mmproj(c, o, rc, &err)) rc = pi_engine_open(e, o, &err);
    pi_options_set_progress(o, NULL, NULL);
    meter_end(&op.m);
    if (cli_signal()) code = 128 + cli_signal();
    else if (rc) code = cli_pi_error(c, &err);
    if (!code) return CLI_OK;
    pi_engine_close(*e);
    *e = NULL;
    return code;
}
