//! Texts of a drawing: their widths, and where they are broken into lines.

use std::collections::BTreeSet;

use plotters::style::FontDesc;

use super::{FINE, bold, plain};

/// Measures texts in CSS pixels.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// The factor by which the figure's own font is wider than the font in which texts are
    /// measured.
    pub stretch: f64,
}

impl Measure {
    /// The width of a text of a size in CSS pixels.
    pub fn plain(self, text: &str, size: f64) -> u32 {
        self.width(text, &plain(size))
    }

    /// The width of a bold text.
    pub fn bold(self, text: &str, size: f64) -> u32 {
        (f64::from(self.width(text, &bold(size))) * BOLD).ceil() as u32
    }

    /// plotters measures with the full height of the font, 1.362 em for Noto Sans, but writes
    /// 1.24 em.
    fn width(self, text: &str, font: &FontDesc<'static>) -> u32 {
        let (width, _) = font
            .box_size(text)
            .expect("the font has been registered, and measuring it cannot fail");
        (f64::from(width) * 1.362 / 1.24 / f64::from(FINE) * self.stretch).ceil() as u32
    }
}

/// Breaks a text into lines that are at most as wide as `room`. A word that is wider is broken at one
/// of its joints, or else anywhere.
pub fn break_lines(text: &str, room: u32, wide: &dyn Fn(&str) -> u32) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let line = lines.last_mut().expect("there is always a line");
        let longer = match line.is_empty() {
            true => word.to_owned(),
            false => format!("{line} {word}"),
        };
        if wide(&longer) <= room {
            *line = longer;
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        let mut rest = word;
        while wide(rest) > room {
            let (start, end) = rest.split_at(cut(rest, room, wide));
            if end.is_empty() {
                break;
            }
            *lines.last_mut().expect("there is always a line") = start.to_owned();
            lines.push(String::new());
            rest = end;
        }
        *lines.last_mut().expect("there is always a line") = rest.to_owned();
    }
    lines
}

/// The place at which a word is broken: behind the last joint that fits, or behind the last
/// character that fits, but behind the first one at least.
fn cut(word: &str, room: u32, wide: &dyn Fn(&str) -> u32) -> usize {
    let ends = || word.char_indices().map(|(at, c)| (at + c.len_utf8(), c));
    let fitting = || ends().take_while(|(end, _)| wide(&word[..*end]) <= room);
    let joint = fitting().filter(|(_, c)| JOINTS.contains(c)).last();
    let any = fitting().last().or_else(|| ends().next());
    joint.or(any).map_or(word.len(), |(end, _)| end)
}

/// Returns whether breaking `text` into lines of this width breaks no word except at its joints.
pub fn breaks_well(text: &str, room: u32, wide: &dyn Fn(&str) -> u32) -> bool {
    let parts = text
        .split(' ')
        .flat_map(|word| word.split_inclusive(JOINTS));
    parts.into_iter().all(|part| wide(part) <= room)
}

/// The text, or its beginning with an ellipsis if it is wider than `room`.
pub fn shortened(text: &str, room: u32, wide: &dyn Fn(&str) -> u32) -> String {
    if wide(text) <= room {
        return text.to_owned();
    }
    let short = |end: usize| format!("{}…", text[..end].trim_end());
    let ends = text.char_indices().map(|(at, _)| at);
    let fitting = ends.map(short).take_while(|short| wide(short) <= room);
    fitting.last().unwrap_or_else(|| "…".to_owned())
}

/// The names, shortened to the first of `rooms` in which those that differ still do: as they are, or
/// without the words that all of them share. `None` if no room is enough.
pub fn shortened_apart(
    names: &[String],
    rooms: [u32; 2],
    wide: &dyn Fn(&str) -> u32,
) -> Option<Vec<String>> {
    let own = without_shared(names);
    let count = |names: &[String]| names.iter().collect::<BTreeSet<_>>().len();
    let mut choices = rooms.into_iter().flat_map(|room| {
        [names, own.as_slice()].map(|names| {
            let short = names.iter().map(|name| shortened(name, room, wide));
            short.collect::<Vec<String>>()
        })
    });
    choices.find(|short| count(short) == count(names))
}

/// The names without the words that all of them have, unless nothing is left of one.
fn without_shared(names: &[String]) -> Vec<String> {
    let is_shared = |word: &&str| {
        let has_it = |name: &String| name.split(' ').any(|other| other == *word);
        names.iter().all(has_it)
    };
    let own = names.iter().map(|name| {
        let words = name.split(' ').filter(|word| !is_shared(word));
        words.collect::<Vec<&str>>().join(" ")
    });
    let own: Vec<String> = own.collect();
    match own.iter().any(String::is_empty) {
        true => names.to_vec(),
        false => own,
    }
}

/// Bold letters are this much wider than plotters measures.
const BOLD: f64 = 1.08;

/// The characters behind which a word can be broken. Names of algorithms, such as `fq_codel`, stay
/// whole.
const JOINTS: [char; 5] = ['-', '=', ',', '/', '.'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_wide_as_there_is_room_and_break_at_joints() {
        let wide = |text: &str| text.chars().count() as u32;
        let lines = |text, room| break_lines(text, room, &wide);
        assert_eq!(lines("the title of a page", 9), ["the title", "of a page"]);
        assert_eq!(
            lines("target=5ms-rtt=100ms", 12),
            ["target=5ms-", "rtt=100ms"]
        );
        assert_eq!(lines("unbreakable", 4), ["unbr", "eaka", "ble"]);
        // A room that is too narrow for one character still ends.
        assert_eq!(lines("abc", 0), ["a", "b", "c"]);
        assert!(breaks_well("target=5ms", 7, &wide) && !breaks_well("fq_codel", 7, &wide));
        assert_eq!(shortened("fq_codel", 4, &wide), "fq_…");
    }

    #[test]
    fn names_that_differ_have_labels_that_differ() {
        let wide = |text: &str| text.chars().count() as u32;
        let labels = |names: &[&str], rooms| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            shortened_apart(&names, rooms, &wide).map(|labels| labels.join("|"))
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(labels(&["fq_codel", "fifo"], [4, 8]), is("fq_…|fifo"));
        // Both begin with "rtt=1…".
        let queues = ["rtt=10ms fifo", "rtt=10ms codel"];
        assert_eq!(labels(&queues, [6, 20]), is("fifo|codel"));
        let axes = [
            "rtt=10ms cubic fifo",
            "rtt=10ms cubic codel",
            "rtt=50ms reno fifo",
        ];
        assert_eq!(
            labels(&axes, [11, 20]),
            is("rtt=10ms cubic fifo|rtt=10ms cubic codel|rtt=50ms reno fifo")
        );
        // Without their common word, nothing would be left of the first.
        assert_eq!(
            labels(&["fifo", "fifo of 10"], [3, 10]),
            is("fifo|fifo of 10")
        );
        assert_eq!(labels(&["unbreakable-1", "unbreakable-2"], [5, 8]), None);
        // What is the same has one label.
        assert_eq!(
            labels(&["unbreakable", "unbreakable"], [5, 8]),
            is("unbr…|unbr…")
        );
    }
}
