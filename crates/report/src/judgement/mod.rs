//! Judges queues by their figures, in sentences.
//!
//! Among the queues that reach at least [`NEARLY`] of the best goodput, the queue with the lowest
//! 95th percentile of delay is the best for interactive traffic. A queue with less goodput
//! qualifies if its delay is lower by the factor in [`ENOUGH`]: on a changing link, only a standing
//! queue yields the last few per cent of goodput. If the winner's delay is above 100 ms, and a queue
//! with less goodput has a lower one, the winner is the best only as a compromise of both. A queue
//! that loses more than 2 % of the probes, and more than the others, has no measured delay for
//! them: it does not win by that of the rest, and one that loses all has none. Measured calls are
//! judged by their mean opinion score (ITU-T G.107), and measured pages by their median load time:
//! then no queue is best for browsing by the delay of other packets. Other merits are a goodput that
//! the others do not reach, more equal shares, and fewer losses. What all queues have in common is not
//! a merit. Only complete runs that differ only in their queues are compared.

mod candidate;

use crate::model::Judgement;

pub use self::candidate::DelayOf;
#[cfg(test)]
pub(crate) use self::candidate::setting;
pub(crate) use self::candidate::{Candidate, Figures, Subject};

/// The comparison of a queue with its rivals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assessment {
    /// The merits in which the queue is best; empty if there are none.
    pub good_for: Vec<Purpose>,
    /// Whether it was compared with other queues.
    pub has_rivals: bool,
    /// Whether all queues are about equally good.
    pub is_draw: bool,
    /// Whether no queue has a merit, because too little arrived through all of them.
    pub is_undecided: bool,
    /// The figures, in words.
    pub why: String,
}

impl Assessment {
    /// Returns the judgement in the form that the pages show.
    pub(crate) fn in_words(&self) -> Judgement {
        let purposes: Vec<&str> = self.good_for.iter().map(|p| p.words()).collect();
        let outcome = match (self.has_rivals, purposes.is_empty()) {
            (false, _) => String::new(),
            (true, false) => format!("best for {}", purposes.join(", and for ")),
            (true, true) if self.is_draw => "about as good as the others".to_owned(),
            (true, true) if self.is_undecided => "no queue can be judged".to_owned(),
            (true, true) => "another queue is better".to_owned(),
        };
        Judgement {
            outcome,
            is_best: !purposes.is_empty(),
            why: self.why.clone(),
        }
    }
}

/// The merits that a queue can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// A low delay, and if there are calls or pages, a high score of the calls and fast pages.
    Waiting,
    /// A low delay, and if there are calls, a high score of theirs, where the pages are not faster than
    /// with another queue.
    CallsAndGames,
    /// A low delay, and if there are pages, fast ones, where another queue has better calls.
    Games,
    /// A low delay, where another queue has better calls, and the pages are not faster than with
    /// another.
    OnlyGames,
    /// A high score of calls, where another queue has a lower delay.
    Calls,
    /// Fast pages, where another queue has a lower delay.
    Browsing,
    /// The lowest delay of the queues with enough goodput, where another queue has a lower one.
    Compromise,
    /// A high goodput.
    Transfers,
    /// Even shares.
    Shares,
    /// Few losses.
    Losses,
}

impl Purpose {
    pub const fn words(self) -> &'static str {
        match self {
            Purpose::Waiting => "calls, games and browsing on a busy link",
            Purpose::CallsAndGames => "calls and games on a busy link",
            Purpose::Games => "games and browsing on a busy link",
            Purpose::OnlyGames => "games on a busy link",
            Purpose::Calls => "calls on a busy link",
            Purpose::Browsing => "browsing on a busy link",
            Purpose::Compromise => "a low delay at nearly the full goodput",
            Purpose::Transfers => "bulk transfers that nobody waits for",
            Purpose::Shares => "sharing the link evenly",
            Purpose::Losses => "traffic that suffers from packet loss",
        }
    }
}

/// The share of the best goodput that counts as reaching it.
const NEARLY: f64 = 0.95;
/// Shares of the best goodput that are enough. Each comes with a factor: the delay must be lower by
/// this factor than all delays that the rows before it allow.
const ENOUGH: [(f64, f64); 3] = [(NEARLY, 0.0), (0.8, 3.0), (0.65, 10.0)];
/// Delays within this factor of each other are about the same.
pub(crate) const ABOUT: f64 = 1.1;

