//! The link between the program and everything outside: a name or a file, and options that change
//! it.

use std::path::{Path, PathBuf};

use sluice_scenario::{Link, Overrides, Scenario, ScenarioErrors, Texts, toml_text};

/// How the user describes a link.
#[derive(Clone, Debug, Default)]
pub struct LinkWords {
    /// A link's name, or the path of a scenario. Of a scenario, only `[link]`, `[[hop]]`, `seed`
    /// and `[measure]` are used.
    pub link: Option<String>,
    /// Options that set a key: the option, the key and the value. Later ones take precedence.
    pub options: Vec<(&'static str, &'static str, String)>,
    /// Keys of the link, such as `down.rate`, or `rate` for both directions; or `seed`. Later ones
    /// take precedence over earlier ones, and all of them over options.
    pub sets: Vec<(String, String)>,
    /// More such keys, which take precedence over all others. They are requested at run time, and must
    /// not name files.
    pub asked: Vec<(String, String)>,
    /// Mahimahi traces of the directions down and up.
    pub traces: [Option<PathBuf>; 2],
    /// The texts of the files that were read. Each is read once, however often the link is read.
    pub texts: Texts,
}

/// The reason why a link cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The file cannot be read.
    #[error("cannot read the link {}: {reason}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's answer, or what is wrong with the text.
        reason: String,
    },
    /// The file, an option or a trace contains errors.
    #[error(transparent)]
    Words(#[from] ScenarioErrors),
    /// A scenario cannot have the name of a trace.
    #[error("{option}: the path `{}` is not UTF-8; rename the file", .path.display())]
    NotUtf8 {
        /// The option that names the trace.
        option: &'static str,
        /// Its absolute path.
        path: PathBuf,
    },
    /// The scenario has several variants.
    #[error(
        "{0} has a [matrix] of {1} variants; choose one of each of its values with --set KEY=VALUE"
    )]
    Variants(String, usize),
    /// The scenario has rules instead of links.
    #[error("{0} has `rules`; a program is put behind [link] and [[hop]]")]
    Rules(String),
}

impl LinkWords {
    /// Reads the links, in the order of the path up.
    ///
    /// # Errors
    /// All errors, each with its place.
    pub fn links(&self) -> Result<Vec<Link>, LinkError> {
        Ok(self.scenario()?.links().cloned().collect())
    }

    /// Reads the links as part of a scenario, whose traffic and duration have no meaning.
    ///
    /// # Errors
    /// All errors, each with its place.
    pub fn scenario(&self) -> Result<Scenario, LinkError> {
        let (name, mut text) = match &self.link {
            Some(word) if is_path(word) => {
                let path = Path::new(word);
                let text = self.texts.read(path).map_err(|reason| LinkError::Read {
                    path: path.to_owned(),
                    reason,
                })?;
                (word.clone(), text)
            }
            _ => ("the command line".to_owned(), "[link]\n".to_owned()),
        };
        // A scenario must have traffic and a duration, although here the program decides both.
        if !text.lines().any(|line| line.trim() == "[[flow]]") {
            text.push_str("\n[[flow]]\ntype = \"ping\"\n");
        }
        // Keys and values, each with the option that it comes from.
        let mut sets = vec![(format!("duration={SCHEDULED}"), String::new())];
        if let Some(word) = self.link.as_ref().filter(|word| !is_path(word)) {
            sets.push((format!("link.preset={word}"), format!("--link {word}")));
        }
        let is_bare = self.link.is_none();
        let of_options = self.options.iter().map(|(_, key, _)| *key);
        let of_sets = self.sets.iter().chain(&self.asked);
        let of_sets = of_sets.map(|(key, _)| key.as_str());
        let given: Vec<&str> = of_options.chain(of_sets).collect();
        let directions = [("down", "--trace"), ("up", "--up-trace")];
        for ((direction, option), trace) in directions.iter().zip(&self.traces) {
            let rate = format!("{direction}.rate");
            if let Some(path) = trace {
                let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                let Some(text) = absolute.to_str() else {
                    return Err(LinkError::NotUtf8 {
                        option,
                        path: absolute,
                    });
                };
                sets.push((
                    format!("link.{rate}={{ trace = {} }}", toml_text(text)),
                    format!("{option} {}", path.display()),
                ));
            } else if is_bare && !given.contains(&rate.as_str()) && !given.contains(&"rate") {
                sets.push((format!("link.{rate}=unlimited"), String::new()));
            }
        }
        for (option, key, value) in &self.options {
            let written = format!("{option} {value}");
            let keys = keys_of(key, value).into_iter();
            sets.extend(keys.map(|set| (set, written.clone())));
        }
        for (key, value) in &self.sets {
            let written = format!("--set {key}={value}");
            let keys = keys_of(key, value).into_iter();
            sets.extend(keys.map(|set| (set, written.clone())));
        }
        let with_files = sets.len();
        for (key, value) in &self.asked {
            let keys = keys_of(key, value).into_iter();
            sets.extend(keys.map(|set| (set, format!("--set {key}={value}"))));
        }
        let (sets, written): (Vec<String>, Vec<String>) = sets.into_iter().unzip();
        let overrides = Overrides {
            sets: &sets,
            written: &written,
            with_files,
            texts: &self.texts,
        };
        let mut variants = Scenario::parse_with(&name, &text, overrides)?;
        if variants.len() > 1 {
            return Err(LinkError::Variants(name, variants.len()));
        }
        let scenario = variants.pop().map(|variant| variant.scenario);
        let scenario = scenario.expect("a scenario has at least one variant");
        if scenario.rules.is_some() {
            return Err(LinkError::Rules(name));
        }
        Ok(scenario)
    }
}

