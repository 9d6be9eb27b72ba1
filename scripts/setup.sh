#!/usr/bin/env bash
# Prepares a fresh Debian or Ubuntu machine: `scripts/setup.sh [web] [python] [docs] [dist] [chromium] [tshark] [flent] [ns3] [programs] [wasm] [mininet] [iperf3] [clients] [systemd] [miri]`.
# Toolchains are checked, never installed, except a nightly Rust beside the default one for Miri. System packages are installed by root, else reported.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "setup: $*" >&2; exit 1; }

# at_least NAME HAVE WANT HINT
at_least() {
    [ "$(printf '%s\n%s\n' "$3" "$2" | sort -V | head -n 1)" = "$3" ] ||
        die "$1 $2 is too old: $3 or newer is needed ($4)"
}

need_rust() {
    command -v cargo >/dev/null || die "cargo is missing: install Rust 1.90 or newer (https://rustup.rs)"
    at_least Rust "$(rustc --version | cut -d' ' -f2)" 1.90.0 "rustup update"
    command -v cc >/dev/null || system_packages cc gcc libc6-dev
}

need_node() {
    command -v node >/dev/null || die "node is missing: install Node 20 or newer (https://nodejs.org)"
    at_least Node "$(node --version | tr -d v)" 20.0.0 "https://nodejs.org"
}

need_python() {
    command -v python3 >/dev/null || die "python3 is missing: install Python 3.11 or newer"
    at_least Python "$(python3 -c 'import platform; print(platform.python_version())')" 3.11.0 "apt-get install python3"
}

# again COMMAND...: a download; repeated after pauses, because a server or a name may be unreachable for a while.
again() {
    local pause
    for pause in 10 40 90; do
        "$@" && return
        echo "setup: '$1' failed; the next attempt is in $pause s" >&2
        sleep "$pause"
    done
    "$@"
}

# apt_install PACKAGE...: with new lists, because a mirror removes the packages that old lists name.
apt_install() {
    apt-get update -qq -o Acquire::Retries=3 >/dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=3 \
            --no-install-recommends "$@" >/dev/null
}

# system_packages WHAT PACKAGE...: installs the packages as root, else prints the command.
system_packages() {
    local what=$1
    shift
    if [ "$(id -u)" != 0 ]; then
        die "$what is missing: run 'sudo apt-get install $*' and call make again"
    fi
    command -v apt-get >/dev/null || die "$what is missing and there is no apt-get: install $*"
    echo "setup: installing $*" >&2
    again apt_install "$@"
}

# environment FOLDER: an environment of Python, for packages that are not the system's.
environment() {
    python3 -m venv "$1" 2>/dev/null || {
        # Debian's Python has the module without what it needs, and leaves half an environment.
        rm -rf "$1"
        system_packages "Python's venv module" python3-venv
        python3 -m venv "$1"
    }
}

web() {
    need_node
    if [ ! -d web/node_modules ] || [ web/package-lock.json -nt web/node_modules/.installed ]; then
        (cd web && again npm ci --no-audit --no-fund --loglevel=error)
        touch web/node_modules/.installed
    fi
}

python() {
    need_python
    if [ ! -x .venv/bin/python ]; then
        environment .venv
    fi
    if [ ! -f .venv/.installed ] || [ python/requirements-dev.lock -nt .venv/.installed ]; then
        again .venv/bin/pip install -q --disable-pip-version-check -r python/requirements-dev.lock
        touch .venv/.installed
    fi
}

# mdBook without its server. A debug build takes 80 s of processor time, once, and builds the site in 2 s.
docs() {
    need_python
    local version=0.5.4
    if [ "$(target/tools/bin/mdbook --version 2>/dev/null)" != "mdbook v$version" ]; then
        echo "setup: building mdBook $version" >&2
        again cargo install --quiet --locked --debug --root target/tools --version "$version" \
            --no-default-features --features search mdbook
    fi
    programs
    type -P ip >/dev/null || system_packages "ip (for a tutorial)" iproute2
}

chromium() {
    # type -P: `command -v` would find this function.
    { type -P chromium || type -P chromium-browser || type -P google-chrome; } >/dev/null ||
        system_packages "Chromium (for the tests of the report)" chromium
}

tshark() {
    type -P tshark >/dev/null || system_packages "tshark (for the tests of exported captures)" tshark
}

# flent is in a separate environment: no part of Sluice needs it.
flent() {
    python
    if [ ! -f .venv-flent/.installed ]; then
        environment .venv-flent
        again .venv-flent/bin/pip install -q --disable-pip-version-check flent==2.3.0 matplotlib==3.11.2 numpy==2.4.6
        touch .venv-flent/.installed
    fi
}

