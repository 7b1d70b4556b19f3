/* pagedinfer imatrix: computes the importance matrix of a model on a text. The text runs through the model in chunks,
 * as in `eval`, whose perplexity shows that the model works; the engine writes the file when it closes. */
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "eval.h"

/* True if the file at path is another one than before. */
static bool is_new(const char *path, bool had, const struct stat *before)
{
    struct stat st;
    if (stat(path, &st)) return false;
    return !had || st.st_ino != before->st_ino || st.st_mtim.tv_sec != before->st_mtim.tv_sec ||
           st.st_mtim.tv_nsec != before->st_mtim.tv_nsec;
}

int cmd_imatrix(const cli *c)
{
    const char *path = cli_str(c, "imatrix-output");
    struct stat before;
    if (!*cli_str(c, "model")) return cli_usage_error(c, "no model: give -m FILE or -hf USER/NAME");
    if (!cli_given(c, "file") && !cli_given(c, "prompt"))
        return cli_usage_error(c, "no text: give -f FILE, a text like those that the model will see");
    const bool had = !stat(path, &before);
    const int code = eval_perplexity(c);
    if (code) return code;
    if (!is_new(path, had, &before))
        return cli_error(c, CLI_IO, "%s was not written; the log above has the reason", path);
    fprintf(stderr, "%s is written; use it with 'pagedinfer quantize --imatrix %s'\n", path, path);
    return CLI_OK;
}
