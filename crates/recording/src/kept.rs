//! Rows that stay in memory after they were written, so that the pages of a run need not read them
//! back. All runs of the process together keep a bounded number of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::pieces::{Collected, Piece};
use super::rows::{Place, TABLES};

/// The rows of a run, by table and in their order.
#[derive(Debug, Default)]
pub(crate) struct KeptRows {
    tables: [Vec<Piece>; TABLES.len()],
    bytes: usize,
}

impl KeptRows {
    /// Adds a piece of the table at `place`; returns `false` if there is no room for it.
    pub fn add(&mut self, place: usize, piece: Piece) -> bool {
        let bytes = piece.bytes();
        let all = KEPT.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes += bytes;
        self.tables[place].push(piece);
        all <= MOST_KEPT
    }

    /// Returns the rows of the table of `R`.
    pub fn rows<R: Collected>(self: &Arc<Self>) -> impl Iterator<Item = R> + Send + 'static {
        let kept = Arc::clone(self);
        let pieces = kept.tables[Place::<R>::OF].len();
        (0..pieces).flat_map(move |piece| {
            let kept = Arc::clone(&kept);
            let rows = move |row| {
                R::among(&kept.tables[Place::<R>::OF][piece])
                    .get(row)
                    .cloned()
            };
            (0..).map_while(rows)
        })
    }
}

impl Drop for KeptRows {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The bytes that this process keeps.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// The most bytes that are kept: those of 2.5 million packets.
const MOST_KEPT: usize = 200_000_000;
