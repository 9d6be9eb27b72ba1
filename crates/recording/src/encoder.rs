//! Encodes pieces of rows, and writes them to their files as row groups: on the thread that collects the
//! rows, or on a thread of its own while the next rows are collected.
//!
//! The files are the same either way. A thread is started with the first full piece, so short runs have
//! none, and only while fewer runs are being recorded than there are processors: in a
//! sweep, every processor has a run of its own.

use std::io;
use std::mem;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, JoinHandle};

use super::cell::Row;
use super::columns::GROUP_ROWS;
use super::error::RecordError;
use super::kept::KeptRows;
use super::pieces::{PIECE_ROWS, Piece};
use super::rows::{
    Declared, FlowSample, PacketRow, PingSample, Place, QueueSample, TABLES, Transfer,
};
use super::table::{Finished, TableFile};

/// A piece, and the place of its table among [`TABLES`].
type Placed = (usize, Piece);

/// A table that has been written; `None` for one that was not recorded.
pub(crate) type Closed = Option<Result<Finished, RecordError>>;

/// What is left of a run that has been written.
pub(crate) struct Written {
    /// The tables, in the order of [`TABLES`].
    pub tables: [Closed; TABLES.len()],
    /// The rows that pages show, if they were kept.
    pub kept: Option<KeptRows>,
}

/// The open files of a run.
#[derive(Default)]
pub(crate) struct Files {
    slots: [Slot; TABLES.len()],
    is_in_memory: bool,
    /// Rows that were written; `None` if they are not kept.
    kept: Option<Box<KeptRows>>,
}

#[derive(Default)]
enum Slot {
    #[default]
    Absent,
    /// A table in memory that has no rows yet.
    InMemory(Declared),
    Open(Box<TableFile>),
    /// Writing it has failed, with this error.
    Failed(PathBuf, io::Error),
}

impl Files {
    /// Adds the file of the table at `place`.
    pub fn add(&mut self, place: usize, file: TableFile) {
        self.slots[place] = Slot::Open(Box::new(file));
    }

    /// Adds the table at `place` to those in memory.
    pub fn add_in_memory(&mut self, place: usize, declared: Declared) {
        self.slots[place] = Slot::InMemory(declared);
        self.is_in_memory = true;
    }

    /// Encodes a piece and clears it. A table whose file has failed gets no more rows; its error is
    /// returned once.
    fn write(&mut self, place: usize, piece: &mut Piece) -> Result<(), RecordError> {
        let slot = &mut self.slots[place];
        if let Slot::InMemory(declared) = slot {
            *slot = Slot::Open(Box::new(TableFile::in_memory(*declared)?));
        }
        let Slot::Open(file) = slot else {
            piece.clear();
            return Ok(());
        };
        let written = piece.write(file);
        if let Err(RecordError::Write { path, error }) = &written {
            *slot = Slot::Failed(path.clone(), again(error));
            self.kept = None;
        }
        if IS_DRAWN[place]
            && let Some(kept) = &mut self.kept
        {
            let empty = piece.like();
            if !kept.add(place, mem::replace(piece, empty)) {
                self.kept = None;
            }
        }
        piece.clear();
        written
    }

    fn close(self) -> Written {
        Written {
            tables: self.slots.map(|slot| match slot {
                Slot::Absent => None,
                Slot::InMemory(declared) => {
                    Some(TableFile::in_memory(declared).and_then(TableFile::finish))
                }
                Slot::Open(file) => Some(file.finish()),
                Slot::Failed(path, error) => Some(Err(RecordError::Write { path, error })),
            }),
            kept: self.kept.map(|kept| *kept),
        }
    }
}

/// Returns an error of the same kind and with the same text.
fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Encodes the rows of a run.
pub(crate) struct Encoder {
    place: Where,
    /// Whether a thread may be started.
    may_start: bool,
    _counted: Counted,
}

enum Where {
    Here(Files),
    Apart(Apart),
}

/// The thread that encodes, from the side that collects.
struct Apart {
    full: SyncSender<Placed>,
    emptied: Receiver<Result<Placed, RecordError>>,
    /// Emptied pieces, whose memory is used again.
    spare: Vec<Placed>,
    thread: JoinHandle<Written>,
}

/// Tables that are still to be closed, and their last rows.
pub(crate) struct Rest {
    files: Files,
    pieces: Vec<Placed>,
}

impl Rest {
    /// Encodes the rows, and closes all files.
    pub fn close(self) -> Written {
        let Rest { mut files, pieces } = self;
        for (place, mut piece) in pieces {
            // The error is kept with the file.
            let _ = files.write(place, &mut piece);
        }
        files.close()
    }
}

impl Encoder {
    /// Creates an encoder for `files`, which may have a thread of its own if `may_start` holds.
    pub fn new(files: Files, may_start: bool) -> Encoder {
        Encoder {
            place: Where::Here(files),
            may_start,
            _counted: Counted::new(),
        }
    }