/// Returns the keys of a scenario that a key of the link stands for, each with its value.
fn keys_of(key: &str, value: &str) -> Vec<String> {
    match key.split('.').next() {
        Some("rtt" | "up" | "down") => vec![format!("link.{key}={value}")],
        Some("link" | "hop" | "matrix" | "seed") => vec![format!("{key}={value}")],
        // Each direction separately, since a file or a named link may set them apart.
        _ => ["down", "up"]
            .map(|way| format!("link.{way}.{key}={value}"))
            .into(),
    }
}

/// Returns whether a word is a path. A link's name contains no dot, and its only slash follows the
/// name of a source.
fn is_path(word: &str) -> bool {
    word.ends_with(".toml") || word.starts_with(['.', '/']) || Path::new(word).is_file()
}

/// The time for which repeating schedules are expanded. Afterwards rates stay constant.
const SCHEDULED: &str = "2h";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use sluice_core::{Rate, Span};

    fn link(sets: &[(&str, &str)]) -> Link {
        let sets = sets.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        let words = LinkWords {
            sets: sets.collect(),
            ..LinkWords::default()
        };
        words.links().unwrap().remove(0)
    }

    #[test]
    fn a_key_without_a_direction_sets_both_and_later_ones_win() {
        let link = link(&[
            ("rate", "10Mbit/s"),
            ("up.rate", "1Mbit/s"),
            ("queue", "fq_codel target 5ms"),
            ("loss", "0.5%"),
        ]);
        let rates = [&link.down, &link.up].map(|pipe| pipe.rate.at(Span::ZERO));
        let mbit = |n: u64| Some(Rate::from_bps(n * 1_000_000));
        assert_eq!(rates, [mbit(10), mbit(1)]);
        for pipe in [&link.down, &link.up] {
            assert_eq!(pipe.queue.to_string(), "fq_codel target 5ms");
            let loss = pipe.params().loss.loss;
            assert_eq!(loss.as_billionths(), 5_000_000);
        }
    }

    #[test]
    fn without_a_rate_the_link_is_unlimited() {
        let link = link(&[]);
        assert!(link.down.rate.at(Span::ZERO).unwrap().is_unlimited());
        assert_eq!(link.rtt(), Span::ZERO);
    }

    #[test]
    fn an_odd_round_trip_is_split_without_loss() {
        let link = link(&[("rtt", "60000001ns")]);
        // As in a scenario, the way up has the odd nanosecond.
        assert_eq!(link.down.delay.first(), Span::from_ns(30_000_000));
        assert_eq!(link.up.delay.first(), Span::from_ns(30_000_001));
    }

    #[test]
    fn a_scenario_needs_neither_duration_nor_flows() {
        let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        fs::write(file.path(), "[link]\nrate = \"5Mbit/s\"\nrtt = \"20ms\"\n").unwrap();
        let words = LinkWords {
            link: Some(file.path().display().to_string()),
            sets: vec![("down.queue".into(), "codel".into())],
            ..LinkWords::default()
        };
        let link = words.links().unwrap().remove(0);
        assert_eq!(link.rtt(), Span::from_ms(20));
        let mut slower = words.clone();
        slower.sets.push(("rtt".into(), "50ms".into()));
        assert_eq!(slower.links().unwrap()[0].rtt(), Span::from_ms(50));
        assert_eq!(link.down.queue.to_string(), "codel");
        assert_eq!(link.up.queue.to_string(), "fifo");
    }

    #[test]
    fn the_seed_is_that_of_the_file_unless_it_is_set() {
        let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        fs::write(file.path(), "seed = 98\n[link]\nrate = \"5Mbit/s\"\n").unwrap();
        let seed = |link: Option<String>, sets: &[(&str, &str)]| {
            let sets = sets.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            let words = LinkWords {
                link,
                sets: sets.collect(),
                ..LinkWords::default()
            };
            words.scenario().unwrap().seed
        };
        let path = || Some(file.path().display().to_string());
        assert_eq!(seed(path(), &[]), 98);
        assert_eq!(seed(path(), &[("seed", "7")]), 7);
        assert_eq!(seed(None, &[("seed", "7")]), 7);
        // The default of every scenario.
        assert_eq!(seed(None, &[]), 1);
    }

    #[test]
    fn a_delay_replaces_a_round_trip_time_of_the_file_and_the_reverse() {
        let ms = Span::from_ms;
        let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        // The delays down and up of a link of this text with these keys.
        let delays = |text: &str, sets: &[(&str, &str)]| {
            fs::write(file.path(), text).unwrap();
            let sets = sets.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            let words = LinkWords {
                link: Some(file.path().display().to_string()),
                sets: sets.collect(),
                ..LinkWords::default()
            };
            let link = words.links().unwrap().remove(0);
            [link.down.delay.first(), link.up.delay.first()]
        };
        let of_rtt = "[link]\nrate = \"5Mbit/s\"\nrtt = \"20ms\"\n";
        let inline = "link = { rate = \"5Mbit/s\", rtt = \"20ms\" }\n";
        for text in [of_rtt, inline] {
            assert_eq!(delays(text, &[("delay", "5ms")]), [ms(5), ms(5)]);
            // The other direction keeps half of 20 ms.
            assert_eq!(delays(text, &[("up.delay", "5ms")]), [ms(10), ms(5)]);
            assert_eq!(delays(text, &[("rtt", "50ms")]), [ms(25), ms(25)]);
            let later = [("delay", "5ms"), ("rtt", "50ms"), ("down.delay", "1ms")];
            assert_eq!(delays(text, &later), [ms(1), ms(25)]);
        }
        // A flow and a hop have a key `rtt` of their own.
        let of_others = "[link]\nrate = \"5Mbit/s\"\nup.delay = \"10ms\"\n\
                         [[hop]]\nrate = \"1Mbit/s\"\nrtt = \"80ms\"\n";
        assert_eq!(delays(of_others, &[("rtt", "50ms")]), [ms(25), ms(25)]);
    }

    #[test]
    fn a_named_link_is_changed_by_options() {
        let words = LinkWords {
            link: Some("wpt/lte".into()),
            sets: vec![
                ("queue".into(), "codel".into()),
                ("up.rate".into(), "1Mbit/s".into()),
            ],
            ..LinkWords::default()
        };
        let link = words.links().unwrap().remove(0);
        // WebPageTest's LTE: 12 Mbit/s both ways, 70 ms.
        assert_eq!(
            link.down.rate.at(Span::ZERO),
            Some(Rate::from_bps(12_000_000))
        );
        assert_eq!(link.up.rate.at(Span::ZERO), Some(Rate::from_bps(1_000_000)));
        assert_eq!(link.rtt(), Span::from_ms(70));
        assert_eq!(link.down.queue.to_string(), "codel");
        let words = LinkWords {
            link: Some("wpt/ltee".into()),
            ..LinkWords::default()
        };
        let error = words.links().unwrap_err().to_string();
        // The message quotes the option as the user wrote it, with the caret below the name.
        assert!(error.contains("| --link wpt/ltee\n"), "{error}");
        assert!(
            error.contains("|        ^^^^^^^^ did you mean `wpt/lte`?"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_value_is_reported_once_with_its_option() {
        let of = |words: LinkWords| words.links().unwrap_err().to_string();
        let error = of(LinkWords {
            options: vec![("--queue", "queue", "fq_codle".into())],
            ..LinkWords::default()
        });
        let shown = "| --queue fq_codle\n |         ^^^^^^^^ did you mean `fq_codel`?";
        assert!(error.contains(shown), "{error}");
        assert_eq!(error.matches("--queue").count(), 1, "{error}");

        let error = of(LinkWords {
            sets: vec![("down.queu".into(), "codel".into())],
            ..LinkWords::default()
        });
        let shown = "| --set down.queu=codel\n |       ^^^^^^^^^ did you mean `queue`?";
        assert!(error.contains(shown), "{error}");
    }

    #[test]
    fn a_trace_may_have_any_name_in_utf_8() {
        use std::os::unix::ffi::OsStringExt as _;
        let folder = tempfile::tempdir().unwrap();
        let words = |name: PathBuf| LinkWords {
            traces: [Some(folder.path().join(name)), None],
            ..LinkWords::default()
        };
        // A control character, a quote, a combining accent.
        for name in ["a\u{1b}]0;X\u{7}", "a\"b\\c\nd", "e\u{301}"] {
            fs::write(folder.path().join(name), "1\n2\n").unwrap();
            let links = words(name.into()).links();
            let links = links.unwrap_or_else(|error| panic!("{name:?}: {error}"));
            assert!(links[0].down.rate.is_trace(), "{name:?}");
        }
        let name = std::ffi::OsString::from_vec(b"bad\xff.tr".to_vec());
        let error = words(name.into()).links().unwrap_err().to_string();
        assert!(error.starts_with("--trace: the path `/"), "{error}");
        assert!(
            error.ends_with("` is not UTF-8; rename the file"),
            "{error}"
        );
    }

    #[test]
    fn a_pipe_is_read_once_however_often_the_link_is_read() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let pipe = |text: &str| {
            let (pipe, mut writer) = std::io::pipe().unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            pipe
        };
        let [link, trace] = ["[link]\nrtt = \"20ms\"\n", "1\n2\n"].map(pipe);
        let path = |pipe: &std::io::PipeReader| format!("/proc/self/fd/{}", pipe.as_raw_fd());
        let words = LinkWords {
            link: Some(path(&link)),
            options: vec![("--up", "up.rate", "1Mbit/s".to_owned())],
            traces: [Some(path(&trace).into()), None],
            ..LinkWords::default()
        };
        // As for a proxy and for its report.
        for words in [&words, &words.clone()] {
            let links = words.links().unwrap();
            assert!(links[0].down.rate.is_trace());
            assert_eq!(links[0].rtt(), Span::from_ms(20));
        }
    }

    #[test]
    fn a_trace_that_cannot_be_read_is_reported_with_its_option() {
        let words = LinkWords {
            traces: [Some("/none/down.trace".into()), None],
            ..LinkWords::default()
        };
        let error = words.links().unwrap_err().to_string();
        assert!(
            error.contains("cannot read `/none/down.trace`: No such file"),
            "{error}"
        );
        assert!(
            error.contains("| --trace /none/down.trace\n |         ^^^^"),
            "{error}"
        );
    }
}
