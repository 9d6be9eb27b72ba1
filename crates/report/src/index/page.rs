//! The page itself.

use std::fmt::Write as _;

use super::picture::{self, Axes};
use super::words::{self, Judgement, Overall, digits, time};
use super::{DelayOf, Entry, Row};
use sluice_scenario::Backend;

/// The page over `entries`.
pub(super) fn html(entries: &[Entry]) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Sluice: all runs</title>\n<style>",
    );
    out.push_str(STYLE);
    out.push_str("</style>\n</head>\n<body>\n<main>\n");
    head(&mut out, entries);
    let all = words::overall(entries);
    if !all.is_empty() {
        overall(&mut out, &all);
    }
    if entries.len() > 3 {
        contents(&mut out, entries);
    }
    for (number, entry) in entries.iter().enumerate() {
        card(&mut out, number, entry);
    }
    let _ = write!(
        out,
        "<footer>made by sluice {}; delays are medians and 95th percentiles, figures of repeated \
         runs are medians over the runs</footer>\n</main>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    out
}

fn head(out: &mut String, entries: &[Entry]) {
    let rows = || entries.iter().flat_map(|entry| &entry.rows);
    let runs: usize = rows().map(|row| row.runs).sum();
    let (met, unmet): (usize, usize) = rows().fold((0, 0), |(met, unmet), row| {
        (met + row.met, unmet + row.unmet.len())
    });
    let partial = rows().filter(|row| row.partial.is_some()).count();
    let _ = write!(
        out,
        "<h1>Which queue is better, and for what?</h1>\n<p class=\"lead\">{} and {}. ",
        count(entries.len(), "scenario"),
        count(runs, "run")
    );
    match (met, unmet) {
        (0, 0) => {}
        (met, 0) => {
            let _ = write!(
                out,
                "<b class=\"met\">✓ All {met} expectations were met.</b> "
            );
        }
        (met, unmet) => {
            let _ = write!(
                out,
                "<b class=\"unmet\">✗ {unmet} of {} expectations were not met.</b> ",
                met + unmet
            );
        }
    }
    if partial > 0 {
        let _ = write!(out, "{} ended early. ", count(partial, "variant"));
    }
    out.push_str(
        "Each scenario sends the same traffic through several queues in front of a slow link. A good \
         queue carries as much (goodput) and lets nobody wait (delay).</p>\n",
    );
}

fn overall(out: &mut String, all: &[Overall]) {
    out.push_str("<section><h2>Over all scenarios</h2>\n<table class=\"overall\"><tbody>\n");
    for one in all {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td></tr>",
            escape(&one.algorithm),
            escape(&one.sentence())
        );
    }
    out.push_str("</tbody></table></section>\n");
}

fn contents(out: &mut String, entries: &[Entry]) {
    out.push_str("<nav><h2>Scenarios</h2>\n<ol>\n");
    for (number, entry) in entries.iter().enumerate() {
        let is_met = entry.rows.iter().all(|row| row.unmet.is_empty());
        let mark = match (is_met, entry.rows.iter().any(|row| row.met > 0)) {
            (false, _) => " <b class=\"unmet\">✗</b>",
            (true, true) => " <b class=\"met\">✓</b>",
            (true, false) => "",
        };
        let _ = writeln!(
            out,
            "<li><a href=\"#s{number}\">{}</a>{mark}</li>",
            escape(&entry.title)
        );
    }
    out.push_str("</ol></nav>\n");
}

fn card(out: &mut String, number: usize, entry: &Entry) {
    let title = escape(&entry.title);
    let _ = write!(out, "<section class=\"card\" id=\"s{number}\"><h2>{title}");
    if !entry.place.is_empty() && entry.place != entry.title {
        let _ = write!(out, " <small>{}</small>", escape(&entry.place));
    }
    out.push_str("</h2>\n");
    if let Some(about) = &entry.about {
        let _ = writeln!(out, "<p>{}</p>", escape(about));
    }
    let judgements = words::judge(&entry.rows);
    out.push_str("<ul class=\"verdicts\">\n");
    let is_mixed = is_mixed(entry);
    // Queues of which the same is to be said share a sentence, in the place of the first.
    let mut alike: Vec<(&Judgement, Vec<&Row>)> = Vec::new();
    for (row, judgement) in entry.rows.iter().zip(&judgements) {
        match alike.iter_mut().find(|(other, _)| *other == judgement) {
            Some((_, rows)) => rows.push(row),
            None => alike.push((judgement, vec![row])),
        }
    }
    for (judgement, rows) in alike {
        verdict(out, &rows, judgement, is_mixed, entry.rows.len() > 1);
    }
    out.push_str("</ul>\n");
    table(out, entry, is_mixed);
    if let Some(link) = &entry.link {
        let what = match entry.rows.len() {
            1 => "The report",
            _ => "All of them drawn over each other",
        };
        let _ = writeln!(out, "<p><a href=\"{link}\">{what}</a></p>");
    }
    out.push_str("</section>\n");
}

fn is_mixed(entry: &Entry) -> bool {
    entry
        .rows
        .iter()
        .any(|row| row.backend != entry.rows[0].backend)
}

fn name(row: &Row, is_mixed: bool) -> String {
    let backend = match (is_mixed, row.backend) {
        (false, _) => "",
        (true, Backend::Sim) => " (sim)",
        (true, Backend::Live) => " (live)",
    };
    format!("<code>{}</code>{backend}", escape(&row.variant))
}

/// `a`, `b` and `c`.
fn names(rows: &[&Row], is_mixed: bool) -> String {
    let all: Vec<String> = rows.iter().map(|row| name(row, is_mixed)).collect();
    match all.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        all => all.concat(),
    }
}

