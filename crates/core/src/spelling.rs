//! Suggestions for misspelled words.
//!
//! One rule applies to every grammar: queues, links, scenario files, columns, ipfw commands. It is
//! implemented here because the well-known crates for edit distances need `std`.

use alloc::string::String;
use alloc::vec::Vec;

/// Returns those of `candidates` that are nearest to `word`: all that are equally near, in the
/// order given, at most three; none if all are far.
///
/// The distance counts letters that are missing, surplus, wrong, or swapped with their neighbour.
/// Upper and lower case are equal, and so are `_`, `-` and a space. A candidate is near if at most
/// a third of the longer word's letters differ (or one letter of a short word), or if one word is a
/// prefix of the other. Of two words with more than 128 letters, only prefixes are near.
///
/// ```
/// use sluice_core::spelling::nearest;
/// assert_eq!(nearest("tarqet", ["target", "interval"]), ["target"]);
/// assert_eq!(nearest("FQ codel", ["codel", "fq_codel"]), ["fq_codel"]);
/// assert_eq!(nearest("inter", ["target", "interval"]), ["interval"]);
/// assert!(nearest("colour", ["target", "interval"]).is_empty());
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = folded(word);
    let mut best = usize::MAX;
    let mut near = Vec::new();
    for candidate in candidates {
        let Some(distance) = distance_if_near(&word, &folded(candidate)) else {
            continue;
        };
        if distance < best {
            best = distance;
            near.clear();
        }
        if distance == best && near.len() < AT_MOST && !near.contains(&candidate) {
            near.push(candidate);
        }
    }
    near
}

/// Returns the question `did you mean ...?` with the nearest words, or `None` if none is near.
///
/// ```
/// use sluice_core::spelling::question;
/// assert_eq!(question("tarqet", ["target"]).as_deref(), Some("did you mean `target`?"));
/// assert_eq!(question("colour", ["target"]), None);
/// ```
pub fn question<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let near = nearest(word, candidates);
    (!near.is_empty()).then(|| alloc::format!("did you mean `{}`?", near.join("` or `")))
}

/// The largest number of suggestions in one answer.
const AT_MOST: usize = 3;
/// The distance of two words takes steps in proportion to the product of their lengths, and a text that is
/// no configuration may have words of megabytes.
const MOST_LETTERS: usize = 128;

fn folded(word: &str) -> Vec<char> {
    let fold = |c: char| if matches!(c, '-' | ' ') { '_' } else { c };
    word.chars()
        .flat_map(char::to_lowercase)
        .map(fold)
        .collect()
}

fn distance_if_near(word: &[char], candidate: &[char]) -> Option<usize> {
    let (shorter, longer) = if word.len() < candidate.len() {
        (word, candidate)
    } else {
        (candidate, word)
    };
    // Each surplus letter is an edit, so the distance is at least this.
    let surplus = longer.len() - shorter.len();
    let most = (longer.len() / 3).max(1);
    if surplus <= most && shorter.len() <= MOST_LETTERS {
        let distance = distance(word, candidate);
        if distance <= most {
            return Some(distance);
        }
    }
    // A single letter is a prefix of too many words. The surplus is all that a prefix lacks.
    let is_beginning = shorter.len() > 1 && longer.starts_with(shorter);
    is_beginning.then_some(surplus)
}

/// Returns how many letters must be inserted, deleted or changed, or neighbours swapped, where no
/// letter is edited twice ("optimal string alignment").
fn distance(a: &[char], b: &[char]) -> usize {
    // Rows of the table of distances between prefixes: the one before last, the last, and this one.
    let mut rows: [Vec<usize>; 3] = [Vec::new(), (0..=b.len()).collect(), Vec::new()];
    for i in 1..=a.len() {
        let [before, last, row] = &mut rows;
        row.clear();
        row.push(i);
        for j in 1..=b.len() {
            let is_wrong = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (last[j] + 1)
                .min(row[j - 1] + 1)
                .min(last[j - 1] + is_wrong);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_edits() {
        let distance = |a: &str, b: &str| distance(&folded(a), &folded(b));
        // Wrong, missing, surplus, swapped; and "kitten" to "sitting", the textbook example with
        // two changes and one insertion.
        for (a, b, edits) in [
            ("", "", 0),
            ("", "red", 3),
            ("pie", "pie", 0),
            ("pia", "pie", 1),
            ("pe", "pie", 1),
            ("piie", "pie", 1),
            ("ipe", "pie", 1),
            ("kitten", "sitting", 3),
            ("CoDel", "codel", 0),
            ("fq-codel", "fq_codel", 0),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    /// 1000 candidates of six letters. The distances of a word of 4 000 000 letters to them would take
    /// 2.4 x 10^10 steps, that of two such words 1.6 x 10^13.
    #[test]
    fn a_long_word_costs_no_distances() {
        let long = "x".repeat(4_000_000);
        let names: Vec<String> = (0..1000).map(|n| alloc::format!("abc{n:03}")).collect();
        let candidates = || names.iter().map(String::as_str);
        assert!(nearest(&long, candidates()).is_empty());
        let other = "y".repeat(4_000_000);
        assert!(nearest(&long, [other.as_str()]).is_empty());
        // A beginning of the word is near, whatever the length.
        assert_eq!(nearest(&long, candidates().chain(["xxxx"])), ["xxxx"]);
        // At the limit: the 129th letter of both ends the search.
        let (word, near) = ("a".repeat(128), "a".repeat(127) + "b");
        assert_eq!(nearest(&word, [near.as_str()]), [near.as_str()]);
        assert!(nearest(&(word + "c"), [(near + "d").as_str()]).is_empty());
    }

    #[test]
    fn only_the_equally_near_are_named() {
        assert_eq!(
            nearest("fq_coddle", ["codel", "fq_codel", "fq_cobalt"]),
            ["fq_codel"]
        );
        assert_eq!(nearest("min", ["max", "min_th", "mini"]), ["mini"]);
        assert_eq!(nearest("rat", ["rate", "cat"]), ["rate", "cat"]);
        assert_eq!(
            nearest("fq", ["fq_a", "fq_b", "fq_c", "fq_d"]),
            ["fq_a", "fq_b", "fq_c"]
        );
        assert_eq!(nearest("", ["red", "pie"]), Vec::<&str>::new());
    }
}
