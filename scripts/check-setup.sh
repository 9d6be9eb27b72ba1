#!/usr/bin/env bash
# Checks that each part of scripts/setup.sh that makes an environment of Python names the package which a fresh
# Debian or Ubuntu lacks for it, that downloads are repeated, and that Miri is not left out silently. The programs are substitutes; nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/scripts"
cp scripts/setup.sh "$folder/scripts"
substitute() { printf '#!/bin/sh\n%s\n' "$2" > "$folder/bin/$1" && chmod 755 "$folder/bin/$1"; }
for name in cargo cc mn brctl apt-get; do substitute "$name" 'exit 0'; done
substitute rustc 'echo "rustc 99.0.0"'
substitute id 'echo 1000'
# Python without ensurepip, which leaves half an environment.
substitute python3 '[ "$2" != venv ] || { mkdir -p "$3/bin"; exit 1; }; echo 99.0.0'

if sed '/^environment() {/,/^}/d' scripts/setup.sh | grep -e '-m venv' >&2; then
    echo "check-setup.sh: each environment must be made by the function 'environment'" >&2
    exit 1
fi
for part in python flent dist ns3 wasm mininet; do
    said=$(PATH=$folder/bin:$PATH "$folder/scripts/setup.sh" "$part" 2>&1) && said="no error; $said"
    case $said in
        *"run 'sudo apt-get install python3-venv'"*) ;;
        *) echo "check-setup.sh: setup.sh $part says: $said" >&2; exit 1 ;;
    esac
    left=$(find "$folder" -maxdepth 1 -name '.venv*')
    [ -z "$left" ] || { echo "check-setup.sh: setup.sh $part leaves $left" >&2; exit 1; }
done

# A download that fails is repeated after a pause; apt-get gets new lists before.
substitute sleep 'exit 0'
substitute id 'echo 0'
substitute apt-get 'echo "$1" >> apt-get; [ "$(wc -l < apt-get)" != 2 ]'
substitute pip 'echo "$1" >> pip; [ "$(wc -l < pip)" = 3 ]'
substitute python3 '[ "$2" != venv ] || { mkdir -p "$3/bin"; [ -e apt-get ] || exit 1; cp bin/pip "$3/bin"; }; echo 99.0.0'
said=$(PATH=$folder/bin:$PATH "$folder/scripts/setup.sh" ns3 2>&1) || {
    echo "check-setup.sh: downloads that fail once and twice end setup.sh: $said" >&2
    exit 1
}
asked=$(tr '\n' ' ' < "$folder/apt-get")
if [ "$asked" != "update install update install " ] || [ ! -e "$folder/.venv-ns3/.installed" ]; then
    echo "check-setup.sh: after a failed install, apt-get is called as: $asked; setup.sh says: $said" >&2
    exit 1
fi
# One that fails every time is an error.
substitute pip 'exit 1'
rm -r "$folder/.venv-ns3"
if PATH=$folder/bin:$PATH "$folder/scripts/setup.sh" ns3 >/dev/null 2>&1 || [ -e "$folder/.venv-ns3/.installed" ]; then
    echo "check-setup.sh: setup.sh succeeds without a download" >&2
    exit 1
fi

# Miri: a download that fails once is repeated. Without it, root and CI fail, others are warned.
substitute cargo 'case $1 in +*) exit 1;; esac'
substitute rustup 'echo "$1" >> rustup; [ "$(wc -l < rustup)" = 2 ]'
PATH=$folder/bin:$PATH "$folder/scripts/setup.sh" miri >/dev/null 2>&1 || {
    echo "check-setup.sh: a download of Miri that fails once ends setup.sh" >&2
    exit 1
}
substitute rustup 'exit 1'
# miri USER CI WITHOUT_MIRI: the status of `make test-miri`, which prints what has not been run.
miri() {
    substitute id "echo $1"
    said=$(env -u MAKEFLAGS -u MAKELEVEL PATH="$folder/bin:$PATH" CI="$2" WITHOUT_MIRI="$3" \
        make -s test-miri 2>&1) && status=0 || status=1
    case $said in
        *"NOT RUN"*) echo $status ;;
        *) echo "says nothing: $said" ;;
    esac
}
found="$(miri 0 '' '') $(miri 1000 1 '') $(miri 1000 '' '') $(miri 0 1 1)"
if [ "$found" != "1 1 0 0" ]; then
    echo "check-setup.sh: without Miri, test-miri of root, CI, a user and with WITHOUT_MIRI ends with: $found" >&2
    exit 1
fi