    /// Encodes `piece` of the table at `place`, and clears it. With a thread of its own, it is encoded
    /// later, and the error of an earlier one is returned.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&mut self, place: usize, piece: &mut Piece) -> Result<(), RecordError> {
        if self.may_start && Counted::is_processor_left() {
            self.start();
        }
        self.may_start = false;
        match &mut self.place {
            Where::Here(files) => files.write(place, piece),
            Where::Apart(apart) => apart.write(place, piece),
        }
    }

    /// Keeps the rows that pages show from now on, if there is room for them.
    pub fn keep_rows(&mut self) {
        if let Where::Here(files) = &mut self.place {
            files.kept = Some(Box::default());
        }
    }

    /// Replaces the file of the table at `place`. There must be no thread yet.
    #[cfg(test)]
    pub fn replace(&mut self, place: usize, file: TableFile) {
        if let Where::Here(files) = &mut self.place {
            files.add(place, file);
        }
    }

    /// Encodes on the thread that collects from now on.
    #[cfg(test)]
    pub fn stay(&mut self) {
        self.may_start = false;
    }

    /// Starts the thread, unless there is one.
    pub fn start(&mut self) {
        self.may_start = false;
        let Where::Here(files) = &mut self.place else {
            return;
        };
        let (full, pieces) = mpsc::sync_channel(MOST_WAITING);
        let (back, emptied) = mpsc::channel();
        // The files go to the thread once it exists: without a thread, the run goes on with them.
        let (hand_over, handed_over) = mpsc::channel();
        let begun = thread::Builder::new()
            .name("tables".to_owned())
            .spawn(move || encode(handed_over, pieces, back));
        let Ok(thread) = begun else {
            return;
        };
        // If this fails, the thread has panicked, which the end of the run reports.
        let _ = hand_over.send(mem::take(files));
        self.place = Where::Apart(Apart {
            full,
            emptied,
            spare: Vec::new(),
            thread,
        });
    }

    /// Encodes the remaining rows, and closes all files. What is in memory can wait until it is needed.
    pub fn close(self, pieces: Vec<Placed>) -> Closing {
        match self.place {
            Where::Here(files) => {
                let can_wait = files.is_in_memory && files.kept.is_none();
                let rest = Rest { files, pieces };
                match can_wait {
                    true => Closing::Later(Box::new(rest)),
                    false => Closing::Done(Box::new(rest.close())),
                }
            }
            Where::Apart(apart) => {
                for piece in pieces {
                    // If this fails, the thread has panicked, which `join` reports.
                    let _ = apart.full.send(piece);
                }
                Closing::Apart(apart.thread)
            }
        }
    }
}

impl Apart {
    fn write(&mut self, place: usize, piece: &mut Piece) -> Result<(), RecordError> {
        let mut failed = None;
        while let Ok(emptied) = self.emptied.try_recv() {
            match emptied {
                Ok(piece) => self.spare.push(piece),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        // The last one is in the cache, if any is.
        let fits = self.spare.iter().rposition(|(of, _)| *of == place);
        let empty = match fits {
            Some(at) => self.spare.swap_remove(at).1,
            None => piece.like(),
        };
        let full = mem::replace(piece, empty);
        // If this fails, the thread has panicked, which the end of the run reports.
        let _ = self.full.send((place, full));
        failed.map_or(Ok(()), Err)
    }
}

/// Encodes pieces as they come, and closes the files at the end.
fn encode(
    files: Receiver<Files>,
    pieces: Receiver<Placed>,
    back: Sender<Result<Placed, RecordError>>,
) -> Written {
    let mut files = files.recv().unwrap_or_default();
    for (place, mut piece) in pieces {
        let written = files.write(place, &mut piece);
        // At the end of the run nobody takes them any more. Errors are kept with the files.
        let _ = back.send(written.map(|()| (place, piece)));
    }
    files.close()
}

/// The tables of a run whose last rows are being written.
pub(crate) enum Closing {
    Done(Box<Written>),
    Apart(JoinHandle<Written>),
    /// They are written when they are needed.
    Later(Box<Rest>),
}

impl Closing {
    /// Waits until all files are closed.
    ///
    /// # Panics
    /// The thread that encodes has panicked.
    pub fn join(self) -> Written {
        match self {
            Closing::Done(written) => *written,
            Closing::Apart(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Closing::Later(rest) => rest.close(),
        }
    }
}

/// Returns whether rows of `R` are among those that a run can keep.
pub(crate) fn is_kept<R: Row>() -> bool {
    IS_DRAWN[Place::<R>::OF]
}

/// Whether pages show rows of the tables, in the order of [`TABLES`].
const IS_DRAWN: [bool; TABLES.len()] = {
    let mut is_drawn = [false; TABLES.len()];
    is_drawn[Place::<PacketRow>::OF] = true;
    is_drawn[Place::<FlowSample>::OF] = true;
    is_drawn[Place::<QueueSample>::OF] = true;
    is_drawn[Place::<PingSample>::OF] = true;
    is_drawn[Place::<Transfer>::OF] = true;
    is_drawn
};

/// Pieces that wait for the thread, so that a run goes on while it encodes a row group. The rows of a row
/// group of packets take 6 MB.
const MOST_WAITING: usize = 2 * GROUP_ROWS / PIECE_ROWS;

/// Counts the runs that are being recorded by this process.
struct Counted;

static RECORDED: AtomicUsize = AtomicUsize::new(0);

impl Counted {
    fn new() -> Counted {
        RECORDED.fetch_add(1, Ordering::Relaxed);
        Counted
    }

    /// Returns whether there are more processors than runs.
    fn is_processor_left() -> bool {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        RECORDED.load(Ordering::Relaxed) < processors
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        RECORDED.fetch_sub(1, Ordering::Relaxed);
    }
}
