/* Names and source lines of code, for messages and tables. They come from addr2line (binutils), which reads the
 * program's own symbols; without it, the address in the file is used. */
#include "simt_impl.h"

#include <cstdio>
#include <string>
#include <unistd.h>
#include <unordered_map>

extern "C" const char __executable_start; /* from the linker: the address where the file is loaded */

namespace simt {

/* The innermost location outside of the emulator's and the instructions' headers. addr2line prints pairs of lines:
 * function, location. */
static std::string asked(unsigned long offset)
{
    char command[96], line[2][600];
    std::string found;
    snprintf(command, sizeof command, "addr2line -s -f -C -i -e /proc/%ld/exe 0x%lx 2>/dev/null", (long) getpid(),
             offset);
    FILE *f = popen(command, "r");
    if (!f) return found;
    while (fgets(line[0], sizeof line[0], f) && fgets(line[1], sizeof line[1], f)) {
        for (char *l : line) l[strcspn(l, "\n")] = 0;
        if (line[0][0] == '?') break;
        if (char *more = strstr(line[1], " (discriminator")) *more = 0;
        char *open = strchr(line[0], '(');
        if (open && open != line[0]) *open = 0; /* arguments */
        found = std::string(line[0]) + (line[1][0] == '?' ? "" : std::string(" at ") + line[1]);
        if (!strstr(line[1], "ptx.cuh:") && !strstr(line[1], "simt.h:")) break;
    }
    pclose(f);
    return found;
}

const char *source_of(const void *pc)
{
    static std::unordered_map<const void *, std::string> known;
    auto it = known.find(pc);
    if (it != known.end()) return it->second.c_str();
    char text[40];
    const unsigned long offset = (unsigned long) (static_cast<const char *>(pc) - &__executable_start);
    std::string s = asked(offset);
    snprintf(text, sizeof text, "code at %#lx", offset);
    return (known[pc] = s.empty() ? text : s).c_str();
}

} // namespace simt
