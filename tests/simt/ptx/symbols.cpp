/* Names of kernels: of functions in this program's file, and of functions with internal linkage in PTX. */
#include <elf.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "program.h"

extern "C" const char __executable_start; /* from the linker: the address where the file is loaded */

namespace simt {
namespace ptx {

/* Adds the functions of a symbol table. base: address of the file's first byte; 0 in files that are not relocated. */
static void add_functions(const std::string &file, const Elf64_Shdr &table, const Elf64_Shdr &strings, uint64_t base,
                          std::map<uint64_t, std::string> *out)
{
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym s;
        file.copy(reinterpret_cast<char *>(&s), sizeof s, table.sh_offset + at);
        if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_value && s.st_name < strings.sh_size)
            out->emplace(s.st_value + base, file.c_str() + strings.sh_offset + s.st_name);
    }
}

static std::map<uint64_t, std::string> read_functions()
{
    std::map<uint64_t, std::string> out;
    std::ifstream in("/proc/self/exe", std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    const std::string file = bytes.str();
    Elf64_Ehdr h;
    if (file.copy(reinterpret_cast<char *>(&h), sizeof h) != sizeof h) return out;
    std::vector<Elf64_Shdr> sections(h.e_shnum);
    for (size_t i = 0; i < sections.size(); i++)
        file.copy(reinterpret_cast<char *>(&sections[i]), sizeof(Elf64_Shdr), h.e_shoff + i * sizeof(Elf64_Shdr));
    const uint64_t base = h.e_type == ET_DYN ? (uint64_t) (uintptr_t) &__executable_start : 0;
    for (const Elf64_Shdr &s : sections)
        if (s.sh_type == SHT_SYMTAB && s.sh_link < sections.size())
            add_functions(file, s, sections[s.sh_link], base, &out);
    return out;
}

std::string host_name(const void *function)
{
    static const std::map<uint64_t, std::string> all = read_functions();
    const auto it = all.find((uint64_t) (uintptr_t) function);
    if (it == all.end()) return "";
    /* _ZN1nL1fE, of a static function, is _ZN1n1fE in PTX */
    std::string name = it->second;
    for (size_t i = 2; i + 1 < name.size() && name[i] != 'E' && name[i] != 'I';) {
        const bool local = name[i] == 'L' && isdigit((unsigned char) name[i + 1]);
        if (local) name.erase(i, 1);
        if (name[i] == 'N') i++;
        else if (isdigit((unsigned char) name[i])) {
            char *end;
            const unsigned long n = strtoul(name.c_str() + i, &end, 10);
            i = (size_t) (end - name.c_str()) + n;
        } else break;
    }
    return name;
}

/* nvcc: __nv_static_N__ and N bytes that name the file, then _NAME. */
std::string without_file(const std::string &name)
{
    static const char prefix[] = "__nv_static_";
    if (name.compare(0, sizeof prefix - 1, prefix)) return name;
    char *end;
    const unsigned long n = strtoul(name.c_str() + sizeof prefix - 1, &end, 10);
    const size_t at = (size_t) (end - name.c_str()) + 2 + n;
    return at < name.size() ? name.substr(at) : name;
}

} // namespace ptx
} // namespace simt
