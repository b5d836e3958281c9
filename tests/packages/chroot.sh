#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chroot.sh - try the Debian package, the wheel's binaries, and a fresh clone, in a bare system, like a new user.
#
# usage: chroot.sh [bookworm|bionic|jammy|noble] [deb] [wheel] [clone]
#
# Debian 12 (the default), Ubuntu 18.04 (its glibc is 2.27: for the wheel alone), 22.04 or 24.04. deb (the default) and wheel
# are those of dist/; clone builds, which takes minutes.
#
# Needs root, debootstrap and the system's mirror; `clone` also the package index. All files are in a temporary folder.
# Exit status 77: one of these is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/common.sh

[ "$(id -u)" -eq 0 ] && have debootstrap || { say "SKIP: needs root and debootstrap"; exit 77; }
root=$(mktemp -d)
leave() {
    umount -q "$root/dev/shm" "$root/proc" || true
    rm -rf --one-file-system "$root"
}
trap leave EXIT
# Debian lacks Ubuntu's keys, and Debian 12's debootstrap lacks a script for noble.
case "${1:-}" in
bionic | jammy | noble)
    system=(--no-check-gpg --components=main,universe "$1" "$root" http://archive.ubuntu.com/ubuntu
        /usr/share/debootstrap/scripts/jammy)
    shift
    ;;
bookworm)
    system=("$1" "$root")
    shift
    ;;
*) system=(bookworm "$root") ;;
esac
debootstrap --variant=minbase "${system[@]}" >"$root.log" 2>&1 || { tail -n 3 "$root.log"; say "SKIP: no ${system[*]}"; exit 77; }
rm -f "$root.log"
mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
cp /etc/resolv.conf "$root/etc/resolv.conf"

# inside COMMAND: in the chroot, with a bare environment.
inside() {
    local more=()
    if [ -n "${PIP_CERT:-}" ]; then
        cp -L "$PIP_CERT" "$root/root/certificates"
        more=(PIP_CERT=/root/certificates)
    fi
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "${more[@]}" bash -euc "$1"
}

files='find / -xdev -not -path "/proc*" -not -path "/var/lib/dpkg*" -not -path "/var/log*" -not -path "/tmp/*" | sort'

for part in "${@:-deb}"; do
    case "$part" in
    deb)
        cp dist/shunt_*.deb "$root/tmp/shunt.deb"
        inside "$files >/tmp/before
            dpkg -i /tmp/shunt.deb && shunt info && shunt bench -g 2 -b 1K -e 4K
            if ldconfig -p | grep libnccl; then exit 1; fi
            dpkg --purge shunt
            $files >/tmp/after && diff /tmp/before /tmp/after"
        ;;
    wheel)
        python3 -m zipfile -e dist/shunt_nccl-*.whl "$root/opt"
        chmod 755 "$root/opt/shunt/bin/shunt"
        inside 'shunt=/opt/shunt/bin/shunt
            LD_BIND_NOW=1 $shunt info && $shunt run --audit -- $shunt bench -g 2 -b 1K -e 4K'
        ;;
    clone)
        git clone -q . "$root/root/shunt"
        inside 'cd /root/shunt && time ./scripts/bench -g 2 -b 1K -e 4K'
        ;;
    *)
        say "there is no part $part"
        exit 2
        ;;
    esac
    say "$part: passed"
done