/// A reaction within 100 ms is felt as immediate (Miller, "Response time in man-computer conversational
/// transactions", 1968): a lower delay at the expense of goodput is no better for games.
const UNNOTICED_NS: f64 = 100e6;
/// Packets of an empty queue wait less than this.
const NO_WAIT_NS: f64 = 1e3;
/// A share of lost probes that leaves a queue among the candidates for the lowest delay.
const FEW_LOST: f64 = 0.02;
/// A share of lost probes from which the text says of how many probes the delay is.
const MENTIONED_LOSS: f64 = 0.005;
/// Scores of calls within this difference are about the same: a score has steps of 1, and is known to
/// a tenth.
const SAME_SCORE: f64 = 0.1;

/// Assesses each candidate by comparison with those that differ from it only in their queues.
pub(crate) fn judge(candidates: &[&Candidate]) -> Vec<Assessment> {
    candidates
        .iter()
        .map(|one| {
            let others = candidates.iter().filter(|other| other.is_comparable(one));
            let rivals: Vec<&Candidate> = others.copied().collect();
            match rivals.is_empty() {
                // An incomplete run is not compared.
                true => assess(one, &[*one]),
                false => assess(one, &rivals),
            }
        })
        .collect()
}

/// Assesses `one` of the `rivals`.
fn assess(one: &Candidate, rivals: &[&Candidate]) -> Assessment {
    let figures = &one.figures;
    let best = Best::of(rivals);
    let has_rivals = rivals.len() > 1;
    let good_for = match has_rivals {
        true => good_for(figures, &best),
        false => Vec::new(),
    };
    let mut why = vec![delay_words(figures, rivals, &best)];
    if let Some(words) = page_words(figures, rivals, &best) {
        // The first words are about what decides.
        let decides = good_for.first() == Some(&Purpose::Browsing);
        why.insert(usize::from(!decides), words);
    }
    why.extend(
        figures
            .mos
            .map(|mos| format!("calls have a score (MOS) of {mos:.2}")),
    );
    why.push(goodput_words(figures, &best, has_rivals));
    why.extend(shares_words(figures.jain));
    why.extend(loss_words(figures));
    let why: Vec<String> = why.into_iter().filter(|words| !words.is_empty()).collect();
    Assessment {
        is_draw: best.is_draw() && good_for.is_empty(),
        is_undecided: is_undecided(rivals, &best),
        has_rivals,
        good_for,
        why: match why.is_empty() {
            true => "nothing was measured".into(),
            false => why.join("; "),
        },
    }
}

/// The best figures of several queues. Its winners are the queues with about the lowest delay of
/// those with enough goodput.
pub(crate) struct Best {
    pub goodput: Option<f64>,
    /// The share of lost probes with which a queue can win by its delay.
    most_lost: f64,
    /// For each row of [`ENOUGH`], the longest delay that it allows; `None` for any.
    bounds: [Option<f64>; 3],
    /// Lowest 95th percentile of delay among the queues with enough goodput.
    pub p95: Option<f64>,
    /// Lowest 95th percentile of delay among all queues that lose few probes.
    lowest_p95: Option<f64>,
    /// Highest and lowest score of calls.
    most_mos: Option<f64>,
    least_mos: Option<f64>,
    /// Shortest and longest median load time of pages.
    least_page: Option<f64>,
    most_page: Option<f64>,
    /// Number of winners.
    winners: usize,
    /// Whether all of several queues are winners.
    has_same_delay: bool,
    winners_goodput: Option<f64>,
    winners_jain: Option<f64>,
    most_jain: Option<f64>,
    least_jain: Option<f64>,
    /// Smallest share of packets lost.
    winners_loss: Option<f64>,
    least_loss: Option<f64>,
}

