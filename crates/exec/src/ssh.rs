//! The configuration of OpenSSH's client.
//!
//! In an ordinary user's namespace, the files of root seem to belong to the user nobody. `ssh` refuses an
//! included file that belongs neither to root nor to the user (readconf.c, `read_config_file_depth`), and many
//! distributions include some in `/etc/ssh/ssh_config`. So the program sees copies, which belong to
//! the user.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sluice_net::process::Replacement;

/// Returns copies of the files of root that the machine's configuration includes. It must be called
/// before the user namespace is entered, while the files show their owner. Root needs no copies.
pub fn copies() -> Vec<Replacement> {
    if rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let files = included(Path::new(FOLDER), ROOT);
    files
        .into_iter()
        .filter_map(|(path, contents)| Replacement::new(&path, contents))
        .collect()
}

/// Returns the files that `ssh_config` in this folder includes, directly or not, and that `ssh` accepts
/// because of their owner and mode.
fn included(folder: &Path, owner: u32) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut texts = vec![fs::read(folder.join("ssh_config")).unwrap_or_default()];
    while let Some(text) = texts.pop() {
        let text = String::from_utf8_lossy(&text);
        let patterns = text.lines().flat_map(patterns);
        for path in patterns.flat_map(|pattern| matches(&folder.join(pattern))) {
            if !found.contains_key(&path)
                && let Some(contents) = accepted(&path, owner)
            {
                texts.push(contents.clone());
                found.insert(path, contents);
            }
        }
    }
    found
}

/// Returns the patterns of a line such as `Include ssh_config.d/*.conf` (ssh_config(5)). Patterns with
/// blanks are not supported.
fn patterns(line: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| c.is_whitespace() || c == '=';
    let (keyword, rest) = line.trim().split_once(is_end).unwrap_or_default();
    let is_include = keyword.eq_ignore_ascii_case("include");
    rest.trim_start_matches(is_end)
        .split_whitespace()
        .take_while(move |word| is_include && !word.starts_with('#'))
        .map(|word| word.trim_matches('"'))
}

/// Returns the paths that match an absolute pattern with `*` and `?`.
fn matches(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern {
        let bytes = part.as_bytes();
        found = if bytes.contains(&b'*') || bytes.contains(&b'?') {
            let entries = found.iter().flat_map(fs::read_dir).flatten().flatten();
            entries
                .filter(|entry| is_match(part, &entry.file_name()))
                .map(|entry| entry.path())
                .collect()
        } else {
            found.iter().map(|path| path.join(part)).collect()
        };
    }
    found
}

/// Returns whether a name matches a pattern. A dot at the start must be written (glob(7)).
fn is_match(pattern: &OsStr, name: &OsStr) -> bool {
    fn rest_matches(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=name.len()).any(|at| rest_matches(rest, &name[at..])),
            ([first, pattern @ ..], [byte, name @ ..]) => {
                (first == byte || *first == b'?') && rest_matches(pattern, name)
            }
            _ => false,
        }
    }
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    pattern.starts_with(b".") == name.starts_with(b".") && rest_matches(pattern, name)
}

/// Returns the contents of a file that belongs to `owner`, and that nobody else may write.
fn accepted(path: &Path, owner: u32) -> Option<Vec<u8>> {
    let file = fs::metadata(path).ok()?;
    let is_safe = file.is_file() && file.uid() == owner && file.mode() & 0o022 == 0;
    is_safe.then(|| fs::read(path).ok())?
}

/// The folder of the machine's configuration.
const FOLDER: &str = "/etc/ssh";
/// The user number of root.
const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn included_files_are_found_through_patterns_links_and_further_files() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).unwrap();
            let mode = fs::Permissions::from_mode(0o644);
            fs::set_permissions(folder.join(name), mode).unwrap();
        };
        fs::create_dir(folder.join("conf.d")).unwrap();
        write(
            "ssh_config",
            "# Include never\nInclude conf.d/*.conf\nHost *\n  include=\"quoted\" missing # never\n",
        );
        let deeper = folder.join("deeper").display().to_string();
        write("conf.d/10-a.conf", &format!("INCLUDE {deeper}\n"));
        write("deeper", "Include conf.d/1?-a.conf\n");
        write("linked", "");
        symlink("../linked", folder.join("conf.d/20-b.conf")).unwrap();
        write("quoted", "IncludeNot never\n");
        for other in [
            "conf.d/.c.conf",
            "conf.d/d.config",
            "never",
            "conf.d/loose.conf",
        ] {
            write(other, "");
        }
        let mode = fs::Permissions::from_mode(0o664);
        fs::set_permissions(folder.join("conf.d/loose.conf"), mode).unwrap();

        let own = rustix::process::geteuid().as_raw();
        let found: Vec<PathBuf> = included(folder, own).into_keys().collect();
        let expected = ["conf.d/10-a.conf", "conf.d/20-b.conf", "deeper", "quoted"];
        assert_eq!(found, expected.map(|name| folder.join(name)));
        assert!(included(folder, own + 1).is_empty());
    }
}
