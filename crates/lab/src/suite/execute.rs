//! Execution of a suite.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime};

use sluice_core::{Span, Stop};

use super::plan::{Experiment, Failure, Planned, Suite};
use crate::agreement::agreements;
use crate::live::LiveOptions;
use crate::reuse;
use crate::run::{self, Finished, Target};
use crate::table;
use sluice_recording::part;
use sluice_recording::results::VariantResult;
use sluice_recording::{Keep, PAGE, Pages, PagesError, Recording, read_text};
use sluice_router::process::watch::Watcher;
use sluice_scenario::Backend;

/// The settings for executing a suite.
pub struct Options<'a> {
    /// Whether earlier runs are repeated.
    pub is_fresh: bool,
    /// The number of simulations at a time; `None` for one per core.
    pub threads: Option<NonZeroUsize>,
    /// The core that the router of a live run is pinned to; `None` leaves the choice to the kernel.
    pub core: Option<usize>,
    /// Whether live runs can be watched: each reports [`Progress::Watched`].
    pub is_watched: bool,
    /// How much is recorded; `None` for the default of the scenario ([`Experiment::keep`]).
    pub keep: Option<Keep>,
    /// Draws pages, which takes about as long as a simulation; `None` draws no pages.
    pub pages: Option<&'a (dyn Pages + Sync)>,
    /// Whether scenarios with more than [`MOST_WITH_PAGES`] runs get pages, too.
    pub has_all_pages: bool,
    /// Ends the suite early; the recorded data is kept.
    pub interrupt: &'a Stop,
    /// Receives the progress, from several threads.
    pub watch: &'a (dyn Fn(Progress<'_>) + Sync),
}

/// The progress of a run; runs are counted through the suite.
#[derive(Clone, Copy)]
pub enum Progress<'a> {
    /// The run begins.
    Begun(usize, &'a Planned),
    /// The router of the run, which is live, starts, and can be watched until the run is over.
    Watched(usize, &'a Watcher),
    /// This part of the run is over.
    At(usize, Span),
    /// The run is over.
    Ended(usize, &'a Finished),
    /// The run failed.
    Failed(usize),
}

/// The results of a scenario, complete or not.
#[derive(Debug)]
pub struct Executed {
    /// The results, by backend and variant; variants without any run are left out.
    pub results: Vec<VariantResult>,
    /// Runs that failed.
    pub failures: Vec<Failure>,
    /// The number of runs that the user's interruption prevented or cut short.
    pub missing: usize,
    /// What the figures of runs do not show, in words, with the scenario and the variant.
    pub remarks: Vec<String>,
}

/// The most runs of a scenario that record every packet by default.
pub const MOST_WITH_PACKETS: usize = 50;

/// The most runs of a scenario that get pages by default. The page over more of them begins with a
/// table, and nobody opens the pages of all.
pub const MOST_WITH_PAGES: usize = 16;

impl<'a> Options<'a> {
    /// Returns what draws the pages of `experiment`; `None` if it gets none.
    pub fn pages_of(&self, experiment: &Experiment) -> Option<&'a (dyn Pages + Sync)> {
        let gets_pages = self.has_all_pages || experiment.runs.len() <= MOST_WITH_PAGES;
        self.pages.filter(|_| gets_pages)
    }
}

/// The smallest difference of two times as they are recorded.
const START_STEP: Duration = Duration::from_micros(1);

/// Executes all runs: simulations in parallel, then live runs one after another. The pages of a
/// scenario are drawn when its last run is over, while other simulations run. Returns the results by
/// experiment, in the order of the suite.
pub fn execute(suite: &Suite, options: &Options<'_>) -> Vec<Executed> {
    let parts: Vec<Part<'_>> = suite
        .experiments
        .iter()
        .map(|experiment| Part::new(&suite.root, experiment, options))
        .collect();
    let runs = suite.experiments.iter().zip(&parts);
    let jobs: Vec<Job<'_>> = runs
        .flat_map(|(experiment, part)| {
            let numbered = experiment.runs.iter().enumerate();
            numbered.map(move |(place, run)| Job { run, part, place })
        })
        .collect();
    let of = |backend| -> Vec<usize> {
        let is_of_it = |n: &usize| jobs[*n].run.backend == backend;
        (0..jobs.len()).filter(is_of_it).collect()
    };
    let simulations = of(Backend::Sim);
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = options.threads.unwrap_or_else(cores).get();
    // The order of the times at which runs began is that of the suite, whichever thread is faster.
    let queue = Mutex::new((simulations.iter(), SystemTime::UNIX_EPOCH));
    let next = || {
        let mut queue = queue.lock().expect(LOCK);
        let job = *queue.0.next()?;
        queue.1 = SystemTime::now().max(queue.1 + START_STEP);
        Some((job, queue.1))
    };
    let work = || {
        while !options.interrupt.is_stopped()
            && let Some((job, began)) = next()
        {
            jobs[job].carry_out(job, began, options);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(simulations.len()) {
            scope.spawn(work);
        }
        work();
    });
    for job in of(Backend::Live) {
        if !options.interrupt.is_stopped() {
            jobs[job].carry_out(job, SystemTime::now(), options);
        }
    }
    drop(jobs);
    in_parallel(threads, parts, Part::into_executed)
}

/// An experiment while its runs are executed.
struct Part<'a> {
    /// The folder that the user has named.
    root: &'a Path,
    experiment: &'a Experiment,
    keep: Keep,
    pages: Option<&'a (dyn Pages + Sync)>,
    outcomes: Mutex<Outcomes>,
    executed: Mutex<Option<Executed>>,
}

