/* json.h: owners and helpers for jansson values.
 *
 * Threads: a value belongs to one thread. A failed allocation throws std::bad_alloc, bad text throws pagedinfer::error
 * with PI_EINVAL. */
#ifndef PAGEDINFER_LOCALAI_JSON_H
#define PAGEDINFER_LOCALAI_JSON_H

#include <jansson.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "pagedinfer.hpp"

namespace localai {

struct json_deleter {
    void operator()(json_t *j) const noexcept { json_decref(j); }
};
using json = std::unique_ptr<json_t, json_deleter>;

/* Takes ownership of a new value; NULL = out of memory. */
inline json own(json_t *j) { return json(pagedinfer::detail::present(j)); }
inline json text(std::string_view s) { return own(json_stringn(s.data(), s.size())); }

/* Sets a field of an object, or appends to an array. */
inline void put(const json &object, const char *key, json value)
{
    if (json_object_set_new(object.get(), key, value.release())) throw std::bad_alloc();
}
inline void append(const json &array, json value)
{
    if (json_array_append_new(array.get(), value.release())) throw std::bad_alloc();
}

/* Parses any JSON value. `name` is the field of the request, for the error. */
inline json parse(std::string_view source, const char *name)
{
    constexpr std::size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    json_error_t why;
    json_t *j = json_loadb(source.data(), source.size(), flags, &why);
    if (j) return json(j);
    throw pagedinfer::error(PI_EINVAL, (std::string(name) + " is not valid JSON: " + why.text).c_str());
}

inline std::string dump(const json &j)
{
    struct freed {
        void operator()(char *p) const noexcept { std::free(p); }
    };
    std::unique_ptr<char, freed> s(pagedinfer::detail::present(json_dumps(j.get(), JSON_COMPACT | JSON_ENCODE_ANY)));
    return s.get();
}

/* The text of a string value; empty for other values. */
inline std::string_view text_of(const json_t *j)
{
    const char *s = json_string_value(j);
    return s ? std::string_view(s, json_string_length(j)) : std::string_view();
}

} // namespace localai

#endif
