#!/usr/bin/env bash
# check_layout.sh: checks the rules of docs/design/overview.md that a text search can check.
#     bash tests/scripts/check_layout.sh
#
# 1. includes in src/ point down the list api selftest engine sampler grammar cache model image template tokenizer gguf backend
#    formats base, or sideways inside a folder
# 2. tools/ and examples include only the public headers
# 3. src/ calls nothing that prints or ends the process
# 4. kernels/ has PTX only in ptx.cuh, __shared__ only in device.cuh, and no launches; launches are in
#    src/backend/cuda/launch*, <<<>>> in launch.cuh
#
# 5. lines aim at 120 columns and end before 140, without tabs; every source file opens with a comment
# 6. headers of src/api include each other without a cycle (NAME.c and NAME.h are one file)
# 7. in each folder of src, calls between .c files have no cycle; in src/engine, each header is included for something
#    that it declares
# 8. src/selftest has no variable that two threads share: the stress test runs two checks at the same time
# Exit status 1 and one line a finding where a rule is broken.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
bad=0
finding() { printf '%s\n' "$*"; bad=1; }

order=" api selftest engine sampler grammar cache model image template tokenizer gguf backend formats base "
rank() { local head=${order%% "$1" *}; [ "$head" = "$order" ] && echo -1 || echo "$head" | wc -w; }

while IFS=: read -r file line text; do
    folder=${file#src/}; folder=${folder%%/*}
    target=$(printf '%s' "$text" | sed 's/.*"\(.*\)".*/\1/')
    case $target in
        pagedinfer.h) continue ;;
        */*) ;;
        *)  [ -f "$(dirname "$file")/$target" ] ||
                finding "$file:$line: \"$target\" is not in this folder; include it with its folder"
            continue ;;
    esac
    to=${target%%/*}
    [ -f "src/$target" ] || { finding "$file:$line: there is no src/$target"; continue; }
    if [ "$(rank "$to")" -lt "$(rank "$folder")" ]; then
        finding "$file:$line: $folder must not include $to ($target)"
    fi
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' src --include='*.c' --include='*.h')

for dir in api; do
    while IFS= read -r hit; do finding "src/$dir: $hit"; done < <(
        grep -E "^#include \"$dir/" "src/$dir"/*.[ch] |
            sed -E "s|^src/$dir/([^.:]*)\.[ch]:.*\"$dir/([^.]*)\.h\".*|\1 \2|" | awk '$1 != $2' | tsort 2>&1 >/dev/null)
done

for dir in src/*/; do
    name=$(basename "$dir")
    [ "$(rank "$name")" -ge 0 ] || finding "src/$name: not a folder of docs/design/overview.md"
done

while IFS=: read -r file line text; do
    target=$(printf '%s' "$text" | sed 's/.*"\(.*\)".*/\1/')
    case $target in
        pagedinfer.h | pagedinfer_openai.h) ;;
        *..*) finding "$file:$line: a tool includes $target; only pagedinfer.h is public" ;;
        *) [ -f "tools/$target" ] || finding "$file:$line: a tool includes $target; only pagedinfer.h is public" ;;
    esac
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' tools --include='*.c' --include='*.h' 2>/dev/null)

# Comments and strings may mention printf; code may not call it.
strip='s{/\*.*?\*/}{ my $c = $&; $c =~ s/[^\n]//g; $c }gse; s{//[^\n]*}{}g; s{"(?:\\.|[^"\\\n])*"}{""}g;'
calls='\b(v?f?printf|v?dprintf|f?puts|putchar|f?putc|perror|errx?|warnx?'
calls+='|abort|exit|_exit|_Exit|quick_exit|assert|raise|kill|system)\s*\('
while IFS= read -r file; do
    found=$(perl -0777 -pe "$strip" "$file" | grep -nE "$calls")
    [ -z "$found" ] || while IFS= read -r hit; do
        finding "$file:$hit  <- the library never prints and never ends the process"
    done <<<"$found"
    [ "$(head -c 2 "$file")" = "/*" ] || finding "$file:1: no opening comment"
done < <(find src -name '*.c' -o -name '*.h' | sort)

