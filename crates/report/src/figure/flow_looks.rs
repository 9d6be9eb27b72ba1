//! The looks of flows: a colour each in a single run, and in several runs a dash each, in the colour of
//! their run.

use std::collections::{BTreeMap, BTreeSet};

use super::panel::Look;
use super::select::DIRECTIONS;
use super::{COLOURS, DASHES};
use crate::model::{Direction, Flow, Report};

/// Returns the flows of a direction in all runs, each with its look.
pub fn of_direction(report: &Report, direction: Direction) -> Vec<(Look, &Flow)> {
    let step = step(report);
    let placed = Placed::of(report, direction).flows.into_iter();
    placed
        .map(|(look, place, flow)| (Look::Variant(look + step * place), flow))
        .collect()
}

/// Returns the names of the flows at each place, and the look that has the place's dash. In a single
/// run, it is the flows' own look. Flows of both directions that share a look share an entry.
pub fn names(report: &Report) -> Vec<(String, usize)> {
    let both = DIRECTIONS.map(|direction| Placed::of(report, direction).names);
    let most = both.iter().map(Vec::len).max().unwrap_or(0);
    let step = step(report);
    let entry = |place: usize| {
        let mut names: Vec<&str> = Vec::new();
        for &name in both.iter().filter_map(|way| way.get(place)).flatten() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        (names.join(", "), step * place)
    };
    (0..most).map(entry).collect()
}

/// Says what the legend leaves open: that the dashes do not suffice for the flows of several runs, or that
/// the flows of some runs have dashes of their own.
pub fn repeated(report: &Report) -> Option<String> {
    let rounds = rounds(report);
    let different = DASHES.len() / rounds;
    let most = names(report).len();
    if report.runs.len() == 1 || most < 2 {
        return None;
    }
    if most > different {
        return Some(format!(
            "There are only {different} dashes for {most} flows, so some look alike: a picture of one run has a \
             colour for each flow."
        ));
    }
    let has_later = report.runs.iter().any(|run| run.look as usize >= COLOURS);
    has_later.then(|| {
        format!(
            "The legend shows the dashes of runs 1 to {COLOURS}; the flows of later runs have other dashes."
        )
    })
}

/// The distance of the looks of two flows: in a single run the next colour, in several the next dash that
/// no run of the same colour has.
fn step(report: &Report) -> usize {
    match report.runs.len() {
        1 => 1,
        _ => COLOURS * rounds(report),
    }
}

/// The number of dashes that tell runs of one colour apart.
fn rounds(report: &Report) -> usize {
    let last = report.runs.iter().map(|run| run.look as usize).max();
    (last.unwrap_or(0) / COLOURS + 1).min(DASHES.len())
}

/// The flows of a direction in all runs.
///
/// Flows of different runs have one place if they have one name. Names share a place if no run has flows of
/// both, so that runs with a flow each have a single place.
struct Placed<'a> {
    /// Each flow with the look of its run, or none in a single run, and its place.
    flows: Vec<(usize, usize, &'a Flow)>,
    /// The names at each place.
    names: Vec<Vec<&'a str>>,
}

/// The runs that have flows of a name, by their number in the report.
type RunsOf<'a> = BTreeMap<&'a str, BTreeSet<usize>>;

impl<'a> Placed<'a> {
    fn of(report: &'a Report, direction: Direction) -> Self {
        let mut runs_of = RunsOf::new();
        for (number, run) in report.runs.iter().enumerate() {
            let flows = run.flows.iter();
            for flow in flows.filter(|flow| flow.direction == direction) {
                runs_of.entry(&flow.name).or_default().insert(number);
            }
        }
        let mut placed = Placed {
            flows: Vec::new(),
            names: Vec::new(),
        };
        for run in &report.runs {
            let look = match report.runs.len() {
                1 => 0,
                _ => run.look as usize,
            };
            let flows = run.flows.iter();
            let mut taken: Vec<usize> = Vec::new();
            for flow in flows.filter(|flow| flow.direction == direction) {
                let place = placed.place(flow, &runs_of, &taken);
                taken.push(place);
                placed.flows.push((look, place, flow));
            }
        }
        placed
    }