impl Best {
    pub fn of(rivals: &[&Candidate]) -> Best {
        let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
        let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min);
        let all = || rivals.iter().map(|rival| &rival.figures);
        let goodput = most(&mut all().filter_map(|f| f.goodput));
        let nearly = all().filter(|f| share(f, goodput) >= NEARLY);
        let fewest_lost = least(&mut nearly.map(|f| f.lost_probes));
        let most_lost = fewest_lost.map_or(1.0, |lost| FEW_LOST.max(ABOUT * lost));
        let answered = || all().filter(|f| f.lost_probes <= most_lost);
        let mut bounds: [Option<f64>; 3] = [None; 3];
        for step in 1..ENOUGH.len() {
            let so_far = answered().filter(|f| is_enough(f, goodput, &bounds[..step]));
            let shortest = least(&mut so_far.filter_map(|f| f.p95));
            // If no probe came back through these queues, any delay is short enough.
            bounds[step] = Some(shortest.map_or(f64::INFINITY, |p95| p95 / ENOUGH[step].1));
        }
        let is_enough = |f: &&Figures| is_enough(f, goodput, &bounds);
        let p95 = least(&mut answered().filter(is_enough).filter_map(|f| f.p95));
        let is_low = |f: &&Figures| f.p95.zip(p95).is_some_and(|(own, p95)| own <= ABOUT * p95);
        let winners = || answered().filter(|f| is_enough(f) && is_low(f));
        Best {
            goodput,
            most_lost,
            bounds,
            p95,
            lowest_p95: least(&mut answered().filter_map(|f| f.p95)),
            most_mos: most(&mut all().filter_map(|f| f.mos)),
            least_mos: least(&mut all().filter_map(|f| f.mos)),
            least_page: least(&mut all().filter_map(|f| f.page)),
            most_page: most(&mut all().filter_map(|f| f.page)),
            winners: winners().count(),
            has_same_delay: rivals.len() > 1 && winners().count() == rivals.len(),
            winners_goodput: most(&mut winners().filter_map(|f| f.goodput)),
            winners_jain: most(&mut winners().filter_map(|f| f.jain)),
            most_jain: most(&mut all().filter_map(|f| f.jain)),
            least_jain: least(&mut all().filter_map(|f| f.jain)),
            winners_loss: least(&mut winners().filter_map(|figures| figures.loss)),
            least_loss: least(&mut all().filter_map(|figures| figures.loss)),
        }
    }

    /// Whether all queues are about equally good: by their delay, and by the pages if there are some.
    pub fn is_draw(&self) -> bool {
        self.has_same_delay && !self.has_different_pages()
    }

    fn is_winner(&self, figures: &Figures) -> bool {
        let both = figures.p95.zip(self.p95);
        let is_low = both.is_some_and(|(own, lowest)| own <= ABOUT * lowest);
        is_low && !self.loses_probes(figures) && is_enough(figures, self.goodput, &self.bounds)
    }

    /// Whether the queue loses too many probes to win by the delay of the others.
    fn loses_probes(&self, figures: &Figures) -> bool {
        figures.lost_probes > self.most_lost
    }

    /// Whether no queue has a lower delay.
    fn is_lowest(&self, figures: &Figures) -> bool {
        let both = figures.p95.zip(self.lowest_p95);
        both.is_some_and(|(own, lowest)| own <= ABOUT * lowest)
    }

    /// Whether the queue has about the best score of calls, which others do not have; `None` if the
    /// calls of all queues are alike, or none was measured.
    fn has_best_calls(&self, figures: &Figures) -> Option<bool> {
        let (most, least) = (self.most_mos?, self.least_mos?);
        let is_best = figures.mos.is_some_and(|own| own >= most - SAME_SCORE);
        (most - least > SAME_SCORE).then_some(is_best)
    }

    /// Whether the pages load about as fast as with the best queue, which those of others do not; `None`
    /// if no page was measured.
    fn has_best_pages(&self, figures: &Figures) -> Option<bool> {
        let least = self.least_page?;
        let is_best = figures.page.is_some_and(|own| own <= ABOUT * least);
        Some(is_best && self.has_different_pages())
    }

    /// Whether the pages load faster with some queues than with others.
    fn has_different_pages(&self) -> bool {
        let both = self.least_page.zip(self.most_page);
        both.is_some_and(|(least, most)| most > ABOUT * least)
    }
}

/// Whether no queue is better than another, and they are not about equally good either: no goodput, no delay
/// and nothing else was measured by which they could be judged.
pub(crate) fn is_undecided(rivals: &[&Candidate], best: &Best) -> bool {
    let has_merit = |one: &&Candidate| !good_for(&one.figures, best).is_empty();
    !best.is_draw() && !rivals.iter().any(has_merit)
}

/// Whether the goodput is enough for the delay, by as many rows of [`ENOUGH`] as there are `bounds`.
fn is_enough(figures: &Figures, best: Option<f64>, bounds: &[Option<f64>]) -> bool {
    let share = share(figures, best);
    let mut steps = ENOUGH.iter().zip(bounds);
    steps.any(|((least, _), bound)| {
        let is_short = |bound: &f64| figures.p95.is_some_and(|own| own <= *bound);
        share >= *least && bound.as_ref().is_none_or(is_short)
    })
}

/// The goodput as a share of the best; 1 if there is none to compare with.
fn share(figures: &Figures, best: Option<f64>) -> f64 {
    match (figures.goodput, best) {
        (Some(own), Some(best)) if best > 0.0 => own / best,
        (None, Some(_)) => 0.0,
        _ => 1.0,
    }
}

