#!/bin/bash
# Boots a systemd of its own over a throwaway copy of this machine's root, runs a script there as
# root, and powers it off. Needs root, and namespaces to be allowed.
#
#   boot.sh RESULTS SCRIPT [SOURCE=TARGET]...
#
# What SCRIPT prints, and its exit status, are in the folder RESULTS afterwards, as `output` and
# `status`; what systemd said of itself is in `console`. Each SOURCE is seen at TARGET there,
# read-only. Of what happens there nothing is left: process IDs, mounts, network, cgroups and host
# name are its own, the root file system is an overlay in memory, and the only network interface
# is loopback.
set -eu

if [ "${1-}" != inside ]; then
    results=$(realpath "$1")
    scratch=$(mktemp -d)
    trap 'rmdir "$scratch"' EXIT
    unshare --fork --kill-child --mount-proc --pid --mount --uts --ipc --net --cgroup \
        "$0" inside "$scratch" "$results" "${@:2}" >"$results/console" 2>&1 </dev/null
    exit
fi
scratch=$2 results=$3 script=$(realpath "$4")
shift 4

mount --make-rprivate /
mount -t tmpfs -o mode=755 boot "$scratch"
mkdir "$scratch"/{upper,work,root}
root=$scratch/root
mount -t overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" overlay "$root"

for folder in run tmp var/tmp dev; do
    mount -t tmpfs -o "mode=$([[ $folder == *tmp ]] && echo 1777 || echo 755)" boot "$root/$folder"
done
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root"/dev/{pts,shm}
mount -t devpts -o newinstance devpts "$root/dev/pts"
mount -t tmpfs boot "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"

mkdir -p "$root"/run/{systemd/system,lock,boot/results}
mount --bind "$results" "$root/run/boot/results"
install -m 755 "$script" "$root/run/boot/script"
for pair; do
    target=$root/${pair#*=}
    if [ -d "${pair%%=*}" ]; then mkdir -p "$target"; else install -D /dev/null "$target"; fi
    mount --bind "${pair%%=*}" "$target"
    mount -o remount,bind,ro "$target"
done

# Nothing of what this machine would start is wanted here: one target, with the script.
cat >"$root/run/systemd/system/boot-script.service" <<'UNIT'
[Unit]
DefaultDependencies=no
After=systemd-journald.service
[Service]
Type=oneshot
StandardOutput=append:/run/boot/results/output
StandardError=inherit
ExecStartPre=/bin/sh -c "ip link set lo up"
ExecStart=/bin/sh -c "/run/boot/script; echo $$? >/run/boot/results/status"
ExecStopPost=/bin/sh -c "systemctl poweroff --force --force >/dev/null 2>&1"
UNIT
cat >"$root/run/systemd/system/boot.target" <<'UNIT'
[Unit]
DefaultDependencies=no
AllowIsolate=yes
Wants=boot-script.service systemd-journald.service
UNIT

mkdir "$root/run/before"
cd "$root"
pivot_root . run/before
umount -l /run/before
# Any name but none: systemd then leaves the kernel's own affairs alone.
container=test exec /lib/systemd/systemd --system --unit=boot.target \
    --log-target=console --show-status=no
