#!/usr/bin/env bash
# Tests the packages of target/dist. The tarball and the Debian package are each installed into a root
# file system that holds nothing but a C library and a shell, the wheel into a new environment of
# Python, and the command runs there. Needs root, or user namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "test-dist: $*" >&2; exit 1; }
[ "${UNSHARED:-}" ] || exec env UNSHARED=1 unshare --user --map-root-user --mount "$0" "$@"

tarball=$(ls target/dist/sluice-*.tar.xz)
package=$(ls target/dist/sluice_*.deb)
wheel=$(ls target/dist/sluice-*.whl)
root=$PWD
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A bare root file system: `libc6`, `libgcc-s1` and a static shell.
(cd "$work" && apt-get -o APT::Sandbox::User=root download -qq libc6 libgcc-s1 busybox-static >/dev/null)
bare() {
    mkdir -p "$1"/{bin,usr/bin,tmp,etc,proc,dev}
    for each in "$work"/*.deb; do dpkg-deb -x "$each" "$1"; done
    for word in sh rm mkdir cp grep; do ln -sf busybox "$1/bin/$word"; done
}

# Runs the command in a root and simulates an experiment there.
try() {
    local root=$1 command=$2
    [ "$(chroot "$root" "$command" --version)" = "sluice $version" ] ||
        fail "$command --version prints another version"
    cp scenarios/first-light.toml "$root/tmp"
    chroot "$root" "$command" run -q /tmp/first-light.toml --backend sim -o /tmp/runs >/dev/null
    [ -s "$root/tmp/runs/report.html" ] || fail "$command wrote no report"
    [ "$(chroot "$root" "$command" list | grep -c fq_codel)" -gt 0 ] || fail "$command lists no fq_codel"
}

bare "$work/tar"
tar -C "$work/tar" -xJf "$tarball"
try "$work/tar" "/$(basename "$tarball" .tar.xz)/bin/sluice"
# Below /usr/local, zsh searches this folder.
[ -s "$work/tar/$(basename "$tarball" .tar.xz)/share/zsh/site-functions/_sluice" ] || fail "zsh does not find the completion"

bare "$work/deb"
dpkg-deb -x "$package" "$work/deb"
try "$work/deb" /usr/bin/sluice
for file in usr/share/man/man1/sluice-run.1.gz usr/share/bash-completion/completions/sluice \
    usr/share/zsh/vendor-completions/_sluice usr/share/sluice/apparmor; do
    [ -s "$work/deb/$file" ] || fail "the package lacks $file"
done
gzip -dc "$work/deb/usr/share/man/man1/sluice-run.1.gz" | grep -q 'sluice\\-run\|sluice-run' || fail "the manual page is empty"
dpkg-deb --field "$package" Depends | grep -q 'libc6 (>= 2.28)' || fail "the package names another glibc"
# Debian 10, whose glibc this is, calls the other library libgcc1.
dpkg-deb --field "$package" Depends | grep -q 'libgcc-s1 | libgcc1' || fail "the package cannot be installed on Debian 10"

# The package's scripts, with a substitute for AppArmor's parser that either reads the profile, as AppArmor 4
# does, or refuses it, as AppArmor 3 does.
dpkg-deb --control "$package" "$work/deb/control"
mkdir -p "$work/deb/etc/apparmor.d" "$work/deb/sys/kernel/security/apparmor"
profile=$work/deb/etc/apparmor.d/sluice
parser_ends() {
    printf '#!/bin/sh\necho "$*" >> /tmp/parser\nexit %s\n' "$1" > "$work/deb/usr/bin/apparmor_parser"
    chmod 755 "$work/deb/usr/bin/apparmor_parser"
}
said() { grep -q -e "$1 .*/etc/apparmor.d/sluice\$" "$work/deb/tmp/parser"; }
[ ! -e "$work/deb/control/conffiles" ] || fail "the package installs files in /etc, whatever the machine's AppArmor"
parser_ends 1
chroot "$work/deb" /control/postinst configure
[ ! -e "$profile" ] || fail "a profile that AppArmor cannot read is installed"
parser_ends 0
chroot "$work/deb" /control/postinst configure
cmp -s packaging/apparmor "$profile" || fail "the profile is not installed"
said --replace || fail "the profile is not loaded"
parser_ends 1
chroot "$work/deb" /control/postinst configure
[ ! -e "$profile" ] || fail "a profile that AppArmor cannot read any more stays"
parser_ends 0
grep -q '^interest-noawait /etc/apparmor.d/abi$' "$work/deb/control/triggers" ||
    fail "a new AppArmor does not get the profile"
chroot "$work/deb" /control/postinst triggered /etc/apparmor.d/abi
cmp -s packaging/apparmor "$profile" || fail "the profile is not installed with a new AppArmor"
chroot "$work/deb" /control/postrm upgrade
[ -e "$profile" ] || fail "an upgrade removes the profile"
chroot "$work/deb" /control/prerm remove
chroot "$work/deb" /control/postrm remove
[ ! -e "$profile" ] || fail "the profile stays after the package"
said --remove || fail "the profile stays loaded after the package"
echo 'profile sluice /usr/local/bin/sluice flags=(unconfined) { userns, }' > "$profile"
chroot "$work/deb" /control/postinst configure
chroot "$work/deb" /control/postrm purge
grep -q /usr/local/bin "$profile" || fail "the user's own profile is replaced"

# The symbols of glibc that the command needs must be in the version that the package names.
newest=$(objdump -T "$work/deb/usr/bin/sluice" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "$newest" GLIBC_2.28 | sort -V | tail -n 1)" = GLIBC_2.28 ] || fail "the command needs $newest"
command_kib=$(($(stat -c %s "$work/deb/usr/bin/sluice") / 1024))
[ "$command_kib" -lt 24414 ] || fail "the command has $command_kib KiB; at most 25 MB are wanted"
kib=$(du -sk --exclude=DEBIAN "$work/deb/usr/bin/sluice" "$work/deb/usr/share/man" "$work/deb/usr/share/doc/sluice" | awk '{ sum += $1 } END { print sum }')
[ "$kib" -lt 24414 ] || fail "the package takes $kib KiB unpacked; at most 25 MB are wanted"

# The time until the command has started and ended: the fastest of twenty, because other programs
# may occupy the processor.
fastest=$(python3 - "$work/deb/usr/bin/sluice" <<'END'
import subprocess, sys, time
def start():
    begun = time.perf_counter()
    subprocess.run([sys.argv[1], "--version"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun
print(f"{min(start() for _ in range(20)) * 1000:.1f}")
END
)
[ "${fastest%.*}" -lt 20 ] || fail "sluice --version takes $fastest ms; at most 20 ms are wanted"

# The wheel: command and package, installed by pip and run from outside the environment.
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"
[ "$("$work/venv/bin/sluice" --version)" = "sluice $version" ] || fail "the wheel's command prints another version"
# The wheel's command is a script; its code is in the extension.
extension=$(ls "$work"/venv/lib/python3*/site-packages/sluice/_sluice*.so)
newest_of_wheel=$(objdump -T "$extension" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "$newest_of_wheel" GLIBC_2.28 | sort -V | tail -n 1)" = GLIBC_2.28 ] || fail "the wheel needs $newest_of_wheel"
wheel_kib=$(unzip -l "$wheel" | awk 'END { print int($1 / 1024) }')
[ "$wheel_kib" -lt 24414 ] || fail "the wheel takes $wheel_kib KiB unpacked; at most 25 MB are wanted"
(cd "$work" && venv/bin/python -c 'import sluice; run = sluice.run(sluice.Scenario("'"$root"'/scenarios/first-light.toml", {"link.queue": "codel", "duration": "3s"})); assert run.figures') ||
    fail "the wheel's package does not run a scenario"
# `sluice sweep` finds the package of its own environment.
(cd "$work" && venv/bin/sluice sweep "$root/scenarios/first-light.toml" --over link.queue=codel --set duration=3s -q -o sweep >/dev/null) ||
    fail "sluice sweep does not find the package"
# Without an installation.
[ "$(UV_CACHE_DIR=$work/uv .venv-dist/bin/uvx --quiet --from "$wheel" sluice --version)" = "sluice $version" ] || fail "uvx does not run the wheel"

.venv-dist/bin/python -m pip install -q --disable-pip-version-check pyyaml==6.0.3
for each in "$tarball" "$wheel"; do
    .venv-dist/bin/python scripts/test-action.py "$each" >"$work/action.log" 2>&1 || { cat "$work/action.log" >&2; fail "the action fails with $each"; }
done
echo "test-dist: tarball and package run in bare roots, the wheel in a new environment; the command has $command_kib KiB," \
    "the package $kib KiB, the wheel $wheel_kib KiB unpacked; --version takes $fastest ms; needs $newest"