    /// Returns the place of a flow of a run, which has others at the places that are `taken`.
    fn place(&mut self, flow: &'a Flow, runs_of: &RunsOf<'_>, taken: &[usize]) -> usize {
        let name = flow.name.as_str();
        let meets = |other: &&str| !runs_of[name].is_disjoint(&runs_of[other]);
        let free = || (0..self.names.len()).filter(move |place| !taken.contains(place));
        let known = free().find(|place| self.names[*place].contains(&name));
        let shared = || free().find(|place| !self.names[*place].iter().any(meets));
        let Some(place) = known.or_else(shared) else {
            self.names.push(vec![name]);
            return self.names.len() - 1;
        };
        if known.is_none() {
            self.names[place].push(name);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Figure, FigureKind, svg};
    use crate::tests::comparable;

    /// A report whose runs have these flows up.
    fn of_flows(runs: &[&[&str]]) -> Report {
        let mut report = comparable();
        let run = report.runs[0].clone();
        let of_names = |(look, names): (u32, &&[&str])| {
            let flow = |name: &&str| Flow {
                name: (*name).to_owned(),
                ..run.flows[0].clone()
            };
            crate::model::Run {
                name: format!("run {look}"),
                look,
                flows: names.iter().map(flow).collect(),
                ..run.clone()
            }
        };
        report.runs = (0..).zip(runs).map(of_names).collect();
        report
    }

    fn looks(report: &Report) -> Vec<usize> {
        let flows = of_direction(report, Direction::Up).into_iter();
        flows
            .map(|(look, _)| match look {
                Look::Variant(look) => look,
                Look::Reference => panic!("a flow is no reference"),
            })
            .collect()
    }

    fn caption(report: &Report) -> String {
        let figure = Figure::of(FigureKind::Flows);
        let panels = figure.kind.panels(report, &figure);
        crate::figure::select::caption(report, &figure, &panels)
    }

    #[test]
    fn the_flows_of_several_runs_differ_in_their_dashes_which_the_legend_names() {
        let report = of_flows(&[&["prague", "cubic", "flood"][..]; 3]);
        // A run is a colour, and a step of seven colours is the next dash.
        assert_eq!(looks(&report), [0, 7, 14, 1, 8, 15, 2, 9, 16]);
        let expected = ["prague", "cubic", "flood"].map(str::to_owned);
        assert_eq!(
            names(&report),
            expected.into_iter().zip([0, 7, 14]).collect::<Vec<_>>()
        );
        let drawn = svg(&report, &Figure::of(FigureKind::Flows)).expect("a picture");
        for name in ["run 0", "run 2", "prague", "cubic", "flood"] {
            assert!(drawn.contains(name), "no {name}");
        }
        let caption = caption(&report);
        assert!(
            caption.contains("Colours: runs; dashes: flows."),
            "{caption}"
        );
        assert!(!caption.contains("look alike"), "{caption}");
    }

    #[test]
    fn a_dash_is_that_of_a_name_and_runs_with_a_flow_each_have_none() {
        // The second run lacks the flow that is the first of the others.
        let report = of_flows(&[&["a", "b"], &["b"], &["b", "a"]]);
        assert_eq!(looks(&report), [0, 7, 8, 9, 2]);
        // Each alone, then both: the two never share a dash.
        let report = of_flows(&[&["cubic"], &["bbr"], &["cubic", "bbr"]]);
        assert_eq!(looks(&report), [0, 8, 2, 9]);
        let report = of_flows(&[&["cubic"], &["bbr"]]);
        assert_eq!(looks(&report), [0, 1]);
        assert_eq!(names(&report), [("cubic, bbr".to_owned(), 0)]);
        let drawn = svg(&report, &Figure::of(FigureKind::Flows)).expect("a picture");
        assert!(!drawn.contains("bbr"), "each run has one line");
        assert!(!caption(&report).contains("dashes"));
        // A single run has a colour for each flow.
        let report = of_flows(&[&["a", "b"]]);
        assert_eq!(looks(&report), [0, 1]);
        assert_eq!(names(&report), [("a".to_owned(), 0), ("b".to_owned(), 1)]);
    }

    #[test]
    fn a_caption_says_that_there_are_more_flows_than_dashes() {
        let flows = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
        // Eight dashes.
        assert_eq!(repeated(&of_flows(&[&flows[..8]; 2])), None);
        let said = repeated(&of_flows(&[&flows[..]; 2])).expect("the ninth looks like the first");
        assert!(
            said.starts_with("There are only 8 dashes for 9 flows"),
            "{said}"
        );
        // The eighth run has the colour of the first and the next dash, so that four are left.
        let said = repeated(&of_flows(&[&flows[..5]; 8])).expect("two dashes for each flow");
        assert!(
            said.starts_with("There are only 4 dashes for 5 flows"),
            "{said}"
        );
        assert_eq!(repeated(&of_flows(&[&flows])), None);
        let said = repeated(&of_flows(&[&flows[..2]; 8])).expect("dashes that no legend shows");
        assert!(
            said.starts_with("The legend shows the dashes of runs 1 to 7"),
            "{said}"
        );
    }
}
