#!/usr/bin/env bash
# Builds the packages in target/dist: a tarball and a Debian package, which hold the command, its
# manual pages, its completion scripts and an AppArmor profile; and a wheel, which holds the Python
# package, whose extension is also the command. `DIST_PROFILE=quick` builds faster, for tests of this script.
set -euo pipefail
cd "$(dirname "$0")/.."

arch=$(uname -m)
case $arch in
    x86_64) debian=amd64 ;;
    aarch64) debian=arm64 ;;
    *) echo "dist: no package for $arch: x86_64 and aarch64 are supported" >&2; exit 1 ;;
esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# The glibc of Debian 10 and RHEL 8. The linker that comes with Zig can target an older glibc than
# the machine's own.
target=$arch-unknown-linux-gnu
glibc=2.28
profile=${DIST_PROFILE:-dist}

scripts/setup.sh dist
PATH=$PWD/.venv-dist/bin:$PATH
cargo zigbuild --locked --quiet -p sluice-cli \
    --profile "$profile" --target "$target.$glibc"
built=target/$target/$profile/sluice

name=sluice-$version-$arch-linux
tree=target/dist/$name
rm -rf "$tree"
install -D -m 755 "$built" "$tree/bin/sluice"
"$built" manual "$tree/share/man/man1"
gzip -n -9 "$tree"/share/man/man1/*.1
mkdir -p "$tree/share/bash-completion/completions" "$tree/share/zsh/site-functions" \
    "$tree/share/fish/vendor_completions.d"
"$built" completion bash > "$tree/share/bash-completion/completions/sluice"
"$built" completion zsh > "$tree/share/zsh/site-functions/_sluice"
"$built" completion fish > "$tree/share/fish/vendor_completions.d/sluice.fish"
install -D -m 644 packaging/apparmor "$tree/share/doc/sluice/apparmor"
install -m 644 packaging/sluice-router@.service packaging/sysusers.conf "$tree/share/doc/sluice/"
install -m 644 README.md LICENSE-APACHE LICENSE-BSD "$tree/share/doc/sluice"
gzip -n -9 < CHANGELOG.md > "$tree/share/doc/sluice/changelog.gz"

# Owner, order and time do not depend on the builder.
stamp=$(git log -1 --format=%ct 2>/dev/null || date +%s)
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$stamp" \
    -C target/dist -cJf "target/dist/$name.tar.xz" "$name"

root=target/dist/deb
rm -rf "$root"
mkdir -p "$root/DEBIAN"
cp -r "$tree" "$root/usr"
# zsh of Debian searches /usr/local/share/zsh/site-functions, but no such folder in /usr/share.
mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
# Not in /etc/apparmor.d: only AppArmor 4 and later can read it, so `postinst` copies it there.
install -D -m 644 packaging/apparmor "$root/usr/share/sluice/apparmor"
rm "$root/usr/share/doc/sluice/apparmor"
install -D -m 644 packaging/sluice-router@.service "$root/usr/lib/systemd/system/sluice-router@.service"
install -D -m 644 packaging/sysusers.conf "$root/usr/lib/sysusers.d/sluice.conf"
rm "$root/usr/share/doc/sluice/sluice-router@.service" "$root/usr/share/doc/sluice/sysusers.conf"
sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$debian/" \
    -e "s/@KIB@/$(du -sk --exclude=DEBIAN "$root" | cut -f1)/" packaging/control > "$root/DEBIAN/control"
install -m 755 packaging/postinst packaging/prerm packaging/postrm "$root/DEBIAN"
install -m 644 packaging/triggers "$root/DEBIAN"
SOURCE_DATE_EPOCH=$stamp dpkg-deb --root-owner-group --build "$root" \
    "target/dist/sluice_${version}_$debian.deb" >/dev/null

rm -f target/dist/*.whl
maturin build --quiet --locked --zig --profile "$profile" --target "$target" \
    --compatibility "manylinux_${glibc/./_}" --out target/dist

ls -l target/dist/*.tar.xz target/dist/*.deb target/dist/*.whl
