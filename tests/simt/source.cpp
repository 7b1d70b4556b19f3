/* Names and source lines of code, for messages and tables: asked of addr2line (binutils), which reads the program's own
 * symbols. Where there is none the address in the file stands for them. */
#include "simt_impl.h"

#include <cstdio>
#include <string>
#include <unistd.h>
#include <unordered_map>

extern "C" const char __executable_start; /* the linker's: where the file's address 0 is */

namespace simt {

/* The innermost place that is no header of instructions or of the emulator: lines come in pairs, function and place. */
static std::string asked(unsigned long offset)
{
    char command[96], line[2][600];
    std::string found;
    snprintf(command, sizeof command, "addr2line -s -f -C -i -e /proc/%ld/exe 0x%lx 2>/dev/null", (long) getpid(), offset);
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
