#!/usr/bin/env bash
# Checks the systemd unit: `scripts/check-unit.sh SLUICE`. Whatever `systemd-analyze verify` would warn about
# is an error, and so is a setting that closes the devices a router opens (/dev/net/tun,
# /dev/cpu_dma_latency) under any version of systemd.
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

# systemd.exec(5) and systemd.resource-control(5): each of them restricts devices. ProtectClock= does so in
# versions before 253.
if grep -nE '^(ProtectClock|PrivateDevices|DeviceAllow|DevicePolicy)=' packaging/sluice-router@.service; then
    echo "check-unit.sh: this setting closes /dev/net/tun and /dev/cpu_dma_latency" >&2
    exit 1
fi
