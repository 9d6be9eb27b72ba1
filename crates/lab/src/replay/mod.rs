//! A recorded arrival trace through one queue and link, in virtual time.

/// The words of `candidates` that are closest to `word`, best first, at most three; none if all are
/// far off.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut near: Vec<(usize, &str)> = candidates
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        // Half of the letters wrong is another word.
        .filter(|(distance, candidate)| *distance * 2 <= candidate.chars().count().max(3))
        .collect();
    near.sort();
    near.truncate(3);
    near.into_iter().map(|(_, candidate)| candidate).collect()
}
