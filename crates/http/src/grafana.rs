//! A dashboard for Grafana over the metrics of routers.

use serde_json::{Value, json};

/// A panel: its title, its unit in Grafana's words, and its queries, each with the text of its legend.
type Panel = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Returns the dashboard as JSON, for "Import dashboard". It asks for the data source, and lets its
/// reader choose routers and their pipes.
pub fn dashboard() -> String {
    let panels: Vec<Value> = PANELS
        .iter()
        .enumerate()
        .map(|(place, panel)| json_of(place, panel))
        .collect();
    let choice = |name: &str, label: &str, query: &str| {
        json!({
            "name": name,
            "label": label,
            "type": "query",
            "datasource": SOURCE,
            "query": { "query": query, "refId": name },
            "refresh": 2,
            "includeAll": true,
            "multi": true,
            "current": { "text": "All", "value": "$__all" },
        })
    };
    let dashboard = json!({
        "__inputs": [{
            "name": "DS_PROMETHEUS",
            "label": "Prometheus",
            "type": "datasource",
            "pluginId": "prometheus",
        }],
        "title": "Sluice router",
        "uid": "sluice-router",
        "tags": ["sluice"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "10s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            choice("instance", "Router", "label_values(sluice_uptime_seconds, instance)"),
            choice(
                "object",
                "Pipe, scheduler or queue",
                "label_values(sluice_object_backlog_packets{instance=~\"$instance\"}, object)",
            ),
        ] },
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

/// The data source that the reader chooses.
const SOURCE: &str = "${DS_PROMETHEUS}";

/// Columns and rows of a panel, on Grafana's grid of 24 columns.
const SIZE: (usize, usize) = (12, 8);

fn json_of(place: usize, (title, unit, queries): &Panel) -> Value {
    let (width, height) = SIZE;
    let columns = 24 / width;
    let targets: Vec<Value> = queries
        .iter()
        .zip('A'..)
        .map(|((expr, legend), name)| {
            json!({
                "refId": name.to_string(),
                "datasource": SOURCE,
                "expr": expr,
                "legendFormat": legend,
            })
        })
        .collect();
    json!({
        "id": place + 1,
        "title": title,
        "type": "timeseries",
        "datasource": SOURCE,
        "gridPos": {
            "x": place % columns * width,
            "y": place / columns * height,
            "w": width,
            "h": height,
        },
        "fieldConfig": {
            "defaults": { "unit": unit, "min": 0, "custom": { "lineWidth": 1, "showPoints": "never" } },
            "overrides": [],
        },
        "options": { "tooltip": { "mode": "multi" }, "legend": { "displayMode": "list" } },
        "targets": targets,
    })
}

/// Counters by reason have a row for each; the panels show those that have counted something.
const PANELS: [Panel; 10] = [
    (
        "Rate at which packets left",
        "Bps",
        &[(
            "sluice_object_rate_bytes_per_second{instance=~\"$instance\",object=~\"$object\"}",
            "{{object}} {{flow}}",
        )],
    ),
    (
        "Sojourn time",
        "s",
        &[
            (
                "histogram_quantile(0.5, sum by (instance, object, flow, le) (rate(sluice_sojourn_seconds_bucket{instance=~\"$instance\",object=~\"$object\"}[$__rate_interval])))",
                "{{object}} {{flow}} median",
            ),
            (
                "histogram_quantile(0.99, sum by (instance, object, flow, le) (rate(sluice_sojourn_seconds_bucket{instance=~\"$instance\",object=~\"$object\"}[$__rate_interval])))",
                "{{object}} {{flow}} 99 %",
            ),
        ],
    ),
    (
        "Backlog",
        "short",
        &[(
            "sluice_object_backlog_packets{instance=~\"$instance\",object=~\"$object\"}",
            "{{object}} {{flow}}",
        )],
    ),
    (
        "Drops by reason",
        "pps",
        &[(
            "rate(sluice_object_dropped_packets_total{instance=~\"$instance\",object=~\"$object\"}[$__rate_interval]) and sluice_object_dropped_packets_total{instance=~\"$instance\",object=~\"$object\"} > 0",
            "{{object}} {{flow}} {{reason}}",
        )],
    ),
    (
        "CE marks",
        "pps",
        &[(
            "rate(sluice_object_marked_packets_total{instance=~\"$instance\",object=~\"$object\"}[$__rate_interval])",
            "{{object}} {{flow}}",
        )],
    ),
    (
        "State of the AQM",
        "short",
        &[(
            "sluice_object_state{instance=~\"$instance\",object=~\"$object\",variable!~\"drop_next|first_above\"}",
            "{{object}} {{flow}} {{variable}}",
        )],
    ),
    (
        "Ports, received",
        "bps",
        &[(
            "8 * rate(sluice_port_received_bytes_total{instance=~\"$instance\"}[$__rate_interval])",
            "{{instance}} {{port}}",
        )],
    ),
    (
        "Ports, sent",
        "bps",
        &[(
            "8 * rate(sluice_port_sent_bytes_total{instance=~\"$instance\"}[$__rate_interval])",
            "{{instance}} {{port}}",
        )],
    ),
    (
        "Drops and losses of the router",
        "pps",
        &[
            (
                "rate(sluice_dropped_packets_total{instance=~\"$instance\"}[$__rate_interval]) and sluice_dropped_packets_total{instance=~\"$instance\"} > 0",
                "{{instance}} {{reason}}",
            ),
            (
                "rate(sluice_lost_frames_total{instance=~\"$instance\"}[$__rate_interval]) and sluice_lost_frames_total{instance=~\"$instance\"} > 0",
                "{{instance}} {{cause}}",
            ),
            (
                "rate(sluice_port_lost_frames_total{instance=~\"$instance\"}[$__rate_interval]) and sluice_port_lost_frames_total{instance=~\"$instance\"} > 0",
                "{{instance}} {{port}} {{reason}}",
            ),
        ],
    ),
    (
        "Lateness, 99.9 %",
        "s",
        &[(
            "histogram_quantile(0.999, sum by (instance, le) (rate(sluice_lateness_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
            "{{instance}}",
        )],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The names and labels in the queries are those that `docs/watching.md` lists.
    #[test]
    fn queries_name_documented_metrics_and_labels() {
        let page = include_str!("../../../docs/watching.md");
        for (expr, legend) in PANELS.iter().flat_map(|(_, _, queries)| queries.iter()) {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let names = expr
                .split(|c| !is_name(c))
                .filter(|word| word.starts_with("sluice_"));
            for name in names {
                let name = name.trim_end_matches("_total").trim_end_matches("_bucket");
                let row = page
                    .lines()
                    .find(|line| line.contains(&format!("`{name}`")));
                let row = row.unwrap_or_else(|| panic!("{name} is not documented"));
                for label in ["object", "flow", "port", "reason", "cause", "variable"] {
                    let is_used =
                        expr.contains(&format!("{label}=")) || expr.contains(&format!("{label}!"));
                    let is_shown = legend.contains(&format!("{{{{{label}}}}}"));
                    assert!(
                        !(is_used || is_shown) || row.contains(&format!("`{label}`")),
                        "{expr}: {label}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_dashboard_is_json_whose_panels_do_not_overlap() {
        let dashboard: Value = serde_json::from_str(&dashboard()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let places: std::collections::BTreeSet<String> = panels
            .iter()
            .map(|panel| panel["gridPos"].to_string())
            .collect();
        assert_eq!(places.len(), PANELS.len());
    }
}
