//! Algorithms from files: `wasm:my.wasm bound 20ms` and `fq_wasm:my.wasm` name an AQM that is not
//! compiled into the program.
//!
//! The word is `SCHEME:FILE` or `SCHEME:FILE:ITEM`, after `fq_` for the flow-queued form. A program
//! registers its loaders once, when it starts ([`register`]). All code that parses a queue calls
//! [`parse_queue`] and does not know the schemes. The registry of loaders is here and not in
//! `core`, which has no global state.
//!
//! A file is read each time it is named, so that a changed module is loaded again, also if only a
//! file that it needs has changed. An existing queue keeps the version with which it was built. A
//! version is compiled once (or once per thread that names it first at the same time) and stays in
//! memory until the program ends, since values, errors and recordings refer to its names.
#![deny(missing_docs)]

mod allowance;
mod contained;
mod ending;
mod failure;
mod hook;
mod inside;
mod ranked;
mod told;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::OFlags;
use sluice_core::param::{Kind, ParamDecl, ParamError, Value, Values};
use sluice_core::registry::{
    Algorithm, Form, Loaders, Outside, OutsideDiscipline, Spec, SpecError, Started,
};
use sluice_core::spelling::nearest;

pub use allowance::Allowance;
pub use contained::{Contained, executes};
pub use ending::{Ending, described, end_run, has_abandoned, moment, place};
pub use failure::{Failures, OnError, errors, stopped};
pub use hook::{HookWatch, in_hook};
pub use ranked::{CONSEQUENCE_FOR_RANKS, Ranked, Ranks};
pub use told::Told;

/// Loads algorithms from the files of one scheme.
pub trait Loader: Sync {
    /// Returns the scheme: `wasm` in `wasm:my.wasm`.
    fn scheme(&self) -> &'static str;

    /// Returns how a queue is written, for help: `wasm:FILE`.
    fn synopsis(&self) -> &'static str;

    /// Checks a file and returns the algorithm in it.
    ///
    /// # Errors
    /// Returns what is wrong with the file and what would be right, without its path.
    fn load(&self, source: &Source<'_>) -> Result<Loaded, String>;

    /// Returns a hash of the other files that the file needs, whose changes load it again.
    ///
    /// # Errors
    /// Returns which of them cannot be read, and why.
    fn others(&self, _source: &Source<'_>) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    /// Returns whether its algorithms open files when they are loaded, or while they run. The threads of
    /// a router that loads them keep the files of their user.
    fn opens_files(&self) -> bool {
        false
    }

    /// Returns whether loading a file replaces this process by another program, which then executes the
    /// whole command. Only the main thread can do so, and only before anything is opened.
    fn replaces_process(&self) -> bool {
        false
    }

    /// Executes `work`, once, in a thread in which queues decide.
    fn within(&self, work: &mut dyn FnMut()) {
        work();
    }
}

/// The file of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// Its content.
    pub bytes: &'a [u8],
    /// The part after the file's name: `Bound` in `py:my_aqm.py:Bound`.
    pub item: Option<&'a str>,
}

/// An algorithm that was loaded.
pub struct Loaded {
    /// One line of documentation.
    pub doc: String,
    /// Its parameters, without `on_error`, which every algorithm from a file has, and `limit`, which
    /// every discipline has.
    pub params: Vec<ParamDecl>,
    /// Starts the algorithm.
    pub code: Code,
}

/// The code of an algorithm.
pub enum Code {
    /// An AQM.
    Aqm(Box<dyn Outside>),
    /// A discipline.
    Discipline(Box<dyn OutsideDiscipline>),
}

static LOADERS: OnceLock<&'static [&'static dyn Loader]> = OnceLock::new();

/// Registers the loaders of the program. Only the first call has an effect.
pub fn register(loaders: &'static [&'static dyn Loader]) {
    let _ = LOADERS.set(loaders);
}

/// Returns the registered loaders.
pub fn loaders() -> &'static [&'static dyn Loader] {
    LOADERS.get().copied().unwrap_or_default()
}

static BASE: OnceLock<PathBuf> = OnceLock::new();

/// Makes relative paths of files relative to `folder` from now on, in place of the folder of the process.
/// The first call counts. A router's modules are beside its configuration, wherever it is started.
pub fn relative_to(folder: PathBuf) {
    let _ = BASE.set(folder);
}

/// Reports that an algorithm was stopped: prints one line to standard error.
pub fn report(message: &str) {
    // A run goes on although nobody can read it.
    let _ = writeln!(std::io::stderr().lock(), "sluice: {message}");
}