fn verdict(
    out: &mut String,
    rows: &[&Row],
    judgement: &Judgement,
    is_mixed: bool,
    has_rivals: bool,
) {
    let purposes: Vec<&str> = judgement.good_for.iter().map(|p| p.words()).collect();
    let good_for = match (purposes.is_empty(), has_rivals) {
        (false, _) => format!("<b>best for {}</b>: ", purposes.join(", and for ")),
        (true, true) if judgement.is_draw => {
            "neither better nor worse than the others: ".to_owned()
        }
        (true, true) => "another does better here: ".to_owned(),
        (true, false) => String::new(),
    };
    let _ = writeln!(
        out,
        "<li>{}: {good_for}{}.</li>",
        names(rows, is_mixed),
        escape(&judgement.why)
    );
}

fn table(out: &mut String, entry: &Entry, is_mixed: bool) {
    let what = entry
        .rows
        .first()
        .map(|row| row.trace.what)
        .unwrap_or_default();
    let traces = entry.rows.iter().map(|row| &row.trace);
    let axes = Axes::around(traces.filter(|trace| trace.what == what));
    let caption = axes.as_ref().map(|axes| picture::caption(what, axes));
    let delay = match entry.rows.first().map(|row| row.figures.delay_of) {
        Some(DelayOf::Packets) => "delay in the queue",
        _ => "round trip",
    };
    let _ = writeln!(
        out,
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">queue</th><th scope=\"col\">{}</th>\
         <th scope=\"col\">goodput<br>Mbit/s</th><th scope=\"col\">link<br>used</th>\
         <th scope=\"col\">{delay}<br>median</th><th scope=\"col\"><br>95 %</th>\
         <th scope=\"col\">drops</th><th scope=\"col\">marks</th><th scope=\"col\">Jain</th>\
         <th scope=\"col\">expected</th></tr></thead><tbody>",
        caption.as_deref().map(escape).unwrap_or_default()
    );
    for row in &entry.rows {
        let figures = &row.figures;
        let number = |value: Option<f64>, show: &dyn Fn(f64) -> String| {
            let text = value.map_or("–".into(), show);
            format!("<td class=\"n\">{text}</td>")
        };
        let picture = match &axes {
            Some(axes) if row.trace.what == what => {
                let label = format!("{} of {}", caption.as_deref().unwrap_or(""), row.variant);
                picture::svg(&row.trace, axes, &escape(&label))
            }
            _ => String::new(),
        };
        let name = match &row.link {
            Some(link) => format!("<a href=\"{link}\">{}</a>", name(row, is_mixed)),
            None => name(row, is_mixed),
        };
        let mut notes = String::new();
        if row.runs > 1 {
            let _ = write!(notes, "<br><small>{} runs</small>", row.runs);
        }
        if let Some(reason) = &row.partial {
            let _ = write!(
                notes,
                "<br><small class=\"unmet\">partial: {}</small>",
                escape(reason)
            );
        }
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{name}{notes}</th><td>{picture}</td>{}{}{}{}{}{}{}{}</tr>",
            number(figures.goodput, &|bps| digits(bps / 1e6)),
            number(figures.utilisation, &|part| format!(
                "{:.0} %",
                part * 100.0
            )),
            number(figures.p50, &time),
            number(figures.p95, &time),
            number(Some(figures.drops), &|n| format!("{n:.0}")),
            number(Some(figures.marks), &|n| format!("{n:.0}")),
            number(figures.jain, &|jain| format!("{jain:.2}")),
            expected(row)
        );
    }
    out.push_str("</tbody></table></div>\n");
    for outcome in entry.rows.iter().flat_map(|row| &row.unmet) {
        let _ = writeln!(out, "<p class=\"unmet\">✗ {}</p>", escape(outcome));
    }
}

fn expected(row: &Row) -> String {
    let all = row.met + row.unmet.len();
    match (all, row.unmet.len()) {
        (0, _) => "<td></td>".into(),
        (all, 0) => format!("<td class=\"met\">✓ {all} of {all}</td>"),
        (all, _) => format!("<td class=\"unmet\">✗ {} of {all}</td>", row.met),
    }
}

fn count(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const STYLE: &str = "
:root { --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #ffffff; --card: #f6f8fa;
  --curve: #0060a8; --met: #1a6b3a; --unmet: #b02a1d; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa5b1; --line: #3a424c;
  --paper: #0f1318; --card: #171c23; --curve: #6cb6ff; --met: #6bcf8e; --unmet: #ff9a8b; } }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 0 0 .4rem; }
h2 small, small { color: var(--soft); font-weight: normal; font-size: .85em; }
p { margin: .4rem 0; max-width: 60rem; }
a { color: var(--curve); }
code { font: .93em ui-monospace, monospace; }
section, nav { margin: 1.5rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem; }
.verdicts { margin: .5rem 0 1rem; padding-left: 1.2rem; }
.verdicts li { margin: .25rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: middle; }
thead th { color: var(--soft); font-weight: normal; font-size: .87em; vertical-align: bottom; }
thead th:nth-child(2) { max-width: 12rem; }
tbody th { font-weight: 600; }
.n, thead th:nth-child(n+3):nth-child(-n+9) { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.met { color: var(--met); white-space: nowrap; }
.unmet { color: var(--unmet); }
td.unmet { white-space: nowrap; }
.spark { display: block; width: 180px; height: 44px; }
.spark line { stroke: var(--line); stroke-width: 1; }
.spark path { fill: none; stroke: var(--curve); stroke-width: 1.3; stroke-linejoin: round; }
ol { columns: 22rem 2; padding-left: 1.4rem; margin: 0; }
ol li { margin-left: 0.6rem; }
footer { color: var(--soft); font-size: .87em; }
";
