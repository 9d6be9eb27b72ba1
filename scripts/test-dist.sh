#!/usr/bin/env bash
# Tests the packages of target/dist: each is installed into a root file system that holds nothing
# but a C library and a shell, and the command runs there. Needs root, or user namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "test-dist: $*" >&2; exit 1; }
[ "${UNSHARED:-}" ] || exec env UNSHARED=1 unshare --user --map-root-user --mount "$0" "$@"

tarball=$(ls target/dist/sluice-*.tar.xz)
package=$(ls target/dist/sluice_*.deb)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A bare root: what `libc6`, `libgcc-s1` and a static shell contain.
(cd "$work" && apt-get download -qq libc6 libgcc-s1 busybox-static >/dev/null)
bare() {
    mkdir -p "$1"/{bin,usr/bin,tmp,etc,proc,dev}
    for each in "$work"/*.deb; do dpkg-deb -x "$each" "$1"; done
    for word in sh rm mkdir; do ln -sf busybox "$1/bin/$word"; done
}

# Runs the command in a root and simulates an experiment there.
try() {
    local root=$1 command=$2
    [ "$(chroot "$root" "$command" --version)" = "sluice $(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)" ] ||
        fail "$command --version says something else"
    cp scenarios/first-light.toml "$root/tmp"
    chroot "$root" "$command" run -q /tmp/first-light.toml --backend sim -o /tmp/runs >/dev/null
    [ -s "$root/tmp/runs/report.html" ] || fail "$command wrote no report"
    [ "$(chroot "$root" "$command" list | grep -c fq_codel)" -gt 0 ] || fail "$command lists no fq_codel"
}

bare "$work/tar"
tar -C "$work/tar" -xJf "$tarball"
try "$work/tar" "/$(basename "$tarball" .tar.xz)/bin/sluice"

bare "$work/deb"
dpkg-deb -x "$package" "$work/deb"
try "$work/deb" /usr/bin/sluice
for file in usr/share/man/man1/sluice-run.1.gz usr/share/bash-completion/completions/sluice etc/apparmor.d/sluice; do
    [ -s "$work/deb/$file" ] || fail "the package lacks $file"
done
gzip -dc "$work/deb/usr/share/man/man1/sluice-run.1.gz" | grep -q 'sluice\\-run\|sluice-run' || fail "the manual page is empty"
dpkg-deb --field "$package" Depends | grep -q 'libc6 (>= 2.28)' || fail "the package names another glibc"

# What the command needs of glibc must be in the version that the package names.
newest=$(objdump -T "$work/deb/usr/bin/sluice" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "$newest" GLIBC_2.28 | sort -V | tail -n 1)" = GLIBC_2.28 ] || fail "the command needs $newest"
command_kib=$(($(stat -c %s "$work/deb/usr/bin/sluice") / 1024))
[ "$command_kib" -lt 25000 ] || fail "the command has $command_kib KiB; at most 25 MB are wanted"
echo "test-dist: tarball and package run in bare roots; $command_kib KiB, needs $newest"