/// Parses the words of a queue. Paths of files are relative to `folder`.
///
/// # Errors
/// As [`Spec::parse_with`].
pub fn parse_queue(text: &str, folder: &Path) -> Result<Spec, SpecError> {
    Spec::parse_with(text, &InFolder(folder))
}

/// Returns the algorithm that `word` loads, or why it cannot be loaded; `None` if `word` has no
/// scheme. Paths are relative to `folder`.
pub fn load(word: &str, folder: &Path) -> Option<Result<&'static Algorithm, String>> {
    InFolder(folder).load(word)
}

/// Returns whether a file is read to find the algorithm called `word`: whether its scheme is that of a
/// registered loader.
pub fn reads_file(word: &str) -> bool {
    let plain = word.strip_prefix("fq_").unwrap_or(word);
    let scheme = plain.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| loaders().iter().any(|l| l.scheme() == scheme))
}

/// Returns what was read when `algorithm` was loaded: the content of its file, followed by a hash of the
/// other files that it needs. Returns `None` if it does not come from a file.
pub fn content_of(algorithm: &Algorithm) -> Option<Vec<u8>> {
    let versions = versions();
    let version = versions.iter().find(|v| v.algorithm == algorithm)?;
    Some([version.bytes.as_slice(), version.others.as_slice()].concat())
}

/// Returns the folder that the path of the file of `algorithm` is relative to; it may itself be relative to that
/// of the process. Returns `None` if the algorithm does not come from a file.
pub fn folder_of(algorithm: &Algorithm) -> Option<PathBuf> {
    let versions = versions();
    let version = versions.iter().find(|v| v.algorithm == algorithm)?;
    Some(version.folder.clone())
}

/// Returns whether the algorithm of a queue comes from a file: whether its first word has a scheme.
pub fn names_file(queue: &str) -> bool {
    let first = queue.split_whitespace().next();
    first.is_some_and(|word| word.contains(':'))
}

/// Returns a queue that is printed as `text` and cannot be built: that of a recording whose module
/// no longer exists. Returns `None` if the first word has no scheme.
pub fn absent(text: &str) -> Option<Spec> {
    text.split_whitespace().next()?.split_once(':')?;
    let mut known = ABSENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(algorithm) = known.iter().find(|a| a.name == text) {
        return Some(Spec::new(algorithm));
    }
    let name = text.to_owned().leak();
    let algorithm = Algorithm::outside(name, Form::Aqm, "not loaded", &[], &Absent).ok()?;
    let algorithm: &'static Algorithm = Box::leak(Box::new(algorithm));
    known.push(algorithm);
    Some(Spec::new(algorithm))
}

static ABSENT: Mutex<Vec<&'static Algorithm>> = Mutex::new(Vec::new());

struct Absent;

impl Outside for Absent {
    fn start(&self, _values: &Values) -> Result<Box<dyn Started>, ParamError> {
        let why = "the module that the recording names does not exist";
        Err(ParamError::Contradiction(why.to_owned()))
    }
}

/// Loads files relative to the folder of the process, or to that of [`relative_to`].
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Loaders for Here {
    fn load(&self, word: &str) -> Option<Result<&'static Algorithm, String>> {
        load(word, Path::new(""))
    }
}

/// Loads files relative to a folder.
#[derive(Clone, Copy, Debug, Default)]
pub struct InFolder<P>(pub P);

impl<P: AsRef<Path>> Loaders for InFolder<P> {
    fn load(&self, word: &str) -> Option<Result<&'static Algorithm, String>> {
        let (form, plain) = match word.strip_prefix("fq_") {
            Some(rest) => (Form::FlowQueued, rest),
            None => (Form::Aqm, word),
        };
        let (scheme, argument) = plain.split_once(':')?;
        let Some(loader) = loaders().iter().find(|l| l.scheme() == scheme) else {
            return Some(Err(unknown(word, scheme)));
        };
        let entry = entry(*loader, form, word, argument, self.0.as_ref());
        Some(entry.map_err(|why| format!("cannot load `{word}`: {why}")))
    }
}

fn unknown(word: &str, scheme: &str) -> String {
    if let Some(meant) = with_scheme(word, scheme) {
        return format!("`{word}` has no scheme: write `{meant}`");
    }
    if scheme == "py" {
        return IN_PYTHON.to_owned();
    }
    let known: Vec<&str> = loaders().iter().map(|l| l.scheme()).collect();
    let Some(first) = known.first() else {
        return format!("`{scheme}:` loads nothing: this program has no loaders");
    };
    let near = nearest(scheme, known.iter().copied());
    let meant = near.first().unwrap_or(first);
    let synopsis = loaders().iter().find(|l| l.scheme() == *meant);
    let synopsis = synopsis.map_or("", |l| l.synopsis());
    format!("no loader is called `{scheme}:`; write `{synopsis}`")
}