pub(crate) fn good_for(figures: &Figures, best: &Best) -> Vec<Purpose> {
    let has_won = best.is_winner(figures);
    let mut purposes = Vec::new();
    let has_low_delay = has_won && !best.has_same_delay;
    let is_lowest = best.is_lowest(figures) || figures.p95.is_some_and(|own| own <= UNNOTICED_NS);
    let (calls, pages) = (best.has_best_calls(figures), best.has_best_pages(figures));
    if has_low_delay && is_lowest {
        purposes.push(match (calls != Some(false), pages != Some(false)) {
            (true, true) => Purpose::Waiting,
            (true, false) => Purpose::CallsAndGames,
            (false, true) => Purpose::Games,
            (false, false) => Purpose::OnlyGames,
        });
    } else {
        purposes.extend((calls == Some(true)).then_some(Purpose::Calls));
        purposes.extend((pages == Some(true)).then_some(Purpose::Browsing));
    }
    if has_low_delay && !is_lowest {
        purposes.push(Purpose::Compromise);
    }
    let winners = best.winners_goodput.unwrap_or(0.0);
    let is_more = |own: f64| own > winners / 0.98 && Some(own) == best.goodput;
    if !has_won && figures.goodput.is_some_and(is_more) {
        purposes.push(Purpose::Transfers);
    }
    if let (Some(jain), Some(most)) = (figures.jain, best.most_jain) {
        let others = match has_won {
            true => 0.0,
            // Another queue is recommended, too, only if it is better than the queue with the low
            // delay in this respect.
            false => best.winners_jain.unwrap_or(0.0) + 0.03,
        };
        let is_draw = best.least_jain.is_some_and(|least| least >= most - 0.01);
        if !is_draw && jain >= 0.95 && jain >= most - 0.01 && jain > others {
            purposes.push(Purpose::Shares);
        }
    }
    let fewest = figures.loss.zip(best.winners_loss);
    let is_least = |own: f64| best.least_loss.is_some_and(|least| own <= ABOUT * least);
    if fewest.is_some_and(|(own, winners)| winners > 0.001 && own < winners / 2.0 && is_least(own))
    {
        purposes.push(Purpose::Losses);
    }
    purposes
}

fn delay_words(figures: &Figures, rivals: &[&Candidate], best: &Best) -> String {
    let Some(p95) = figures.p95 else {
        return match figures.lost_probes {
            lost if lost >= 1.0 => "no ping came back".into(),
            lost if lost > 0.0 => "pings came back in half of the runs only".into(),
            _ => String::new(),
        };
    };
    let of = match figures.delay_of {
        // Packets wait in one direction only.
        DelayOf::Packets => format!("packets in the queue {}", figures.queue),
        DelayOf::Pings if figures.lost_probes >= MENTIONED_LOSS => format!(
            "the pings that came back ({})",
            share_words(1.0 - figures.lost_probes)
        ),
        DelayOf::Pings => "pings".to_owned(),
    };
    let shown = time(p95);
    let Some(lowest) = best.p95.filter(|_| rivals.len() > 1) else {
        return format!("95 % of {of} within {shown}");
    };
    if best.is_winner(figures) {
        let lower = || {
            let others = rivals.iter().map(|row| &row.figures);
            others.filter(|other| other.p95.is_some_and(|own| own * ABOUT < p95))
        };
        let is_low_by_loss = lower().any(|other| best.loses_probes(other));
        let is_low_by_goodput = lower().any(|other| !best.loses_probes(other));
        let how = match (best.winners, is_low_by_goodput, is_low_by_loss) {
            (1, false, false) => "the lowest delay of all",
            (1, true, false) => "the lowest delay of the queues with enough goodput",
            (1, false, true) => "the lowest delay of the queues that lose fewer pings",
            (1, true, true) => {
                "the lowest delay of the queues with enough goodput that lose fewer pings"
            }
            _ if best.has_same_delay => "about the same delay as the others",
            _ => "one of the lowest delays",
        };
        return format!("{how}: 95 % of {of} within {shown}");
    }
    let is_holder = |row: &&&Candidate| row.figures.p95 == Some(lowest);
    let mut winners = rivals.iter().filter(|row| best.is_winner(&row.figures));
    let holder = winners.find(is_holder);
    let holder = holder.map_or("the best", |row| &row.name);
    if best.loses_probes(figures) && p95 < lowest * 1.05 {
        return format!("95 % of {of} within {shown}, but more pings are lost than with {holder}");
    }
    match p95 / lowest {
        f if f < 1.0 => format!("95 % of {of} within {shown}, at the expense of goodput"),
        f if f < 1.05 || p95 < NO_WAIT_NS => {
            format!("95 % of {of} within {shown}, about the same as with {holder}")
        }
        // Nothing is a multiple of no wait.
        _ if lowest < NO_WAIT_NS => {
            format!("95 % of {of} take up to {shown}, longer than with {holder}")
        }
        f if f < 10.0 => {
            format!("95 % of {of} take up to {shown}, {f:.1} times as long as with {holder}")
        }
        f => format!("95 % of {of} take up to {shown}, {f:.0} times as long as with {holder}"),
    }
}

