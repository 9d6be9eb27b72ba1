//! The folder of a variant's recording.

use super::{PICTURE_ENDINGS, Variant};

impl Variant {
    /// Returns the name as a folder: without spaces and other characters that are special in shells and
    /// file systems, and other than the files and pictures that a suite has beside it. A name that is too long
    /// for a file system loses its end and gets a hash of the whole.
    pub fn folder(&self) -> String {
        let mut folder = slug(&self.name);
        let ending = folder.rsplit_once('.').map_or("", |(_, ending)| ending);
        let is_picture = PICTURE_ENDINGS.contains(&ending);
        if is_picture || FILES.contains(&folder.as_str()) || ending == "part" {
            folder.push_str("-run");
        }
        if folder.len() > MOST_BYTES {
            let hash = format!("-{:016x}", hash(&self.name));
            let mut end = MOST_BYTES - hash.len();
            while !folder.is_char_boundary(end) {
                end -= 1;
            }
            folder.truncate(end);
            folder.push_str(&hash);
        }
        folder
    }
}

pub(crate) fn slug(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '=');
    let mut slug = String::new();
    for c in name.chars() {
        // `.` and `..` are other folders, and what begins with a point is hidden.
        let is_first_point = slug.is_empty() && c == '.';
        if is_plain(c) && !is_first_point {
            slug.push(c);
        } else if !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug
}

/// FNV-1a with 64 bits.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The files beside the folders of a scenario's variants.
const FILES: &[&str] = &[
    "agreement.json",
    "figures.csv",
    "index.html",
    "report.html",
    "summary.json",
];

/// The bytes of the longest folder. A file system has 255, of which `.live.seed-9223372036854775807` takes 30.
const MOST_BYTES: usize = 220;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;

    fn folder(name: &str) -> String {
        let text = "duration = \"2s\"\n[link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"ping\"\n";
        let mut variant = Scenario::parse("x.toml", text, &[]).unwrap().remove(0);
        variant.name = name.to_owned();
        variant.folder()
    }

    #[test]
    fn a_folder_is_none_of_the_files_beside_it() {
        assert_eq!(folder("report.html"), "report.html-run");
        assert_eq!(folder("summary.json"), "summary.json-run");
        assert_eq!(folder("summary.json.part"), "summary.json.part-run");
        assert_eq!(folder("figures.csv"), "figures.csv-run");
        // A row of [[picture]] may be written to it.
        assert_eq!(folder("curve.pdf"), "curve.pdf-run");
        assert_eq!(folder("report html"), "report-html");
        assert_eq!(folder("pdf"), "pdf");
    }

    #[test]
    fn a_long_name_is_shortened_to_a_folder_of_its_own() {
        let long = "b".repeat(220);
        assert_eq!(folder(&long), long);
        let [one, other] = [folder(&format!("{long}c")), folder(&format!("{long}d"))];
        assert_ne!(one, other);
        for name in [&one, &other] {
            assert_eq!(name.len(), 220);
            assert!(name.starts_with(&"b".repeat(203)), "{name}");
        }
        // 203 bytes would end within a character of two bytes.
        assert_eq!(folder(&"\u{e9}".repeat(150)).len(), 202 + 17);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // The offset basis, and test vector `a` of Fowler, Noll and Vo.
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
