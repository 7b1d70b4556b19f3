# clean_system.sh: a minimal Debian system in a folder, for tests of packages. Sourced by bash; needs root and
# mmdebstrap.

clean_systems=()
clean_systems_end() {
    local dir
    for dir in "${clean_systems[@]}"; do umount "$dir/proc"; done
}

# clean_system DIR PACKAGE...: makes the system, of this machine's release, and mounts /proc there until the shell ends.
# in_system uses the last one; clean_system_dir names it.
# PAGEDINFER_SYSTEM_CACHE names a folder that keeps the system for the next call.
clean_system() {
    local dir=$1 codename cache
    shift
    clean_system_dir=$dir
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ -n "$codename" ] || return 1
    cache=${PAGEDINFER_SYSTEM_CACHE:-$(dirname "$dir")}/system-$codename-$(IFS=-; echo "$*").tar
    [ -f "$cache" ] || mmdebstrap --variant=apt --include="$(IFS=,; echo "$*")" "$codename" "$cache" >"$dir.log" 2>&1 || return 1
    mkdir -p "$dir" && tar -xf "$cache" -C "$dir" --exclude='./dev/*' 2>>"$dir.log" || return 1
    [ -e "$dir/dev/null" ] || mknod -m 666 "$dir/dev/null" c 1 3
    [ -e "$dir/dev/urandom" ] || mknod -m 666 "$dir/dev/urandom" c 1 9
    printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d" # services do not start
    chmod 755 "$dir/usr/sbin/policy-rc.d"
    cp /etc/resolv.conf "$dir/etc/resolv.conf"
    mount -t proc proc "$dir/proc" || return 1
    clean_systems+=("$dir")
    clean_system_command=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
                          chroot "$dir")
    trap clean_systems_end EXIT
}

# in_system COMMAND...: runs it there, without variables of this environment. As an array, "${clean_system_command[@]}" is
# replaced by its command: a background process has the command's id.
in_system() { "${clean_system_command[@]}" "$@"; }
