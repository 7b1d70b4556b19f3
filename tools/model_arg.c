/* The model as an argument (see model_arg.h). Reads folders, no files: an invalid file is reported when it is opened.
 * Not thread-safe. */
#include "model_arg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "hub.h"

#define FORMS "a GGUF file, a folder with one, USER/NAME[:QUANT], or an https:// URL"

static int no_memory(const cli *c) { return cli_error(c, CLI_OS, "out of memory"); }

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), len = strlen(end);
    return n >= len && !strcasecmp(s + n - len, end);
}

/* True for a file of the Hugging Face format. */
static bool is_hugging_face(const char *path)
{
    return ends_with(path, ".safetensors") || ends_with(path, ".safetensors.index.json") ||
           ends_with(path, "pytorch_model.bin") || ends_with(path, "pytorch_model.bin.index.json");
}

static int must_convert(const cli *c, const char *path, bool folder)
{
    const char *slash = strrchr(path, '/');
    const int n = folder ? (int) strlen(path) : slash ? (int) (slash - path) : 1;
    return cli_error(c, CLI_DATA, "%s has the Hugging Face format: convert it to GGUF with llama.cpp's converter "
                     "(python convert_hf_to_gguf.py %.*s)", path, n, folder || slash ? path : ".");
}

/* Reports the folder's files if it has no model, or several. */
static int not_one(const cli *c, const char *dir, const hub_repo *r, size_t n_models)
{
    bool gguf = false, converts = false;
    for (size_t i = 0; i < r->n; i++) {
        gguf |= ends_with(r->file[i].path, ".gguf");
        converts |= is_hugging_face(r->file[i].path);
    }
    if (!gguf && converts) return must_convert(c, dir, true);
    if (!gguf) return cli_error(c, CLI_NO_INPUT, "%s has no GGUF file", dir);
    cli_error(c, 0, n_models ? "%s has %zu models; give one of these files:" : "%s has no first part of a model (%zu):",
              dir, n_models);
    for (size_t i = 0; i < r->n; i++)
        if (n_models ? hub_is_model(&r->file[i]) : ends_with(r->file[i].path, ".gguf"))
            fprintf(stderr, "  %s\n", r->file[i].path);
    return CLI_NO_INPUT;
}

/* Sets option "model" to the first part of the only model in the folder. */
static int from_folder(cli *c, const char *dir)
{
    hub_repo r = {0};
    const hub_file *model = NULL;
    size_t n = 0;
    if (!hub_list_folder(&r, dir)) {
        const int code = errno == ENOMEM ? no_memory(c) : cli_error(c, CLI_IO, "%s: %s", dir, strerror(errno));
        hub_clear(&r);
        return code;
    }
    for (size_t i = 0; i < r.n; i++) {
        if (!hub_is_model(&r.file[i])) continue;
        model = &r.file[i];
        n++;
    }
    char *path = n == 1 ? hub_join(dir, model->path) : NULL;
    int code = n == 1 ? -1 : not_one(c, dir, &r, n);
    if (n == 1 && (!path || !cli_set(c, "model", path))) code = no_memory(c);
    free(path);
    const bool wanted = n == 1 && cli_reads_images(c) && !cli_given(c, "mmproj");
    const hub_file *vision = wanted ? hub_vision_part(&r, model) : NULL;
    path = vision ? hub_join(dir, vision->path) : NULL;
    if (vision && (!path || !cli_set(c, "mmproj", path))) code = no_memory(c);
    if (vision) c->found_mmproj = true;
    free(path);
    hub_clear(&r);
    return code;
}

static int from_argument(cli *c, const char *arg)
{
    char id[257], quant[65];
    struct stat st;
    const char *key = NULL;
    const bool is_file = !stat(arg, &st);
    if (!*arg) return cli_usage_error(c, "the model's name is empty: give " FORMS);
    if (is_file && S_ISDIR(st.st_mode)) return from_folder(c, arg);
    if (is_file && is_hugging_face(arg)) return must_convert(c, arg, false);
    if (is_file) key = "model";
    else if (!strncasecmp(arg, "http://", 7) || !strncasecmp(arg, "https://", 8)) key = "model-url";
    else if (!ends_with(arg, ".gguf") && !is_hugging_face(arg) && hub_split_name(arg, id, quant)) key = "hf-repo";
    else return cli_error(c, CLI_NO_INPUT, "%s: no such file or folder; a model is " FORMS, arg);
    return cli_set(c, key, arg) ? -1 : no_memory(c);
}

/* Sets option "hf-repo" instead of "model" if the path, which does not exist, is USER/NAME[:QUANT]. */
static int from_name(cli *c, const char *path)
{
    char id[257], quant[65];
    char *name = NULL;
    if (ends_with(path, ".gguf") || is_hugging_face(path) || !hub_split_name(path, id, quant)) return -1;
    if (!(name = strdup(path)) || !cli_set(c, "hf-repo", name) || !cli_set(c, "model", "")) {
        free(name);
        return no_memory(c);
    }
    free(name);
    return -1;
}

int model_argument(cli *c)
{
    static const char *const named[][2] = {{"model", "-m"}, {"hf-repo", "-hf"}, {"model-url", "-mu"}};
    const char *arg = cli_arg(c, 0);
    struct stat st;
    if (!c->cmd->takes_model) return -1;
    for (size_t i = 0; arg && i < sizeof named / sizeof *named; i++)
        if (cli_given(c, named[i][0]) && !cli_is_weak(c, named[i][0]))
            return cli_usage_error(c, "the argument '%.200s' and %s %.200s both name a model: give one of them", arg,
                                   named[i][1], cli_str(c, named[i][0]));
    if (arg) return from_argument(c, arg);
    /* -m with a folder, a file of the Hugging Face format, or the name of a repository, as vLLM's --model */
    const char *path = cli_str(c, "model");
    if (cli_n(c, "model") != 1 || *cli_str(c, "hf-repo") || *cli_str(c, "model-url")) return -1;
    if (stat(path, &st)) return from_name(c, path);
    if (S_ISDIR(st.st_mode)) return from_folder(c, path);
    return is_hugging_face(path) ? must_convert(c, path, false) : -1;
}
