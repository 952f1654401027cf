#!/bin/bash
# A throw-away machine for tests: a real systemd as PID 1 of its own namespaces, on a copy-on-write view of this machine's
# files, with the upper layer in memory. It boots in one or two seconds and leaves nothing behind.
#
#   machine.sh up FOLDER [OPTION OF systemd-nspawn]...   boots; prints running, or degraded where a unit failed
#   machine.sh exec FOLDER COMMAND...                    runs a command in it, as root, and ends with its exit code
#   machine.sh down FOLDER                               powers it off and removes FOLDER
#
# The last part of FOLDER is the machine's name. What is in FOLDER/prep is laid over / before the boot. With LAB_NETNS, the
# path of a network namespace, the machine joins that one; else it has one of its own, with nothing but lo.
#
# Needs root, systemd-nspawn (Debian: apt-get install systemd-container), overlayfs and cgroup2. Known limits inside: /tmp
# is a fresh tmpfs; MemoryMax, TasksMax and CPUQuota are not enforced; OOMScoreAdjust cannot be negative.
set -euo pipefail

verb=$1
folder=$(readlink -m "$2")
name=$(basename "$folder")
shift 2

# Units of the machine around us that would only take time, or fail, in this one.
MASKED="apt-daily.timer apt-daily-upgrade.timer avahi-daemon.service avahi-daemon.socket console-getty.service
    dpkg-db-backup.timer e2scrub_all.timer
    e2scrub_reap.service getty.target man-db.timer nftables.service postgresql.service postgresql@.service systemd-logind.service
    systemd-modules-load.service systemd-networkd.service systemd-timesyncd.service systemd-udevd.service
    systemd-update-utmp.service systemd-update-utmp-runlevel.service tmp.mount"

# In a mount namespace of its own, so that every mount ends with the machine.
boot() {
    echo $$ >"$cgroup/cgroup.procs"
    [ ! -d "$legacy" ] || echo $$ >"$legacy/cgroup.procs"
    mkdir -p "$folder/layers"
    mount -t tmpfs -o mode=755 tmpfs "$folder/layers"
    cd "$folder/layers"
    mkdir -p upper/etc/systemd/system work root
    tr -d - </proc/sys/kernel/random/uuid >upper/etc/machine-id
    echo "$name" >upper/etc/hostname
    : >upper/etc/fstab
    for unit in $MASKED; do ln -sf /dev/null "upper/etc/systemd/system/$unit"; done
    cp -a "$folder/prep/." upper/
    mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
    export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
    exec systemd-nspawn --quiet --directory="$folder/layers/root" --machine="$name" --keep-unit --register=no \
        "$network" --link-journal=no --resolv-conf=off --timezone=off --console=pipe --system-call-filter=bpf \
        --capability=CAP_BPF,CAP_NET_ADMIN,CAP_PERFMON --boot "$@" systemd.unit=multi-user.target
}

# The process that is PID 1 inside.
find_leader() {
    for _ in $(seq 500); do
        kill -0 "$nspawn" 2>/dev/null || return 1
        # shellcheck disable=SC2013  # process ids, all on one line
        for pid in $(cat "/proc/$nspawn/task/"*/children 2>/dev/null); do
            if [ "$(awk '/^NSpid/ { print $NF }' "/proc/$pid/status" 2>/dev/null)" = 1 ]; then
                echo "$pid" >"$folder/leader"
                return 0
            fi
        done
        sleep 0.02
    done
    return 1
}

wait_until_booted() {
    for _ in $(seq 600); do
        state=$(run_inside systemctl is-system-running 2>/dev/null || true)
        case $state in running | degraded) echo "$state" && return 0 ;; esac
        sleep 0.05
    done
    return 1
}

run_inside() {
    nsenter --target "$(cat "$folder/leader")" --all --wdns=/ \
        env -i HOME=/root LANG=C.UTF-8 SYSTEMD_PAGER=cat SYSTEMD_COLORS=0 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

up() {
    cgroup=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)/lab-$name
    legacy=/sys/fs/cgroup/systemd/lab-$name # where systemd still has a hierarchy of the first kind beside it
    network=--private-network
    [ -z "${LAB_NETNS:-}" ] || network=--network-namespace-path=$LAB_NETNS
    mkdir -p "$folder/prep" "$cgroup"
    [ ! -d /sys/fs/cgroup/systemd ] || mkdir -p "$legacy"
    echo "$cgroup" >"$folder/cgroup"
    export verb=boot folder name cgroup legacy network MASKED
    export -f boot
    unshare --mount --propagation private bash -euc 'boot "$@"' boot "$@" </dev/null >"$folder/console.log" 2>&1 &
    nspawn=$!
    echo "$nspawn" >"$folder/nspawn.pid"
    if ! find_leader || ! wait_until_booted; then
        cat "$folder/console.log" >&2
        echo "the machine did not boot" >&2
        exit 1
    fi
}

down() {
    if [ ! -e "$folder/nspawn.pid" ]; then # it never came so far
        rm -rf "$folder"
        return
    fi
    nspawn=$(cat "$folder/nspawn.pid")
    leader=$(cat "$folder/leader" 2>/dev/null || echo)
    if [ -n "$leader" ]; then
        kill -s RTMIN+4 "$leader" 2>/dev/null || true # systemd powers off
    fi
    for _ in $(seq 100); do
        kill -0 "$nspawn" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$nspawn" 2>/dev/null || true
    for each in "$(cat "$folder/cgroup")" "/sys/fs/cgroup/systemd/lab-$name"; do
        [ ! -d "$each" ] || find "$each" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    done
    rm -rf "$folder"
}

case $verb in
up) up "$@" ;;
exec) run_inside "$@" ;;
down) down ;;
*) echo "machine.sh: no verb $verb" >&2 && exit 2 ;;
esac