/// Returns `word` with the scheme of its file, if `file` is the name of one: `py:a.py:A` for `a.py:A`.
fn with_scheme(word: &str, file: &str) -> Option<String> {
    let schemes = [(".py", "py"), (".wasm", "wasm")];
    let (_, scheme) = schemes.iter().find(|(end, _)| file.ends_with(end))?;
    let (form, plain) = match word.strip_prefix("fq_") {
        Some(rest) => ("fq_", rest),
        None => ("", word),
    };
    Some(format!("{form}{scheme}:{plain}"))
}

/// The error of `py:` in a program without Python.
const IN_PYTHON: &str =
    "this program has no Python: write `python3 -m sluice` in place of `sluice`";

/// A version of a file that was loaded.
struct Version {
    word: String,
    path: PathBuf,
    folder: PathBuf,
    bytes: Vec<u8>,
    others: Vec<u8>,
    algorithm: &'static Algorithm,
}

static VERSIONS: Mutex<Vec<Version>> = Mutex::new(Vec::new());

fn versions() -> MutexGuard<'static, Vec<Version>> {
    VERSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry(
    loader: &dyn Loader,
    form: Form,
    word: &str,
    argument: &str,
    folder: &Path,
) -> Result<&'static Algorithm, String> {
    let (file, item) = match argument.split_once(':') {
        Some((file, item)) => (file, Some(item)),
        None => (argument, None),
    };
    if file.is_empty() || item == Some("") {
        return Err(format!("write `{}`", loader.synopsis()));
    }
    let folder = BASE
        .get()
        .map_or_else(|| folder.to_owned(), |base| base.join(folder));
    let path = folder.join(file);
    let bytes = read(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let source = Source {
        path: &path,
        bytes: &bytes,
        item,
    };
    let others = loader.others(&source)?;
    let same =
        |v: &&Version| v.word == word && v.path == path && v.bytes == bytes && v.others == others;
    if let Some(version) = versions().iter().find(same) {
        return Ok(version.algorithm);
    }
    // No lock is held meanwhile: the loader of Python gives way to other threads, which load too.
    let mut loaded = loader.load(&source)?;
    match loaded.code {
        Code::Aqm(_) => loaded.params.push(failure::OF_AQM),
        Code::Discipline(_) => loaded.params.extend([LIMIT, failure::OF_DISCIPLINE]),
    }
    let (name, doc) = (word.to_owned().leak(), loaded.doc.leak());
    let params = loaded.params.leak();
    // The algorithm is built first and registered last, so that an error leaves only the code
    // itself behind.
    let algorithm = match loaded.code {
        Code::Aqm(aqm) => Algorithm::outside(name, form, doc, params, Box::leak(aqm)),
        Code::Discipline(_) if form == Form::FlowQueued => {
            return Err("it is a discipline, which has its own queues: leave out `fq_`".to_owned());
        }
        Code::Discipline(discipline) => {
            Algorithm::outside_discipline(name, doc, params, Box::leak(discipline))
        }
    }
    .map_err(|name| {
        format!("its parameter `{name}` is declared twice, or a queue has it already")
    })?;
    let mut versions = versions();
    // Another thread may have loaded the same file at the same time.
    if let Some(version) = versions.iter().find(same) {
        return Ok(version.algorithm);
    }
    let algorithm: &'static Algorithm = Box::leak(Box::new(algorithm));
    versions.push(Version {
        word: word.to_owned(),
        path,
        folder,
        bytes,
        others,
        algorithm,
    });
    Ok(algorithm)
}

/// Reads a file, up to a number of bytes: [`read_up_to`], on a thread that may.
pub type Reader = fn(&Path, u64) -> io::Result<Vec<u8>>;

static READER: OnceLock<Reader> = OnceLock::new();

/// Lets `reader` read the files of algorithms from now on, in a program whose threads cannot. The
/// first call counts.
pub fn read_by(reader: Reader) {
    let _ = READER.set(reader);
}

