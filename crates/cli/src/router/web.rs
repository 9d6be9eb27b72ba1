//! `--http` and `--http-control`: the page of the router.

use sluice_http::Server;
use sluice_router::process::Router;

use crate::page::{self, Page, Prepared};

/// The page, and whether it makes changes.
#[derive(Debug, clap::Args)]
pub struct RouterPage {
    #[command(flatten)]
    page: Page,
    /// Let the page change pipes, queues and AQMs, and undo changes; requires a token
    #[arg(long, requires = "http")]
    http_control: bool,
}

/// Prepares the page, before the router gives up its privileges.
pub fn prepare(args: &RouterPage) -> Result<Option<Prepared>, page::Error> {
    page::prepare(&args.page, args.http_control)
}

/// Serves the page until the result is dropped.
pub fn serve(page: Option<Prepared>, router: &Router) -> Result<Option<Server>, page::Error> {
    let serve = |page: Prepared| page.serve(router.watcher().clone(), Some(router.editor()));
    page.map(serve).transpose()
}