while IFS= read -r file; do
    found=$(perl -0777 -pe "$strip" "$file" | grep -nE '\basm\b|__shared__|<<<|\bpi_launch\b' | grep -vE '^[0-9]+:#define PI_SMEM')
    case $file in
        kernels/ptx.cuh | tests/simt/ptx/faults.cu) found=$(grep -v asm <<<"$found") ;;
        src/backend/cuda/launch.cuh) found=$(grep -vE '<<<|pi_launch' <<<"$found") ;;
        src/backend/cuda/launch_* | tests/simt/*) found=$(grep -v pi_launch <<<"$found") ;;
    esac
    [ -z "$found" ] || while IFS= read -r hit; do
        finding "$file:$hit  <- PTX is in ptx.cuh, launches in src/backend/cuda/launch*, shared memory is PI_SMEM's"
    done <<<"$found"
    [ "$(head -c 2 "$file")" = "/*" ] || finding "$file:1: no opening comment"
done < <(find kernels src/backend/cuda tests/simt -name '*.cu' -o -name '*.cuh' | sort)

while IFS= read -r hit; do finding "$hit"; done < <(
    find src include tools tests kernels integrations \( -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort | xargs perl -CSD -Mutf8 -ne '
        chomp; my $where = "$ARGV:$."; close ARGV if eof;
        print "$where: ", length, " columns\n" if length > 140;
        print "$where: a tab\n" if /\t/; print "$where: ends in a space\n" if /\s$/;')

# Calls between the .c files of a folder: a function that one file defines and another one names. Static functions do
# not count, also where another file has a function of that name. Each line of `allowed` is a group of files that may
# call each other in a cycle: the folder, a pattern of file names, and the reason. A cycle has to lie in one group, and
# a group without a cycle is a finding.
allowed='
src/template jinja_\w+\.c       one interpreter: an expression, filter or test evaluates expressions
src/template answer\w*\.c       one parser: a format scans values, whose elements are scanned again
src/grammar schema\w*\.c        one compiler: a schema contains schemas
'
calls_of='
    use strict; my (%code, %def, %own, %to, %reach, @group);
    my ($dir, $allowed, @files) = @ARGV;
    for (split /\n/, $allowed) { push @group, {pattern => $2, used => 0} if /^(\S+) (\S+) +\S/ && $1 eq $dir }
    for my $f (@files) {
        local $/; open my $h, "<", $f or die "$f: $!"; my $t = <$h>;
        $t =~ s{/\*.*?\*/|//[^\n]*}{}gs; $t =~ s{"(?:\\.|[^"\\\n])*"}{""}g;
        $f =~ s{.*/}{}; $code{$f} = $t;
        $own{$f}{$1} = 1 while $t =~ /^static\b[^\n;=(]*?\b(\w+)\(/mg;
        $def{$1 || $2} = $f
            while $t =~ /^(?!static\b|typedef\b|extern\b|#)[A-Za-z_](?:[^\n;=(){}]*?\b(\w+)\([^;{}]*?\)\s*\{|[\w ]*\(\*(\w+)\()/mg;
    }
    for my $f (keys %code) {
        for my $n ($code{$f} =~ /\b(\w+)\b/g) {
            my $d = $def{$n}; push @{$to{$f}{$d}}, $n if $d && $d ne $f && !$own{$f}{$n};
        }
    }
    for my $f (keys %to) {
        my @next = keys %{$to{$f}};
        while (defined(my $n = shift @next)) { push @next, keys %{$to{$n}} if !$reach{$f}{$n}++ }
    }
    my %seen;
    for my $f (sort keys %code) {
        next if !$reach{$f}{$f} || $seen{$f};
        my @cycle = grep { $reach{$f}{$_} && $reach{$_}{$f} } sort keys %code;
        $seen{$_} = 1 for @cycle;
        my ($in) = grep { my $p = $_->{pattern}; @cycle == grep { /^$p$/ } @cycle } @group;
        if ($in) { $in->{used} = 1; next }
        print "$dir: @cycle call each other in a cycle\n";
        for my $from (@cycle) {
            for my $end (@cycle) {
                my %once; my @name = grep { !$once{$_}++ } @{$to{$from}{$end} || []};
                print "    $from calls $end: @name\n" if @name;
            }
        }
    }
    for (@group) { print "$dir: no files $_->{pattern} call each other in a cycle: remove this group\n" if !$_->{used} }'
while IFS= read -r dir; do
    while IFS= read -r hit; do finding "$hit"; done < <(
        find "$dir" -maxdepth 1 -name '*.c' | sort | xargs -r perl -e "$calls_of" "$dir" "$allowed")
done < <(find src -type d | sort)

# Names that a header declares: functions, types, constants, macros. One of them is in every file that includes it.
while IFS= read -r hit; do finding "$hit"; done < <(perl -e '
    use strict; my %names;
    sub text { my $f = shift; local $/; open my $h, "<", $f or return ""; my $t = <$h>; $t =~ s{/\*.*?\*/}{}gs; $t }
    sub names_of {
        my $f = shift; return $names{$f} if $names{$f}; my ($t, %n) = text($f);
        $n{$_} = 1 for $t =~ /\b(pi_\w+)\s*\(/g, $t =~ /\}\s*(pi_\w+)/g, $t =~ /(?:struct|enum)\s+(pi_\w+)/g,
                       $t =~ /^typedef\b[^;{]*?\b(pi_\w+)\s*;/mg, $t =~ /#define\s+(\w+)/g;
        while ($t =~ /enum[^{};]*\{([^}]*)\}/g) { $n{$_} = 1 for $1 =~ /\b(PI_\w+)/g }
        $names{$f} = \%n;
    }
    for my $f (@ARGV) {
        my $t = text($f); my %used = map { $_ => 1 } $t =~ /\b(\w+)\b/g;
        (my $own = $f) =~ s{^src/}{}; $own =~ s/c$/h/;
        while ($t =~ /^#include "([^"]+)"/mg) {
            my $i = $1; my $h = "src/$i"; next if $i eq $own || !-f $h;
            print "$f: nothing that $i declares is used\n" unless grep { $used{$_} } keys %{names_of($h)};
        }
    }' src/engine/*.[ch])

# Variables outside of functions, and static ones in functions, that are neither constant nor thread-local.
while IFS= read -r hit; do
    finding "$hit  <- checks run in two threads at the same time: thread_local, or a local variable"
done < <(perl -0777 -ne '
    s{/\*.*?\*/}{ my $c = $&; $c =~ s/[^\n]//g; $c }gse; s{//[^\n]*}{}g;
    my $fixed = qr/(?:inline |static )*(?:public|private|protected|const|constexpr|thread_local|struct|class|enum|union|using|namespace|template|typedef|return|extern)\b/;
    my $declared = qr/[A-Za-z_][\w:<>,\s*&]*?[\s*&]\w+(?:\[[^\]]*\])?\s*[=;{]/;
    while (/^(?:(?!$fixed)$declared|\h+static (?!$fixed)$declared)/mg) {
        my ($text, $line) = ($&, 1 + (substr($_, 0, $-[0]) =~ tr/\n//)); $text =~ s/\s+/ /g;
        print "$ARGV:$line: $text\n";
    }' src/selftest/*)

exit $bad