/// Reads a regular file, but not beyond `most` bytes.
///
/// # Errors
/// The file cannot be opened or read, or it is a device, a pipe or a folder.
pub fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file, and touches nothing else: opening a device can start it, and opening a pipe
/// waits for its writer. So the path is looked up first (`O_PATH`, open(2)), and then the file that was
/// found is opened, even if the path leads to another one by now.
///
/// # Errors
/// The file cannot be opened, or it is a device, a pipe or a folder.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let with = |flags: OFlags| {
        let mut options = File::options();
        options.read(true).custom_flags(flags.bits() as i32);
        options
    };
    let found = with(OFlags::PATH).open(path)?;
    if !found.metadata()?.is_file() {
        return Err(io::Error::other(IRREGULAR));
    }
    // Some regular files of the kernel wait for data, too.
    let options = with(OFlags::NONBLOCK | OFlags::NOCTTY);
    match options.open(format!("/proc/self/fd/{}", found.as_raw_fd())) {
        // There is no /proc.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = options.open(path)?;
            match file.metadata()?.is_file() {
                true => Ok(file),
                false => Err(io::Error::other(IRREGULAR)),
            }
        }
        opened => opened,
    }
}

const IRREGULAR: &str = "it is not a regular file";

/// Reads a file of at most [`LARGEST`] bytes. The reader alone touches it: this thread may not even ask
/// for its length.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let reader = READER.get().copied().unwrap_or(read_up_to);
    let bytes = reader(path, LARGEST + 1).map_err(|e| e.to_string())?;
    match bytes.len() as u64 > LARGEST {
        true => Err(format!("it has more than {LARGEST} bytes")),
        false => Ok(bytes),
    }
}

/// The parameter of every discipline from a file.
const LIMIT: ParamDecl = ParamDecl {
    name: "limit",
    kind: Kind::Count,
    default: Value::Count(1000),
    range: Some((Value::Count(1), Value::Count(u64::MAX))),
    doc: "wire packets that the queue holds",
    source: "Linux pfifo: 1000 packets",
};

/// Returns the wire packets that a discipline from a file holds.
pub fn limit_of(values: &Values) -> u64 {
    match values.find(LIMIT.name) {
        Some(Value::Count(limit)) => limit,
        _ => unreachable!("every discipline from a file has a limit"),
    }
}

