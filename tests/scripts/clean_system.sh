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

# boot_system SCRIPT RESULTS: boots the last system with systemd, on an overlay, runs the script there and writes its
# output to RESULTS/output. Its files do not change. 77 = systemd-nspawn or overlays are missing.
boot_system() {
    local script=$1 results=$2 unit=$clean_system_dir/etc/systemd/system rc
    pi_have systemd-nspawn || return 77
    mkdir -p "$results" "$unit/multi-user.target.wants" && cp "$script" "$results/script" && chmod 755 "$results/script"
    printf '%s\n' '[Service]' Type=oneshot "ExecStart=/bin/sh -c 'exec /results/script >/results/output 2>&1'" \
        'ExecStopPost=/bin/systemctl poweroff --no-block' >"$unit/results.service"
    ln -s ../results.service "$unit/multi-user.target.wants/results.service"
    # A machine without systemd has no cgroup hierarchy for it: one is mounted for this command alone.
    timeout 300 unshare -m sh -c 'mount --make-rprivate / && { [ -d /run/systemd/system ] || [ -f /sys/fs/cgroup/cgroup.controllers ] ||
        { mount -t tmpfs cgroups /sys/fs/cgroup && mkdir /sys/fs/cgroup/systemd &&
          mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd; }; } &&
        exec systemd-nspawn -q --register=no --keep-unit --volatile=overlay --bind="$2:/results" -D "$1" -b' \
        sh "$clean_system_dir" "$results" >"$results/boot.log" 2>&1
    rc=$?
    rm -f "$unit/results.service" "$unit/multi-user.target.wants/results.service"
    [ -f "$results/output" ] || return 77
    return $rc
}
