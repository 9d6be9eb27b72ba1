//! Checks of the pictures of a scenario before its first run, so that none fails afterwards; and what
//! recordings lack for one that has no values.

use super::{Picture, PictureError, Subject, check_seed, names};
use crate::figure::FigureError;
use crate::figure::FigureKind;
use crate::figure::curve::{self, CurveError, coordinates_of};
use crate::only::{self, OnlyError, PlannedRun};
use sluice_core::spelling;
use sluice_recording::{Keep, Recording};
use sluice_scenario as scenario;
use sluice_scenario::Scenario;
use sluice_scenario::metric::Metric;

impl Picture {
    /// Checks before the first run whether the picture can be drawn from `runs`, which are recorded at
    /// the level `keep`. Without a number of repetitions, these are not checked.
    ///
    /// # Errors
    /// An axis, a figure, a value, a seed or a time does not exist, another axis varies, there are too
    /// few repetitions, or the level of recording or the traffic is not enough for the charts.
    pub fn check_before(
        &self,
        runs: &[PlannedRun<'_>],
        repeat: Option<u32>,
        keep: Keep,
    ) -> Result<(), PictureError> {
        let shown = only::planned(runs, &self.only)?;
        let Some((first, _)) = shown.first() else {
            return Ok(());
        };
        let is_single = repeat.is_some_and(|repeat| repeat < 2);
        if let Subject::Sweep(_) = self.subject {
            let places = shown
                .iter()
                .flat_map(|(variant, backend)| coordinates_of(&variant.coordinates, *backend));
            curve::check_axes(&curve::axes_of(places), &self.axes).map_err(FigureError::from)?;
            if self.axes.needs_band && is_single {
                let variant = first.name.clone();
                return Err(FigureError::from(CurveError::Band { variant }).into());
            }
        }
        if self.subject == Subject::Charts(FigureKind::Repetitions) && is_single {
            return Err(PictureError::Repetitions);
        }
        if let Subject::Charts(kind) = self.subject {
            let scenarios = || shown.iter().map(|(variant, _)| &variant.scenario);
            let has_values = |scenario| {
                let mut levels = kind.levels(scenario, self.direction);
                levels.any(|level| level <= keep)
            };
            if !scenarios().any(has_values)
                && let Some(error) = self.lack(kind, scenarios(), keep)
            {
                return Err(error);
            }
        }
        for name in names(&self.axes.y) {
            let (flows, links) = (&first.scenario.flows, first.scenario.links().count());
            let Err(error) = Metric::parse_on_path(name, flows, links) else {
                continue;
            };
            let near = spelling::question(&error.word, error.candidates.iter().map(String::as_str));
            let message = match near {
                Some(question) => format!("{}; {question}", error.message),
                None => format!("{}; one of: {}", error.message, error.candidates.join(", ")),
            };
            let name = name.to_owned();
            return Err(PictureError::Metric { name, message });
        }
        if repeat.is_some() {
            check_seed(self.seed, shown.iter().map(|(one, _)| one.scenario.seed))?;
        }
        let ends = shown
            .iter()
            .map(|(one, _)| one.scenario.duration.as_secs_f64());
        let to_s = ends.fold(0.0, f64::max);
        match self.from_s {
            Some(from_s) if from_s >= to_s => Err(PictureError::Window { from_s, to_s }),
            _ => Ok(()),
        }
    }

    /// Returns why charts of a kind could not be drawn. If they have no values, that is what the runs
    /// lack for them, as far as it is known.
    pub(super) fn explained(
        &self,
        error: FigureError,
        kind: FigureKind,
        shown: &[&Recording],
    ) -> PictureError {
        let kept = shown.iter().map(|one| one.run().recorded).max();
        let (FigureError::NoValues { .. }, Some(kept)) = (&error, kept) else {
            return error.into();
        };
        let scenarios = shown.iter().map(|one| &one.run().scenario);
        let lack = self.lack(kind, scenarios, kept);
        lack.unwrap_or_else(|| error.into())
    }

    /// Returns what runs of `scenarios` that are recorded at the level `kept` lack for charts of a kind;
    /// `None` if a higher level would add nothing.
    fn lack<'a>(
        &self,
        kind: FigureKind,
        scenarios: impl Iterator<Item = &'a Scenario>,
        kept: Keep,
    ) -> Option<PictureError> {
        let way = self.direction;
        let levels: Vec<Keep> = scenarios
            .flat_map(|scenario| kind.levels(scenario, way))
            .collect();
        match levels.iter().find(|level| **level > kept) {
            Some(&needs) => Some(PictureError::NotRecorded { kind, kept, needs }),
            None if levels.is_empty() => Some(PictureError::Traffic { kind, way }),
            None => None,
        }
    }
}

impl PictureError {
    /// Returns the key of `[[picture]]` whose value is wrong, and `only.N` for one of several
    /// conditions; `file` if the error is not that of one key.
    pub fn key(&self, picture: &scenario::Picture) -> String {
        let is = |value: &Option<String>, name: &String| value.as_ref() == Some(name);
        let axis = |name: &String| {
            let others = [("each", &picture.each), ("by", &picture.by)];
            let found = others.into_iter().find(|(_, value)| is(value, name));
            found.map_or("x", |(key, _)| key)
        };
        let key = match self {
            PictureError::Subject { .. }
            | PictureError::Missing { .. }
            | PictureError::Repetitions
            | PictureError::NotRecorded { .. }
            | PictureError::Traffic { .. } => "figure",
            PictureError::Metric { .. }
            | PictureError::NoFigure { .. }
            | PictureError::OneFigure { .. } => "y",
            PictureError::Useless { word, .. } | PictureError::Without { word, .. } => word,
            PictureError::Marks { .. } => "marks",
            PictureError::Only(
                OnlyError::Condition { condition, .. }
                | OnlyError::NoValue { condition, .. }
                | OnlyError::Nothing { condition, .. },
            ) => {
                let place = picture.only.0.iter().position(|own| own == condition);
                return format!("only.{}", place.unwrap_or_default());
            }
            PictureError::YAxis { .. } => "y_axis",
            PictureError::Size { text, .. } if is(&picture.width, text) => "width",
            PictureError::Size { text, .. } if is(&picture.height, text) => "height",
            PictureError::Size { .. } => "font_size",
            PictureError::Window { .. } if picture.from.is_some() => "from",
            PictureError::Window { .. } => "to",
            PictureError::Direction(_) => "direction",
            PictureError::Seed { .. } => "seed",
            PictureError::Font(_) => "font",
            PictureError::Figure(FigureError::Curve(error)) => match error {
                CurveError::Axis { name, .. } | CurveError::Twice { name } => axis(name),
                CurveError::Figure { .. } => "y",
                CurveError::Band { .. } => "band",
                CurveError::Varies { .. } | CurveError::SecondAxis { .. } => "figure",
            },
            PictureError::Figure(FigureError::Width { .. }) => "width",
            PictureError::Figure(FigureError::Height { .. }) => "height",
            PictureError::Read(_) | PictureError::Figure(_) | PictureError::Ending(_) => "file",
        };
        key.to_owned()
    }
}
