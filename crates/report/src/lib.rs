//! The report of one or several runs: an HTML page that opens from disk without a network, and static
//! pictures for papers and READMEs.
//!
//! The laboratory fills a [`Report`] from its recordings. [`html`] embeds it in the page that `web/`
//! builds; [`svg`] and [`png`] draw the same numbers as figures. Nothing here measures or computes a
//! metric, with one exception: the distribution of the sojourn times must be taken before [`html`]
//! thins the packets to what a page can hold. Distributions leave out the warm-up, as all figures do.
//!
//! [`model`] holds the data of the page; the TypeScript types in `web/src/model.ts` are generated from
//! it.

mod cdf;
mod crowd;
pub mod export;
mod figure;
mod html;
pub mod index;
mod judgement;
pub mod model;
pub mod only;
mod packed;
pub mod pages;
mod pdf;
pub mod picture;
mod raster;
pub mod report_of;
pub mod sweep;
mod thin;

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod typescript;

pub use figure::curve::{Axes, CurveError, Form, hint};
pub use figure::repeats::{Marks, YAxis};
pub use figure::{Figure, FigureError, FigureKind, FlowLines, png, svg};
pub use figure::{PALETTE, escape, shown_repetition};
pub use html::html;
pub use model::Report;
pub use raster::rasterize;