/// Bytes of the largest file that is loaded.
const LARGEST: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_core::registry::SpecErrorKind;

    use super::*;

    struct Lengths;

    /// Its file contains the word that is loaded first, in another thread.
    struct Nested;

    struct Never;

    impl Outside for Never {
        fn start(&self, _values: &Values) -> Result<Box<dyn Started>, ParamError> {
            Err(ParamError::Contradiction("it never starts".into()))
        }
    }

    impl Loader for Lengths {
        fn scheme(&self) -> &'static str {
            "length"
        }
        fn synopsis(&self) -> &'static str {
            "length:FILE"
        }
        fn load(&self, source: &Source<'_>) -> Result<Loaded, String> {
            match source.bytes {
                [] => Err("it is empty".into()),
                bytes => Ok(Loaded {
                    doc: bytes.len().to_string(),
                    params: Vec::new(),
                    code: Code::Aqm(Box::new(Never)),
                }),
            }
        }
    }

    impl Loader for Nested {
        fn scheme(&self) -> &'static str {
            "nested"
        }
        fn synopsis(&self) -> &'static str {
            "nested:FILE"
        }
        fn load(&self, source: &Source<'_>) -> Result<Loaded, String> {
            let word = String::from_utf8_lossy(source.bytes).into_owned();
            let folder = source.path.parent().unwrap().to_owned();
            let (send, first) = std::sync::mpsc::channel();
            std::thread::spawn(move || send.send(load(&word, &folder).unwrap()));
            let first = first.recv_timeout(Duration::from_secs(60));
            let doc = first.map_err(|_| "the other thread waits")??.doc.to_owned();
            Ok(Loaded {
                doc,
                params: Vec::new(),
                code: Code::Aqm(Box::new(Never)),
            })
        }
    }

    #[test]
    fn other_threads_can_load_a_file_while_one_is_loaded() {
        register(&[&Lengths, &Nested]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "four").unwrap();
        std::fs::write(folder.path().join("b"), "length:a").unwrap();
        let loaded = load("nested:b", folder.path()).unwrap().unwrap();
        assert_eq!(loaded.doc, "4");
    }

    /// As the broker of a router reads the files in a folder that is closed to the router's own user.
    #[test]
    fn a_file_that_the_thread_cannot_see_is_read_by_the_reader() {
        register(&[&Lengths, &Nested]);
        read_by(|path, most| match path == Path::new("/closed/a") {
            true => Ok(b"four".to_vec()),
            false => read_up_to(path, most),
        });
        let loaded = load("length:a", Path::new("/closed")).unwrap().unwrap();
        assert_eq!(loaded.doc, "4");
    }

    #[test]
    fn a_file_is_not_read_beyond_the_largest_length() {
        register(&[&Lengths, &Nested]);
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("a")).unwrap();
        file.set_len(LARGEST).unwrap();
        let load = |file: &str| load(&format!("length:{file}"), folder.path()).unwrap();
        assert_eq!(load("a").unwrap().doc, LARGEST.to_string());
        file.set_len(LARGEST + 1).unwrap();
        let error = load("a").unwrap_err();
        assert!(error.ends_with("it has more than 4194304 bytes"), "{error}");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "four").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("endless")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), kind, mode, 0).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_up_to(&path(name), 9).unwrap(), b"four");
        }
        for name in ["pipe", "endless", "/dev/zero", "."] {
            // The pipe has no writer: a thread that opens it would wait forever.
            let path = path(name);
            let (send, done) = std::sync::mpsc::channel();
            std::thread::spawn(move || send.send(read_up_to(&path, 9)));
            let result = done.recv_timeout(Duration::from_secs(60));
            let error = result.expect("it does not wait").unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{name}");
        }
        let missing = read_up_to(&path("missing"), 9).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn relative_paths_begin_at_the_folder_that_was_set() {
        register(&[&Lengths, &Nested]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("lab")).unwrap();
        std::fs::write(folder.path().join("lab/a"), "seventh").unwrap();
        relative_to(folder.path().to_owned());
        let doc = |word: &str, folder: &Path| load(word, folder).unwrap().unwrap().doc;
        assert_eq!(doc("length:lab/a", Path::new("")), "7");
        assert_eq!(doc("length:a", Path::new("lab")), "7");
        assert_eq!(doc("length:a", &folder.path().join("lab")), "7");
    }

    #[test]
    fn a_changed_file_is_loaded_again_and_an_unchanged_one_is_not() {
        register(&[&Lengths, &Nested]);
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join("a"), text).unwrap();
        let get = |word: &str| load(word, folder.path()).unwrap();
        write("one");
        let first = get("length:a").unwrap();
        assert_eq!((first.doc, first.form), ("3", Form::Aqm));
        assert_eq!(first, get("length:a").unwrap());
        assert_eq!(get("fq_length:a").unwrap().form, Form::FlowQueued);
        write("four");
        let second = get("length:a").unwrap();
        assert_eq!(second.doc, "4");
        assert_ne!(first, second);
        // The first version is still what it was.
        assert_eq!(content_of(first).unwrap(), b"one");
        assert_eq!(content_of(second).unwrap(), b"four");
        assert_eq!(content_of(absent("length:gone").unwrap().algorithm), None);
        write("");
        let error = get("length:a").unwrap_err();
        assert_eq!(error, "cannot load `length:a`: it is empty");
    }

    #[test]
    fn what_cannot_be_loaded_is_named_with_what_would_be_right() {
        register(&[&Lengths, &Nested]);
        let error = |text: &str| parse_queue(text, Path::new("/nowhere")).unwrap_err();
        let unknown = error("lenght:a");
        assert_eq!(
            unknown.to_string(),
            "no loader is called `lenght:`; write `length:FILE`"
        );
        assert_eq!(unknown.span, 0..8);
        assert_eq!(
            error("fq_ramp.py:Ramp up 5ms").to_string(),
            "`fq_ramp.py:Ramp` has no scheme: write `fq_py:ramp.py:Ramp`"
        );
        assert!(
            error("fq_py:a.py:A")
                .to_string()
                .starts_with("this program has no Python: write `python3 -m sluice`")
        );
        let missing = error("length:a b 3").to_string();
        assert!(
            missing.starts_with("cannot load `length:a`: `/nowhere/a`: No such file"),
            "{missing}"
        );
        assert!(
            error("length:")
                .to_string()
                .ends_with("write `length:FILE`")
        );
        assert!(matches!(
            error("codle").kind,
            SpecErrorKind::UnknownAlgorithm(_)
        ));
        assert!(load("codel", Path::new("")).is_none());
    }

    #[test]
    fn a_queue_whose_module_is_gone_is_printed_as_it_was_and_cannot_be_built() {
        let words = "wasm:gone.wasm bound 20ms";
        let spec = absent(words).unwrap();
        assert_eq!(spec.to_string(), words);
        assert!(spec.build().is_err());
        assert_eq!(absent(words), Some(spec));
        assert_eq!(absent("codel"), None);
    }
}
