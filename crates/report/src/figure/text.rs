//! Texts of a drawing: their widths, and where they are broken into lines.

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
}
