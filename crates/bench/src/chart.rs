//! The path section as a chart: throughput and round trip of every contender as bars, as in figure
//! 1 of "User Space Packet Schedulers" (NetSys 2021).

use std::fmt::Write as _;

use super::contender::CONTENDERS;
use super::figures::Figures;
use sluice_report::{PALETTE, escape, rasterize};

/// Draws the chart as an SVG document; `None` if the path section was not measured.
pub fn svg(figures: &Figures) -> Option<String> {
    let rows: Vec<String> = CONTENDERS
        .iter()
        .map(|contender| contender.name())
        .filter(|name| figures.path.contains_key(name))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let mut out = String::new();
    let height = HEAD + PANELS.len() as u32 * (TITLE + rows.len() as u32 * ROW + GAP);
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-family=\"{FAMILY}\" fill=\"#1b1f24\">\n\
         <title>Packet forwarding</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{MARGIN}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">Packet forwarding: kernel \
         and user space</text>"
    );
    let mut top = HEAD;
    for panel in PANELS {
        draw(&mut out, figures, &rows, panel, top);
        top += TITLE + rows.len() as u32 * ROW + GAP;
    }
    out += "</svg>\n";
    Some(out)
}

/// Draws the chart as PNG, `scale` pixels per unit of the SVG.
///
/// # Errors
/// The error of the rasterizer.
pub fn png(figures: &Figures, scale: f32) -> Option<Result<Vec<u8>, String>> {
    Some(rasterize(&svg(figures)?, scale))
}

/// Bars of one or two metrics per contender.
struct Panel {
    title: &'static str,
    unit: &'static str,
    /// The metrics, with their names in the legend.
    metrics: &'static [(&'static str, &'static str)],
}

fn draw(out: &mut String, figures: &Figures, rows: &[String], panel: &Panel, top: u32) {
    let value = |row: &str, metric: &str| figures.path[row].get(metric).map(|cell| cell.median);
    let most = rows
        .iter()
        .flat_map(|row| {
            panel
                .metrics
                .iter()
                .filter_map(|(metric, _)| value(row, metric))
        })
        .fold(f64::MIN_POSITIVE, f64::max);
    let _ = writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"{}\" font-size=\"13\" font-weight=\"bold\">{} ({})</text>",
        top + 14,
        escape(panel.title),
        panel.unit
    );
    let mut x = LEFT + 130;
    for (at, (_, legend)) in panel.metrics.iter().enumerate() {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{}\" font-size=\"12\">{}</text>",
            top + 5,
            color(at),
            x + 17,
            top + 14,
            escape(legend)
        );
        x += 50 + 7 * legend.len() as u32;
    }
    let bar = (ROW - 6) / panel.metrics.len() as u32;
    for (number, row) in rows.iter().enumerate() {
        let y = top + TITLE + number as u32 * ROW;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" font-size=\"12\" text-anchor=\"end\">{}</text>",
            LEFT - 8,
            y + ROW / 2 + 2,
            escape(row)
        );
        for (at, (metric, _)) in panel.metrics.iter().enumerate() {
            let y = y + at as u32 * bar;
            let Some(value) = value(row, metric) else {
                let _ = writeln!(
                    out,
                    "<text x=\"{LEFT}\" y=\"{}\" font-size=\"11\" fill=\"#505860\">not measured</text>",
                    y + bar - 1
                );
                continue;
            };
            let width = f64::from(WIDTH - LEFT - VALUES) * value / most;
            let digits = if value < 100.0 { 1 } else { 0 };
            let _ = writeln!(
                out,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{}\" font-size=\"11\">{value:.digits$}</text>",
                bar - 1,
                color(at),
                f64::from(LEFT) + width + 5.0,
                y + bar - 1
            );
        }
    }
}

fn color(at: usize) -> String {
    let color = PALETTE[at % PALETTE.len()];
    format!("#{:02x}{:02x}{:02x}", color.0, color.1, color.2)
}

const PANELS: &[Panel] = &[
    Panel {
        title: "Throughput",
        unit: "Gbit/s",
        metrics: &[
            ("cubic_1_gbps", "offloads on"),
            ("plain_cubic_1_gbps", "offloads off"),
        ],
    },
    Panel {
        title: "Round trip",
        unit: "us",
        metrics: &[("ping_us", "idle"), ("loaded_ping_us", "under load")],
    },
    Panel {
        title: "Small packets",
        unit: "kpps",
        metrics: &[
            ("udp_64_kpps", "flood, delivered"),
            ("udp_64_clean_kpps", "without loss"),
        ],
    },
];
const WIDTH: u32 = 800;
const HEAD: u32 = 44;
const TITLE: u32 = 24;
const ROW: u32 = 32;
const GAP: u32 = 16;
const MARGIN: u32 = 14;
const LEFT: u32 = 130;
/// Room for the numbers behind the bars.
const VALUES: u32 = 70;
const FAMILY: &str = "Noto Sans, DejaVu Sans, Helvetica, Arial, sans-serif";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_for_what_was_measured_only() {
        let mut figures = Figures::default();
        assert_eq!(svg(&figures), None);
        figures.add("kernel", "cubic_1_gbps", 30.0);
        figures.add("kernel", "ping_us", 50.0);
        figures.add("raw socket", "plain_cubic_1_gbps", 1.5);
        figures.conclude("kernel");
        let drawn = svg(&figures).expect("something was measured");
        // The longest bar fills the width; a twentieth of its value fills a twentieth.
        assert!(drawn.contains("width=\"600.0\""), "{drawn}");
        assert!(drawn.contains("width=\"30.0\""), "{drawn}");
        // Kernel: 2 of 6 values; raw socket: 1 of 6.
        assert_eq!(drawn.matches("not measured").count(), 9);
        let picture = png(&figures, 1.0).expect("likewise").expect("it is drawn");
        assert_eq!(picture[1..4], *b"PNG");
    }
}
