#!/usr/bin/env bash
# check_abi.sh: checks the exported interface of the shared library.
#     bash tests/scripts/check_abi.sh BUILD            compares with tests/scripts/abi.txt
#     bash tests/scripts/check_abi.sh BUILD --update   writes tests/scripts/abi.txt (give the reason in the commit
#     message)
# 1. The library exports exactly the functions that pagedinfer.h declares: pi_*, no pi__*. So does libpagedinfer-openai
#    with pagedinfer_openai.h. Each function has a symbol version.
# 2. It imports nothing that prints or ends the process.
# 3. Its SONAME is libpagedinfer.so.PI_ABI_VERSION.
# 4. Functions with their symbol versions, sizes and offsets of the public structs, and values of constants match tests/scripts/abi.txt.
#    Functions, constants and fields at a struct's end may be added. Any other change breaks programs compiled before
#    it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
build=${1:?usage: check_abi.sh BUILD [--update]}
lib=$build/libpagedinfer.so cc=${CC:-cc}
bad=0
finding() { printf '%s\n' "$*"; bad=1; }
[ -f "$lib" ] || { echo "$lib: not built"; exit 1; }
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT

each() { while read -r symbol; do finding "$1: $symbol"; done; }
# exports LIBRARY HEADER: compares them. Leaves the names in exported and declared, and "NAME VERSION" in versions.
exports() {
    nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@+/, " ", $3); print $3 }' | LC_ALL=C sort -u >"$tmp/versions"
    cut -d' ' -f1 "$tmp/versions" >"$tmp/exported"
    each "exported, but not public" < <(grep -Ev '^pi_[a-z0-9][a-z0-9_]*$' "$tmp/exported")
    each "exported without a symbol version" < <(grep -v ' ' "$tmp/versions")
    "$cc" -E -P -Iinclude -include stdbool.h "include/$2" >"$tmp/header.i" || exit 1
    # A declaration is an attribute, a return type, a name and a parenthesis.
    tr '\n' ' ' <"$tmp/header.i" | tr ';{}' '\n\n\n' | grep 'visibility("default")' |
        sed -E 's/.*visibility\("default"\)\)\) *//; s/^([^(]*[^a-z0-9_])(pi_[a-z0-9_]+) *\(.*/\2/' |
        LC_ALL=C sort -u >"$tmp/declared"
    if [ "$2" != pagedinfer.h ]; then # it includes pagedinfer.h
        LC_ALL=C comm -23 "$tmp/declared" "$tmp/core" >"$tmp/own" && mv "$tmp/own" "$tmp/declared"
    fi
    each "declared in $2, but not exported: add it to cmake/*.map" < <(LC_ALL=C comm -23 "$tmp/declared" "$tmp/exported")
    each "exported, but not declared in $2" < <(LC_ALL=C comm -13 "$tmp/declared" "$tmp/exported")
}
exports "$lib" pagedinfer.h
cp "$tmp/declared" "$tmp/core"
sed 's/^/function /' "$tmp/versions" >"$tmp/functions"
if [ -f "$build/libpagedinfer-openai.so" ]; then
    exports "$build/libpagedinfer-openai.so" pagedinfer_openai.h
    sed 's/^/openai function /' "$tmp/versions" >>"$tmp/functions"
else
    echo "libpagedinfer-openai is not built"
    grep '^openai function' tests/scripts/abi.txt >>"$tmp/functions"
fi

for symbol in $(nm -D --undefined-only "$lib" | awk '{ sub(/@.*/, "", $2); print $2 }'); do
    case $symbol in
        printf|vprintf|fprintf|vfprintf|dprintf|puts|fputs|putchar|putc|fputc|perror|stdout|stderr|\
        __printf_chk|__vprintf_chk|__fprintf_chk|__vfprintf_chk|__dprintf_chk|\
        abort|exit|_exit|_Exit|quick_exit|__assert_fail|raise|kill|system)
            finding "imported, but the library never prints and never ends the process: $symbol" ;;
    esac
done

abi=$(sed -nE 's/^#define PI_ABI_VERSION ([0-9]+)$/\1/p' include/pagedinfer.h)
readelf -d "$lib" | grep -q "SONAME.*\[libpagedinfer\.so\.$abi\]" || finding "SONAME is not libpagedinfer.so.$abi"

# Sizes and offsets come from the compiler's debug information for the header.
printf '#include <pagedinfer.h>\n' >"$tmp/a.c"
"$cc" -Iinclude -gdwarf-4 -gstrict-dwarf -fno-eliminate-unused-debug-types -c "$tmp/a.c" -o "$tmp/a.o" || exit 1
{
    echo "# By tests/scripts/check_abi.sh --update: functions; public structs, their size, the offset of each field; constants."
    cat "$tmp/functions"
    readelf --debug-dump=info "$tmp/a.o" | awk '
        function flush() { if (open) { if (name == "") name = "(nested)"; print "struct", name, size fields } open = 0 }
        /Abbrev Number:/ {
            tag = ""; if (match($0, /DW_TAG_[a-z_]+/)) tag = substr($0, RSTART, RLENGTH)
            if (tag != "DW_TAG_member") flush()
            if (tag == "DW_TAG_structure_type") { open = 1; name = ""; size = ""; fields = "" }
            next
        }
        /DW_AT_name/ && tag == "DW_TAG_enumerator" { name = $NF }
        /DW_AT_const_value/ && tag == "DW_TAG_enumerator" && name ~ /^PI_/ { print "value", name, $NF }
        !open { next }
        /DW_AT_name/ { if (tag == "DW_TAG_member") member = $NF; else name = $NF }
        /DW_AT_byte_size/ && tag == "DW_TAG_structure_type" { size = $NF }
        /DW_AT_data_member_location/ { fields = fields " " member "@" $NF }
        END { flush() }' | grep -E '^(value|struct pi_[a-z_]+ [0-9]|struct \(nested\) [0-9]+ [^_])' | LC_ALL=C sort
} >"$tmp/abi.txt"

if [ "${2:-}" = --update ]; then
    cp "$tmp/abi.txt" tests/scripts/abi.txt
    echo "tests/scripts/abi.txt: $(grep -c ^function tests/scripts/abi.txt) functions, $(grep -c ^struct tests/scripts/abi.txt) structs"
elif ! diff -u tests/scripts/abi.txt "$tmp/abi.txt" >"$tmp/diff"; then
    cat "$tmp/diff"
    finding "the interface differs from tests/scripts/abi.txt. If intended, run: bash tests/scripts/check_abi.sh $build --update"
fi
exit $bad
