#!/usr/bin/env bash
# check_deb.sh: builds the Debian packages, lints them, installs them in a clean system, runs the server and the systemd
# service there, and purges them.
#     bash tests/scripts/check_deb.sh WORK MODEL
# PAGEDINFER_DEBS names a folder with built packages: then nothing is built. PAGEDINFER_QUICK=1 builds without vector
# kernels and without Debian's hardening flags: ccache has the objects of check_rpm.sh. Needs root, dpkg-dev, debhelper,
# lintian and mmdebstrap. Exit 77: not possible here.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
work=${1:?usage: check_deb.sh WORK MODEL} model=${2:?MODEL} debs=${PAGEDINFER_DEBS:-$1/build}
# shellcheck source=tools/common.sh
source tools/common.sh
# shellcheck source=tests/scripts/clean_system.sh
source tests/scripts/clean_system.sh
bad=0
finding() { printf '%s\n' "$*"; bad=1; }
for program in dpkg-buildpackage dh lintian mmdebstrap setpriv curl; do
    pi_have $program || { echo "needs $program"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
rm -rf "$work" && mkdir -p "$work" || exit 1

# The sources are a copy, because debhelper writes into them. Link-time optimization would double the time.
if [ -z "${PAGEDINFER_DEBS:-}" ]; then
    mkdir -p "$debs/source"
    git ls-files -z | xargs -0 tar -c | tar -x -C "$debs/source" || exit 1
    pi_have ccache && PATH=/usr/lib/ccache:$PATH
    [ -z "${PAGEDINFER_QUICK:-}" ] || export DEB_CFLAGS_SET='' DEB_CPPFLAGS_SET='' CMAKE_MORE=-DPAGEDINFER_SIMD=OFF
    (cd "$debs/source" && DEB_BUILD_OPTIONS="nolto noautodbgsym parallel=$PI_JOBS" DEB_CFLAGS_STRIP=-g \
        dpkg-buildpackage -b -us -uc) >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log"; exit 1; }
fi
packages=(libpagedinfer0 libpagedinfer-openai0 libpagedinfer0-mpi libpagedinfer-dev pagedinfer pagedinfer-server)
for name in "${packages[@]}"; do [ -f "$(echo "$debs/${name}"_*.deb)" ] || finding "not built: $name"; done

# The project has no mail address and no bug number of Debian.
lintian --allow-root --fail-on error,warning --suppress-tags \
    bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs \
    "$debs"/*.changes >"$work/lintian.log" 2>&1 || { cat "$work/lintian.log"; finding "lintian finds errors"; }

clean_system "$work/system" systemd ca-certificates || { tail -n 5 "$work/system.log"; echo "no clean system"; exit 77; }
system=$work/system
files() { # of the system, without caches and databases of packages
    find "$system" -xdev \( -path "$system/var/lib/dpkg" -o -path "$system/var/lib/apt" -o -path "$system/var/cache" -o \
        -path "$system/var/log" -o -path "$system/proc" -o -path "$system/dev" -o -path "$system/tmp" -o \
        -path "$system/var/lib/systemd" \) -prune -o -printf '%P\n' | LC_ALL=C sort
}
cp "$model" "$system/srv/model.gguf" && chmod 644 "$system/srv/model.gguf"
files >"$work/before"
cp "$debs"/libpagedinfer0_*.deb "$debs"/pagedinfer_*.deb "$debs"/pagedinfer-server_*.deb "$system/tmp/"
mapfile -t copies < <(cd "$system" && printf '/%s\n' tmp/*.deb)
in_system apt-get -q update >"$work/update.log" 2>&1 || { tail -n 3 "$work/update.log"; echo "no network in the clean system"; exit 77; }
in_system apt-get -y -q install --no-install-recommends "${copies[@]}" >"$work/apt.log" 2>&1 ||
    { tail -n 20 "$work/apt.log"; echo "apt cannot install the packages"; exit 1; }
in_system id pagedinfer >/dev/null || finding "no user pagedinfer"
[ -e "$system/etc/systemd/system/multi-user.target.wants/pagedinfer.service" ] && finding "the service is enabled before a model is chosen"
[ -f "$system/usr/bin/pagedinfer" ] || finding "no tool"

# The command of the unit, as its user, with the variables of its configuration.
printf 'PAGEDINFER_MODEL=/srv/model.gguf\nPAGEDINFER_PORT=0\n' >>"$system/etc/pagedinfer/pagedinfer.conf"
read -ra command < <(sed -n 's/^ExecStart=//p' "$system/lib/systemd/system/pagedinfer.service")
mapfile -t variables < <(grep -v '^#' "$system/etc/pagedinfer/pagedinfer.conf" | grep .)
"${clean_system_command[@]}" setpriv --reuid pagedinfer --regid pagedinfer --clear-groups env "${variables[@]}" "${command[@]}" \
    >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 600); do grep -qs 'is ready' "$work/server.log" && break; kill -0 $server 2>/dev/null || break; sleep 0.1; done
url=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$work/server.log" | head -n 1)
answer=$(curl -s "$url/v1/chat/completions" -H 'content-type: application/json' -d \
    '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 16}')
grep -q Paris <<<"$answer" || { tail -n 5 "$work/server.log"; finding "the server does not answer: $answer"; }
kill $server
wait $server || finding "the server ends with status $?"

# systemd starts the service at the first connection, in its sandbox.
cat >"$work/service" <<'SCRIPT'
#!/bin/bash
systemctl start pagedinfer.socket
echo "before: $(systemctl is-active pagedinfer.service)"
ask() {
    exec 3<>/dev/tcp/127.0.0.1/8080
    printf 'GET /health HTTP/1.0\r\n\r\n' >&3
    head -n 1 <&3
    exec 3>&-
}
ask
for _ in $(seq 100); do [ "$(systemctl show -P SubState pagedinfer.service)" = running ] && ask | grep -q ' 200 ' && break; sleep 0.5; done
echo "health: $(ask)"
echo "user: $(stat -c %U "/proc/$(systemctl show -P MainPID pagedinfer.service)")"
systemctl stop pagedinfer.socket pagedinfer.service
echo "result: $(systemctl show -P Result pagedinfer.service)"
SCRIPT
boot_system "$work/service" "$work/results"
if [ ! -f "$work/results/output" ]; then
    echo "no booted system: the service has not run"
else
    for line in 'before: inactive' 'health: HTTP/1.1 200 OK' 'user: pagedinfer' 'result: success'; do
        grep -q "^$line" "$work/results/output" || { cat "$work/results/output"; finding "the service: not '$line'"; }
    done
fi

in_system apt-get -y -q purge --autoremove libpagedinfer0 pagedinfer pagedinfer-server >>"$work/apt.log" 2>&1 ||
    { tail -n 20 "$work/apt.log"; finding "apt cannot purge the packages"; }
files >"$work/after"
left=$(diff "$work/before" "$work/after" | grep '^[<>]')
[ -z "$left" ] || finding "purge leaves or removes: $left"
in_system id pagedinfer >/dev/null 2>&1 && finding "purge leaves the user"
[ $bad = 1 ] || echo "deb: ${#packages[@]} packages, lintian clean, one answer, one service, purged"
exit $bad
