#!/usr/bin/env bash
# Checks the systemd unit with `systemd-analyze verify`: `scripts/check-unit.sh SLUICE`. Whatever systemd
# would warn about is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

sluice=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The program need not be installed.
sed "s|/usr/bin/sluice |$sluice |" packaging/sluice-router@.service > "$folder/sluice-router@.service"
grep -q "^ExecStart=$sluice router" "$folder/sluice-router@.service"

said=$(systemd-analyze verify --man=no "$folder/sluice-router@check.service" 2>&1) || true
if [ -n "$said" ]; then
    echo "systemd-analyze verify: $said" >&2
    exit 1
fi
