#!/usr/bin/env bash
# Checks that other tools read the output of `sluice export`: stock flent renders its plots, tshark shows
# the comments. `scripts/test-exports.sh SLUICE [FOLDER]`; the pictures stay in FOLDER.
set -euo pipefail
cd "$(dirname "$0")/.."
sluice=$1
out=${2:-artifacts/exports}
flent=.venv-flent/bin/flent
rm -rf "$out"
mkdir -p "$out"

die() { echo "test-exports: $*" >&2; exit 1; }

"$sluice" run scripts/exports.toml --backend sim --quiet -o "$out/runs" >/dev/null
"$sluice" export "$out/runs" --flent "$out/run.flent.gz" --pcapng "$out" >/dev/null
for variant in fifo fq_codel; do
    for plot in all_scaled totals ping_cdf box_totals tcp_cwnd; do
        picture=$out/$variant-$plot.png
        # flent writes an empty file and returns status 0 if it finds nothing to plot.
        MPLBACKEND=Agg $flent -i "$out/run-$variant.flent.gz" -p $plot -o "$picture" >"$out/flent.log" 2>&1 ||
            die "flent cannot plot $plot of $variant: $(tail -n 1 "$out/flent.log")"
        [ "$(stat -c %s "$picture")" -gt 10000 ] || die "flent's $plot of $variant is empty"
    done
done
MPLBACKEND=Agg $flent -i "$out/run-fifo.flent.gz" -i "$out/run-fq_codel.flent.gz" -p box_combine \
    -o "$out/box_combine.png" >/dev/null 2>&1 || die "flent cannot plot both runs together"

# The scenarios named after flent's tests, each exported as that test, with the plots of the test.
plots() { # SCENARIO TEST PLOT...
    local scenario=$1 test=$2 plot picture
    shift 2
    "$sluice" run "scenarios/flent/$scenario.toml" --backend sim --quiet --set link.queue=fq_codel -o "$out/flent/$scenario" \
        >/dev/null
    "$sluice" export "$out/flent/$scenario" --flent "$out/$scenario.flent.gz" --flent-test "$test" >/dev/null
    for plot in "$@"; do
        picture=$out/$scenario-$plot.png
        MPLBACKEND=Agg $flent -i "$out/$scenario.flent.gz" -p "$plot" -o "$picture" >"$out/flent.log" 2>&1 ||
            die "flent cannot plot $plot of $scenario: $(tail -n 1 "$out/flent.log")"
        [ "$(stat -c %s "$picture")" -gt 8000 ] || die "flent's $plot of $scenario is empty"
    done
}
plots rrul rrul all_scaled totals ping_cdf box_totals tcp_cwnd
plots rrul_be rrul_be all_scaled totals ping_cdf box_totals tcp_cwnd
plots rtt_fair_var rtt_fair_var all_scaled totals ping_cdf box_totals bar_fairness
plots voip-1up voip-1up voip_delay voip_delay_cdf voip_loss voip_mos_combine totals_loss
plots http-1up http-1up http_delay http_delay_cdf totals
plots tcp_upload tcp_upload totals ping_cdf box_totals tcp_cwnd
plots tcp_download tcp_download totals ping_cdf box_totals
plots tcp_bidirectional tcp_bidirectional totals ping_cdf box_totals
plots tcp_4up_squarewave tcp_nup totals ping_cdf bar_fairness
plots udp_flood udp_flood totals ping_cdf
plots ping ping ping ping_cdf

comments() { tshark -r "$1" -Y frame.comment -T fields -e frame.comment 2>/dev/null; }
expect() { # FILE WORD COUNT
    local seen
    seen=$(comments "$1" | grep -c "^$2" || true)
    [ "$seen" -gt 0 ] && [ "$seen" = "$3" ] || die "tshark shows $seen comments '$2' in $1, not $3"
}
# The packets that were dropped after their arrival at either port, or that left through either port
# with a mark.
count() { # VARIANT VERDICT PIPE
    "$sluice" export "$out/runs/$1" --csv "$out/csv" >/dev/null
    awk -F, -v verdict="$2" -v pipe="$3" '$8 == verdict && $12 == pipe' "$out/csv/packets.csv" | wc -l
}
expect "$out/fifo-h2.pcapng" dropped "$(count fifo dropped up)"
expect "$out/fifo-h3.pcapng" dropped "$(count fifo dropped down)"
marks=$(($(count fq_codel marked up) + $(count fq_codel marked down)))
expect "$out/fq_codel-h3.pcapng" "marked CE" "$marks"
scripts/test-captures.py "$sluice" "$out/captures"
echo "flent renders all_scaled, totals, ping_cdf, box_totals, tcp_cwnd and the plots of its other tests; tshark shows every drop and mark"
