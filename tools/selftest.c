/* `pagedinfer selftest`: prints a report with device checks and rates. */
#include "cli.h"

static void print_line(void *ud, const char *line)
{
    (void) ud;
    puts(line);
    fflush(stdout); /* shows how far a hanging device got */
}

int cmd_selftest(const cli *c)
{
    int code = CLI_OK;
    pi_error err = {0};
    pi_options *o = cli_options(c, &code);
    if (!o) return code;
    const pi_selftest_params p = {.size = sizeof p, .checks = cli_str(c, "checks"),
                                  .stress = (uint32_t) cli_int(c, "stress"), .json = cli_bool(c, "selftest-json"),
                                  .seed = (uint64_t) cli_int(c, "stress-seed")};
    const int rc = pi_selftest_run(o, &p, print_line, NULL, &err);
    pi_options_free(o);
    if (rc == PI_EINVAL) return cli_usage_error(c, "%s", err.msg);
    code = cli_flush(c);
    return rc ? cli_pi_error(c, &err) : code;
}
