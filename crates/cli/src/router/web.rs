//! `--http`: the page of the router.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use sluice_http::{HttpError, Server, Settings, TokenError, read_token};
use sluice_router::process::Router;

/// Where the page is served, and to whom.
#[derive(Debug, clap::Args)]
pub struct Page {
    /// Serve a page with live charts, and metrics for Prometheus, at this address. Other addresses
    /// than those of loopback require a token
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// File whose first line is the token that the page and the metrics require: 16 or more letters
    /// and digits
    #[arg(long, value_name = "FILE", requires = "http")]
    http_token: Option<PathBuf>,
    /// Let the page change pipes, queues and AQMs, and take changes back; requires a token
    #[arg(long, requires = "http")]
    http_control: bool,
}

/// The reason why the page is not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The server.
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// The page, before the router starts: its settings, and its address opened.
pub struct Prepared(Settings, TcpListener);

/// Reads the token and opens the address, before the router gives up its privileges.
pub fn prepare(args: &Page) -> Result<Option<Prepared>, Error> {
    let Some(address) = args.http else {
        return Ok(None);
    };
    let settings = Settings {
        address,
        token: args.http_token.as_deref().map(read_token).transpose()?,
        is_controlled: args.http_control,
        page: PAGE,
    };
    let listener = settings.listen()?;
    Ok(Some(Prepared(settings, listener)))
}

/// Serves the page until the result is dropped.
pub fn serve(page: Option<Prepared>, router: &Router) -> Result<Option<Server>, Error> {
    let server = page.map(|Prepared(settings, listener)| {
        let editor = settings.is_controlled.then(|| router.editor());
        Server::start(&settings, listener, router.watcher().clone(), editor)
    });
    Ok(server.transpose()?)
}

const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/live.html"));
