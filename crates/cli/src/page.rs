//! `--http`: the page with live charts, for a router and for a program behind a link, and the page with
//! the progress of runs.

use std::path::PathBuf;
use std::sync::Arc;

use sluice_http::{Address, Board, HttpError, Listening, Server, Settings, TokenError, read_token};
use sluice_router::process::Editor;
use sluice_router::process::watch::Watcher;

/// Where the page is served, and to whom.
#[derive(Debug, clap::Args)]
pub struct Page {
    /// Serve live charts and metrics at IP:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    http: Option<Address>,
    /// File with the clients' token; needed beyond loopback
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

impl Page {
    /// The page at this address, if there is one, with the token in this file.
    pub const fn at(http: Option<Address>, http_token: Option<PathBuf>) -> Page {
        Page { http, http_token }
    }

    /// Returns whether the page is to be served.
    pub const fn is_wanted(&self) -> bool {
        self.http.is_some()
    }
}

/// The page before it is served: its settings, and its address opened.
pub struct Prepared {
    settings: Settings,
    listening: Listening,
}

/// Reads the token and opens the address, before privileges are given up and namespaces entered.
/// `is_controlled` is whether the page can change the configuration.
pub fn prepare(args: &Page, is_controlled: bool) -> Result<Option<Prepared>, Error> {
    let Some(address) = args.http.clone() else {
        return Ok(None);
    };
    let settings = Settings {
        address,
        token: args.http_token.as_deref().map(read_token).transpose()?,
        is_controlled,
        page: PAGE,
    };
    let listening = settings.listen()?;
    Ok(Some(Prepared {
        settings,
        listening,
    }))
}

impl Prepared {
    /// Serves what `watcher` sees until the result is dropped. `editor` makes the changes.
    pub fn serve(self, watcher: Watcher, editor: Option<Editor>) -> Result<Server, Error> {
        let Prepared {
            settings,
            listening,
        } = self;
        let editor = editor.filter(|_| settings.is_controlled);
        Ok(Server::start(&settings, listening, watcher, editor)?)
    }

    /// Serves the progress of runs until the result is dropped.
    pub fn show_runs(self, board: Arc<dyn Board>) -> Result<Server, Error> {
        Ok(Server::show_runs(&self.settings, self.listening, board)?)
    }
}

const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/live.html"));