# Zig's linker is in a separate environment. It builds a command that runs with an old glibc.
dist() {
    need_python
    if [ ! -f .venv-dist/.installed ] || [ scripts/setup.sh -nt .venv-dist/.installed ]; then
        environment .venv-dist
        again .venv-dist/bin/pip install -q --disable-pip-version-check cargo-zigbuild==0.24.0 ziglang==0.17.1 \
            maturin==1.16.0 uv==0.13.9
        touch .venv-dist/.installed
    fi
    type -P dpkg-deb >/dev/null || system_packages "dpkg-deb (for the Debian package)" dpkg
    type -P xz >/dev/null || system_packages "xz (for the tarball)" xz-utils
}

# ns-3 is in a separate environment: only the benchmark that compares with it needs it.
ns3() {
    need_python
    if [ ! -f .venv-ns3/.installed ]; then
        environment .venv-ns3
        again .venv-ns3/bin/pip install -q --disable-pip-version-check ns3==3.44.post0
        touch .venv-ns3/.installed
    fi
}

# The measuring tools of scenarios/programs. netperf is not free software in Debian's sense, so the
# tests do not need it.
programs() {
    type -P iperf3 >/dev/null || system_packages "iperf3 (for scenarios/programs)" iperf3
    type -P ping >/dev/null || system_packages "ping (for scenarios/programs)" iputils-ping
}

# Zig is in a separate environment: only modules of other languages need it.
wasm() {
    need_python
    if [ ! -f .venv-zig/.installed ]; then
        environment .venv-zig
        again .venv-zig/bin/pip install -q --disable-pip-version-check ziglang==0.17.1
        touch .venv-zig/.installed
    fi
    type -P clang >/dev/null && type -P wasm-ld >/dev/null ||
        system_packages "clang with lld (for the tests of modules)" clang lld
    rust_for_wasm rustc || rust_for_wasm /usr/bin/rustc ||
        system_packages "Rust for WebAssembly (for the tests of modules)" rustc libstd-rust-dev-wasm32
}

# rust_for_wasm RUSTC: whether this compiler can build modules.
rust_for_wasm() {
    [ -d "$("$1" --print target-libdir --target wasm32-unknown-unknown 2>/dev/null || echo none)" ]
}

# Miri is part of nightly Rust only, so its day is fixed here.
miri() {
    local nightly=nightly-2026-05-20
    cargo +$nightly miri --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null || die "rustup is missing: Miri is part of nightly Rust only (https://rustup.rs)"
    echo "setup: installing $nightly with Miri" >&2
    again timeout 300 rustup -q toolchain install $nightly --no-self-update --profile minimal -c miri -c rust-src \
        >/dev/null || die "$nightly with Miri cannot be installed"
}

# Mininet of Debian, and in a separate environment the newest of PyPI, which needs Debian's `mnexec`.
mininet() {
    need_python
    { type -P mn && type -P brctl; } >/dev/null ||
        system_packages "Mininet (for its links)" mininet bridge-utils iputils-ping iproute2
    if [ ! -f .venv-mininet/.installed ]; then
        environment .venv-mininet
        again .venv-mininet/bin/pip install -q --disable-pip-version-check mininet==2.3.0.dev6 setuptools==80.9.0
        touch .venv-mininet/.installed
    fi
}

iperf3() {
    need_python
    type -P iperf3 >/dev/null || system_packages "iperf3 (for the tests of links)" iperf3
    type -P ping >/dev/null || system_packages "ping (for the tests of links)" iputils-ping
    type -P ip >/dev/null || system_packages "ip (for the tests of links)" iproute2
}

# The program that checks units; nothing is started.
systemd() {
    type -P systemd-analyze >/dev/null || system_packages "systemd-analyze (for the check of the unit)" systemd
}

clients() {
    need_python
    need_node
    type -P curl >/dev/null || system_packages "curl (for the tests of programs)" curl ca-certificates
    type -P git >/dev/null || system_packages "git (for the tests of programs)" git
}

need_rust
for part in "$@"; do
    case $part in
        web | python | docs | dist | chromium | tshark | flent | ns3 | programs | wasm | mininet | iperf3 | clients | systemd | miri) "$part" ;;
        *) die "unknown part '$part': web, python, docs, dist, chromium, tshark, flent, ns3, programs, wasm, mininet, iperf3, clients, systemd or miri" ;;
    esac
done
