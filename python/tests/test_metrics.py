"""The metrics of a router are valid OpenMetrics, by the parser of Prometheus' own client."""

from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

METRICS = Path(__file__).parents[2] / "crates" / "http" / "tests" / "metrics.txt"


def test_metrics_are_valid_openmetrics() -> None:
    families = {
        family.name: family for family in text_string_to_metric_families(METRICS.read_text())
    }
    # The parser refuses missing units, wrong suffixes, buckets that decrease, and repeated series.
    assert families["sluice_sojourn_seconds"].type == "histogram"
    assert families["sluice_sojourn_seconds"].unit == "seconds"
    dropped = families["sluice_object_dropped_packets"].samples
    assert {s.labels["object"]: s.value for s in dropped if s.value > 0} == {"pipe 1": 7.0}
    # A reason that has not dropped a packet yet is 0.
    assert {s.value for s in dropped if s.labels["reason"] == "congestion"} == {0.0}
    assert (
        families["sluice_port_received_bytes"].samples[0].name == "sluice_port_received_bytes_total"
    )
