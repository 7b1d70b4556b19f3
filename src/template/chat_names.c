/* Looks a template up by its name (see chat_names.h). */
#include "template/chat_names.h"

#include <stddef.h>
#include <string.h>

const char *pi__chat_named(const char *name)
{
#define ROW(name, ...) {name, __VA_ARGS__},
    static const struct {
        const char *name, *text;
    } rows[] = {PI__CHAT_NAMES(ROW)};
#undef ROW
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(name, rows[i].name)) return rows[i].text;
    return NULL;
}