/// The outcomes of the runs of an experiment, in its order; `None` for those that are not over.
type Outcomes = Vec<Option<Outcome>>;

impl<'a> Part<'a> {
    fn new(root: &'a Path, experiment: &'a Experiment, options: &Options<'a>) -> Part<'a> {
        let mut outcomes = Outcomes::new();
        outcomes.resize_with(experiment.runs.len(), || None);
        Part {
            root,
            experiment,
            keep: experiment.keep(options.keep),
            pages: options.pages_of(experiment),
            outcomes: Mutex::new(outcomes),
            executed: Mutex::new(None),
        }
    }

    /// Takes the outcome of the run at `place`. With the last one, it writes the files about all of
    /// them.
    fn take(&self, place: usize, outcome: Outcome) {
        let mut outcomes = self.outcomes.lock().expect(LOCK);
        outcomes[place] = Some(outcome);
        if outcomes.iter().any(Option::is_none) {
            return;
        }
        let outcomes = std::mem::take(&mut *outcomes);
        *self.executed.lock().expect(LOCK) = Some(self.conclude(outcomes));
    }

    /// Returns the results. If the suite was interrupted, some of the runs have none.
    fn into_executed(self) -> Executed {
        let executed = self.executed.lock().expect(LOCK).take();
        executed.unwrap_or_else(|| {
            let outcomes = std::mem::take(&mut *self.outcomes.lock().expect(LOCK));
            self.conclude(outcomes)
        })
    }

    fn conclude(&self, outcomes: Outcomes) -> Executed {
        let outcomes = self.experiment.runs.iter().zip(outcomes).collect();
        conclude(self.experiment, outcomes, self.pages)
    }
}

/// Applies `apply` to all of `items` on at most `threads` threads; returns the results in the order
/// of the items.
fn in_parallel<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    apply: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let most = threads.min(items.len());
    let mut done: Vec<Option<R>> = Vec::new();
    done.resize_with(items.len(), || None);
    let todo = Mutex::new(items.into_iter().zip(&mut done));
    let next = || todo.lock().expect(LOCK).next();
    let work = || {
        while let Some((item, place)) = next() {
            *place = Some(apply(item));
        }
    };
    thread::scope(|scope| {
        for _ in 1..most {
            scope.spawn(work);
        }
        work();
    });
    drop(todo);
    let done = done.into_iter();
    done.map(|result| result.expect("every item was taken"))
        .collect()
}

type Outcome = Result<Finished, Box<dyn std::error::Error + Send + Sync>>;

/// A run at its place in an experiment.
struct Job<'a> {
    run: &'a Planned,
    part: &'a Part<'a>,
    place: usize,
}

impl Job<'_> {
    fn carry_out(&self, number: usize, began: SystemTime, options: &Options<'_>) {
        (options.watch)(Progress::Begun(number, self.run));
        let outcome = self.attempt(number, began, options);
        match &outcome {
            Ok(finished) => (options.watch)(Progress::Ended(number, finished)),
            Err(_) => (options.watch)(Progress::Failed(number)),
        }
        self.part.take(self.place, outcome);
    }

    fn attempt(&self, number: usize, began: SystemTime, options: &Options<'_>) -> Outcome {
        let Planned {
            variant,
            backend,
            dir,
        } = self.run;
        check_links(self.part.root, dir)?;
        let page = dir.join(PAGE);
        // A page of a single run without curves shows nothing but the table of figures.
        let keep = self.part.keep;
        let pages = self.part.pages.filter(|_| keep > Keep::Figures);
        if !options.is_fresh
            && let Ok(finished) = reuse::earlier(variant, *backend, dir, keep)
        {
            if let Some(pages) = pages
                && !page.is_file()
            {
                pages.write_run(&page, &finished.recording)?;
            }
            return Ok(finished);
        }
        remove_page(&page)?;
        let started_at = humantime::format_rfc3339_micros(began).to_string();
        let mut progress = |elapsed| (options.watch)(Progress::At(number, elapsed));
        let watched = |watcher| (options.watch)(Progress::Watched(number, &watcher));
        let live = LiveOptions {
            core: options.core,
            watch: options.is_watched.then_some(&watched as _),
        };
        let finished = run::run(
            variant,
            *backend,
            live,
            Target {
                dir,
                keep,
                has_pages: pages.is_some(),
            },
            started_at,
            options.interrupt,
            &mut progress,
        )?;
        if let Some(pages) = pages {
            pages.write_run(&page, &finished.recording)?;
        }
        Ok(finished)
    }
}

