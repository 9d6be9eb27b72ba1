//! `--http`: the page of the router.

use std::net::SocketAddr;
use std::path::PathBuf;

use sluice_http::{HttpError, Server, Settings, TokenError, read_token};
use sluice_router::process::Router;

/// Where the page is served, and to whom.
#[derive(Debug, clap::Args)]
pub struct Page {
    /// Serve a page with live charts, and metrics for Prometheus, at this address; read-only. Other
    /// addresses than those of loopback require a token
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// File whose first line is the token that the page and the metrics require: 16 or more letters
    /// and digits
    #[arg(long, value_name = "FILE", requires = "http")]
    http_token: Option<PathBuf>,
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

/// The settings of the page, read before the router starts.
pub fn settings(args: &Page) -> Result<Option<Settings>, Error> {
    let Some(address) = args.http else {
        return Ok(None);
    };
    let token = args.http_token.as_deref().map(read_token).transpose()?;
    let settings = Settings {
        address,
        token,
        page: PAGE,
    };
    settings.check()?;
    Ok(Some(settings))
}

/// Serves the page until the result is dropped.
pub fn serve(settings: Option<&Settings>, router: &Router) -> Result<Option<Server>, Error> {
    let server = settings.map(|settings| Server::start(settings, router.watcher().clone()));
    Ok(server.transpose()?)
}

const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/live.html"));
