/* Reads ModelOptions: fields, then `options:`, then `engine_args:`; later ones win. */
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "json.h"
#include "model.h"
#include "options_table.h"

namespace localai {

namespace {

constexpr const char *openai_keys[] = {"reasoning",        "reasoning-format", "reasoning-effort",
                                       "prefill-assistant", "max-images",       "max-image-bytes",
                                       "max-image-pixels"};

const option_row *find_row(std::string_view name)
{
    for (const option_row &row : option_rows) {
        std::string_view rest = row.names;
        while (!rest.empty()) {
            const std::size_t n = std::min(rest.find(' '), rest.size());
            if (rest.substr(0, n) == name) return &row;
            rest.remove_prefix(std::min(n + 1, rest.size()));
        }
    }
    return nullptr;
}

/* True if libpagedinfer has an option with this key, or with this long flag ("-c --ctx-size"). */
bool is_known(const std::string &key)
{
    const std::string flag = "--" + key;
    auto row = pagedinfer::detail::sized<pi_option_info>();
    for (std::size_t i = 0; !pi_options_describe(i, &row); i++) {
        if (key == row.key) return true;
        for (const char *at = row.flags; (at = std::strstr(at, flag.c_str())); at++)
            if (!at[flag.size()] || std::strchr(" =?", at[flag.size()])) return true;
    }
    return false;
}

/* The level of a value of log-level that the library has checked. */
int log_level_of(const std::string &word)
{
    constexpr std::string_view words[] = {"none", "error", "warn", "info", "debug"};
    return static_cast<int>(std::find(std::begin(words), std::end(words), word) - std::begin(words));
}

std::string lower(std::string s)
{
    std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
    return s;
}

/* llama-cpp's words for bools, in addition to the library's. */
std::string plain_bool(const std::string &v)
{
    return v == "enabled" ? "true" : v == "disabled" ? "false" : v;
}

std::string at_most_16(const std::string &v)
{
    int n = 0;
    const auto end = std::from_chars(v.data(), v.data() + v.size(), n);
    return end.ec == std::errc() && *end.ptr == '\0' && n > 16 ? "16" : v;
}

/* The path of a file that may be relative to the folder of models. */
std::string in_models(const backend::ModelOptions &q, const std::string &path)
{
    return path.empty() || path[0] == '/' || q.modelpath().empty() ? path : q.modelpath() + "/" + path;
}

void add_files(model_settings &s, const backend::ModelOptions &q)
{
    s.set("model", q.modelfile().empty() ? in_models(q, q.model()) : q.modelfile(), true);
    if (!q.mmproj().empty()) s.set("mmproj", q.mmproj(), true);
    if (!q.draftmodel().empty()) s.set("model-draft", q.draftmodel(), true);
    const auto adapter = [&](const std::string &path, float scale) {
        s.set("lora-scaled", in_models(q, path) + ":" + pagedinfer::options::text_of(scale ? scale : 1), true);
    };
    if (!q.loraadapter().empty()) adapter(q.loraadapter(), q.lorascale());
    for (int i = 0; i < q.loraadapters_size(); i++)
        adapter(q.loraadapters(i), i < q.lorascales_size() ? q.lorascales(i) : 0);
}

/* Zero and "" mean that the caller did not say. */
void add_sizes(model_settings &s, const backend::ModelOptions &q)
{
    const auto number = [&](const char *key, auto v) {
        if (v > 0) s.set(key, pagedinfer::options::text_of(v), true);
    };
    number("ctx-size", q.maxmodellen() > 0 ? q.maxmodellen() : q.contextsize());
    number("ubatch-size", std::min(q.nbatch(), 65536));
    number("threads", q.threads());
    number("memory-utilization", q.gpumemoryutilization());
    number("rope-freq-base", q.ropefreqbase());
    number("rope-freq-scale", q.ropefreqscale());
    number("yarn-ext-factor", q.yarnextfactor());
    number("yarn-attn-factor", q.yarnattnfactor());
    number("yarn-beta-fast", q.yarnbetafast());
    number("yarn-beta-slow", q.yarnbetaslow());
}

void add_devices(model_settings &s, const backend::ModelOptions &q)
{
    const auto word = [&](const char *key, const std::string &v) {
        if (!v.empty()) s.set(key, v, true);
    };
    word("rope-scaling", q.ropescaling());
    word("cache-type-k", lower(q.cachetypekey()));
    word("cache-type-v", lower(q.cachetypevalue()));
    word("main-gpu", q.maingpu());
    if (q.tensorparallelsize() > 1) {
        s.set("split-mode", "tensor", true);
    } else if (!q.tensorsplit().empty()) {
        s.set("split-mode", "layer", true);
        s.set("tensor-split", q.tensorsplit(), true);
    }
    if (q.ngpulayers() > 0 && q.ngpulayers() < 9999) s.set("gpu-layers", std::to_string(q.ngpulayers()), true);
    if (q.mlock()) s.set("mlock", "true", true);
    if (q.numa()) s.set("numa", "distribute", true);
    if (q.nokvoffload()) s.set("kv-offload", "false", true);
    for (const std::string &o : q.overrides()) s.set("override-kv", o, true);
}

void add_engine_args(model_settings &s, const std::string &source)
{
    if (source.empty()) return;
    const json root = parse(source, "engine_args");
    if (!json_is_object(root.get())) refuse("engine_args must be a JSON object of options");
    const char *key;
    json_t *value;
    json_object_foreach(root.get(), key, value) {
        if (json_is_array(value)) { /* a list option */
            std::size_t i;
            json_t *one;
            json_array_foreach(value, i, one)
                s.set(key, json_is_string(one) ? std::string(text_of(one)) : dump(json(json_incref(one))), true);
        } else {
            s.set(key, json_is_string(value) ? std::string(text_of(value)) : dump(json(json_incref(value))), true);
        }
    }
}

} // namespace

void model_settings::set(const std::string &name, const std::string &value, bool strict)
{
    std::string plain = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    std::string key = plain, v = plain_bool(value);
    std::replace(plain.begin(), plain.end(), '-', '_');
    std::replace(key.begin(), key.end(), '_', '-');
    if (const option_row *row = find_row(plain)) {
        if (row->kind == IGNORE) {
            warnings.push_back("option " + name + " has no effect: " + row->note);
            return;
        }
        key = row->key;
        if (row->kind == LOWER) v = lower(v);
        if (row->kind == DRAFT) v = at_most_16(v);
        if (row->kind == DIRECT) v = v == "false" || v == "0" || v == "no" || v == "off" ? "auto" : "dio";
    }
    if (std::find(std::begin(openai_keys), std::end(openai_keys), key) != std::end(openai_keys)) {
        openai.emplace_back(key, v);
    } else if (!strict && !is_known(key)) {
        warnings.push_back("option " + name + " is unknown: see docs/LOCALAI.md and docs/OPTIONS.md for names");
    } else if (key == "pooling") {
        pagedinfer::options().set("pooling", v); /* checks the value */
        pooling = v == "off" ? "model" : v;
    } else {
        engine.set(key.c_str(), v);
        if (key == "log-level") log_level = log_level_of(v);
    }
}

model_settings read_options(const backend::ModelOptions &q)
{
    model_settings s;
    if (q.modelfile().empty() && q.model().empty()) refuse("ModelFile is empty: name the model's GGUF file");
    add_files(s, q);
    add_sizes(s, q);
    add_devices(s, q);
    for (const std::string &o : q.options()) {
        const std::size_t colon = o.find(':');
        s.set(o.substr(0, colon), colon == std::string::npos ? "true" : o.substr(colon + 1), false);
    }
    add_engine_args(s, q.engineargs());
    return s;
}

void print_options()
{
    std::puts("| options of llama-cpp | option here | note |\n|---|---|---|");
    for (const option_row &row : option_rows) {
        std::string names = "`";
        for (const char *c = row.names; *c; c++) names += *c == ' ' ? std::string("`, `") : std::string(1, *c);
        std::printf("| %s` | %s%s%s | %s |\n", names.c_str(), *row.key ? "`" : "", *row.key ? row.key : "none",
                    *row.key ? "`" : "", row.note);
    }
}

} // namespace localai