/// Returns what was measured of the pages; `None` if nothing was.
fn page_words(figures: &Figures, rivals: &[&Candidate], best: &Best) -> Option<String> {
    let (own, fastest) = (figures.page?, best.least_page?);
    let shown = time(own);
    if own.is_infinite() {
        let when = match figures.runs {
            0 | 1 => "",
            _ => "in half of the runs or more, ",
        };
        return Some(format!("{when}no page was complete"));
    }
    if rivals.len() < 2 {
        return Some(format!("half of the pages load within {shown}"));
    }
    if own > ABOUT * fastest {
        let mut holders = rivals
            .iter()
            .filter(|row| row.figures.page == Some(fastest));
        let holder = holders.next().map_or("the best", |row| &row.name);
        let factor = own / fastest;
        let places = usize::from(factor < 10.0);
        return Some(format!(
            "half of the pages take up to {shown}, {factor:.places$} times as long as with {holder}"
        ));
    }
    let is_fast = |row: &&&Candidate| row.figures.page.is_some_and(|page| page <= ABOUT * fastest);
    let lead = match rivals.iter().filter(is_fast).count() {
        _ if !best.has_different_pages() => "the pages load about as fast as with the others",
        1 => "the fastest pages of all",
        _ => "some of the fastest pages",
    };
    Some(format!("{lead}: half of them within {shown}"))
}

/// A share in per cent, with the digit that tells it from the whole.
fn share_words(share: f64) -> String {
    match share {
        share if share < 0.99 => format!("{:.0} %", share * 100.0),
        share => format!("{:.1} %", share * 100.0),
    }
}

fn goodput_words(figures: &Figures, best: &Best, has_rivals: bool) -> String {
    let (Some(own), Some(most)) = (figures.goodput, best.goodput) else {
        return String::new();
    };
    let shown = rate(own);
    match own / most {
        _ if !has_rivals => format!("{shown} of goodput"),
        _ if most <= 0.0 => "no payload arrived".to_owned(),
        share if share >= 0.98 => format!("full goodput ({shown})"),
        share if share >= NEARLY => format!("{:.0} % of the best goodput ({shown})", share * 100.0),
        share => format!("gives up {:.0} % of the goodput", (1.0 - share) * 100.0),
    }
}

pub(crate) fn shares_words(jain: Option<f64>) -> Option<String> {
    let jain = jain?;
    Some(match jain {
        j if j >= 0.95 => format!("shares evenly (Jain's index {jain:.2})"),
        j if j >= 0.8 => format!("shares fairly evenly (Jain's index {jain:.2})"),
        _ => format!("shares unevenly (Jain's index {jain:.2})"),
    })
}

fn loss_words(figures: &Figures) -> Option<String> {
    let loss = figures.loss?;
    match (figures.drops == 0.0, figures.marks > 0.0) {
        (true, true) => Some("marks packets and drops none".into()),
        (true, false) => Some("drops no packets".into()),
        _ if loss >= 0.01 => Some(format!("drops {:.1} % of the packets", loss * 100.0)),
        _ => None,
    }
}

/// A rate with three digits.
fn rate(bps: f64) -> String {
    let (scale, unit) = match bps {
        r if r >= 1e9 => (1e9, "Gbit/s"),
        r if r >= 1e6 => (1e6, "Mbit/s"),
        _ => (1e3, "kbit/s"),
    };
    format!("{} {unit}", digits(bps / scale))
}

/// A time with three digits.
fn time(ns: f64) -> String {
    let (scale, unit) = match ns {
        n if n >= 1e9 => (1e9, "s"),
        n if n >= 1e6 => (1e6, "ms"),
        _ => (1e3, "µs"),
    };
    format!("{} {unit}", digits(ns / scale))
}

/// A number with three digits.
fn digits(x: f64) -> String {
    match x {
        x if x < 9.995 => format!("{x:.2}"),
        x if x < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}
