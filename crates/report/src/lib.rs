//! The report of one or several runs: one HTML page that opens from disk without a network, and
//! static pictures for papers and READMEs.
//!
//! The laboratory fills a [`Report`] from its recordings; [`html`] puts it into the page that
//! `web/` builds, [`svg`] and [`png`] draw the same numbers as figures. Nothing here measures or
//! computes a metric, with one exception: the distribution of the sojourn times, which has to be
//! taken before [`html`] thins the packets to what a page can hold.
//!
//! [`model`] is the contract with the page, and `web/src/model.ts` its other side.

mod cdf;
pub mod export;
mod figure;
mod html;
pub mod index;
pub mod model;
mod packed;
pub mod pages;
mod raster;
pub mod report_of;
mod thin;

#[cfg(test)]
mod tests;

pub use figure::{Figure, FigureError, FigureKind, FlowLines, svg};
pub use figure::{PALETTE, escape};
pub use html::html;
pub use model::Report;
pub use raster::png;
pub use raster::rasterize;