/// Groups the runs of a scenario and writes the files about all of them.
fn conclude(
    experiment: &Experiment,
    outcomes: Vec<(&Planned, Option<Outcome>)>,
    pages: Option<&(dyn Pages + Sync)>,
) -> Executed {
    let mut executed = Executed {
        results: Vec::new(),
        failures: Vec::new(),
        missing: 0,
        remarks: Vec::new(),
    };
    let mut fail = |what: String, error| executed.failures.push(Failure { what, error });
    // Runs of a variant that differ in their seed only are consecutive.
    let mut groups: Vec<((Backend, &str), Vec<Finished>)> = Vec::new();
    for (planned, outcome) in outcomes {
        let key = (planned.backend, planned.variant.name.as_str());
        match outcome {
            Some(Ok(finished)) => {
                executed.missing += usize::from(finished.is_interrupted());
                let (file, variant) = (experiment.file.display(), &planned.variant.name);
                let of_run = |remark: &String| match variant.is_empty() {
                    true => format!("{file}: {remark}"),
                    false => format!("{file}: {variant}: {remark}"),
                };
                executed.remarks.extend(finished.remarks.iter().map(of_run));
                match groups.last_mut().filter(|(last, _)| *last == key) {
                    Some((_, group)) => group.push(finished),
                    None => groups.push((key, vec![finished])),
                }
            }
            Some(Err(error)) => {
                let file = experiment.file.display();
                fail(format!("{file}: {}", planned.variant.name), error);
            }
            None => executed.missing += 1,
        }
    }
    // A run that was cut short has figures of another time than the others.
    for (_, group) in &mut groups {
        if group.iter().any(|finished| !finished.is_interrupted()) {
            group.retain(|finished| !finished.is_interrupted());
        }
    }
    let recordings: Vec<Recording> = groups
        .iter()
        .flat_map(|(_, group)| group.iter().map(|finished| finished.recording.clone()))
        .collect();
    executed.results = groups
        .into_iter()
        .map(|(_, group)| {
            let parts = |f: Finished| (f.recording, f.summary, f.is_reused);
            let runs = group.into_iter().map(parts).collect();
            VariantResult::of(experiment.name.clone(), runs)
        })
        .collect();
    if let Err(error) = write_overview(experiment, &executed.results, &recordings, pages) {
        fail(experiment.file.display().to_string(), error);
    }
    executed
}

/// Writes the figures and the page of all runs of a scenario, unless they exist. Without `pages`, an
/// older page of other runs is removed.
fn write_overview(
    experiment: &Experiment,
    results: &[VariantResult],
    recordings: &[Recording],
    pages: Option<&(dyn Pages + Sync)>,
) -> Result<(), PagesError> {
    if recordings.is_empty() {
        return Ok(());
    }
    let (summary, page) = (
        experiment.output.join("summary.json"),
        experiment.output.join(PAGE),
    );
    // The files do not record which runs were reused.
    let mut stored = results.to_vec();
    let mut runs = stored.iter_mut().flat_map(|result| &mut result.runs);
    let is_old = runs.all(|run| std::mem::take(&mut run.reused));
    stored
        .iter_mut()
        .flat_map(|result| &mut result.runs)
        .for_each(|run| run.reused = false);
    let text = table::json(&stored);
    let is_current = is_old
        && (page.is_file() || pages.is_none())
        && read_text(&summary).is_ok_and(|there| there == text);
    if is_current {
        return Ok(());
    }
    let write = |path: &Path, text: &str| {
        part::write_own(path, text.as_bytes())
            .map_err(|error| format!("cannot write `{}`: {error}", path.display()))
    };
    let all: Vec<&Recording> = recordings.iter().collect();
    let of_run = |one: &Recording| read_text(&one.dir().join(PAGE)).ok();
    // The page of a single run shows the same.
    let only = match recordings {
        [one] => of_run(one),
        _ => None,
    };
    match (pages, only) {
        (None, _) => remove_page(&page)?,
        (Some(_), Some(text)) => write(&page, &text)?,
        (Some(pages), None) => pages.write_overview(&page, &all)?,
    }
    let agreements = agreements(results);
    if !agreements.is_empty() {
        let text = serde_json::to_string_pretty(&agreements).expect("figures and names are JSON");
        write(&experiment.output.join("agreement.json"), &text)?;
    }
    write(&summary, &text)?;
    Ok(())
}

/// Refuses the folder `dir` of a run if it, or a folder between it and `root`, is a symbolic link. Their
/// names are the program's, and a link, perhaps of another user, would lead out of the folder that the
/// user has named.
fn check_links(root: &Path, dir: &Path) -> Result<(), String> {
    let is_link = |path: &&Path| path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    let mut below = dir.ancestors().take_while(|path| *path != root);
    match below.find(is_link) {
        None => Ok(()),
        Some(link) => Err(format!(
            "`{}` is a symbolic link, which is not followed: remove it, or choose another folder \
             (-o DIR)",
            link.display()
        )),
    }
}

/// Removes the page at `path`, which shows older runs.
fn remove_page(path: &Path) -> Result<(), PagesError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!(
            "cannot remove `{}`, which shows older runs: {error}",
            path.display()
        ))?,
        _ => Ok(()),
    }
}

const LOCK: &str = "nobody panics with the lock";
