//! The configuration, read again while the router runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::link::text::without_mark;
use sluice_ipfw::{Interface, Output};
use sluice_net::confine;
use sluice_net::namespace::Namespace;

use super::config::{SLOW, slow};
use super::{Config, ConfigError, PATIENCE, Status};
use crate::control::{Orders, Refused, Remark, Why, Work};

/// The reasons why a configuration cannot be reloaded; the old one stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// No configuration was given at the start.
    #[error("there is no configuration to reload: the router was started without --config")]
    None,
    /// There is no command, which would deny all packets.
    #[error("{} has no commands: is it being written, or a pipe that was read before?", .0.display())]
    Empty(PathBuf),
    /// The configuration has an error.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The loop did not accept the configuration.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Reloads the configuration of a router.
#[derive(Clone)]
pub struct Reloader {
    pub(super) orders: Orders<Status>,
    pub(super) config: Option<PathBuf>,
    /// The ports' interfaces.
    pub(super) names: Arc<[String]>,
    pub(super) namespace: Arc<Namespace>,
}

impl Reloader {
    /// Reloads the configuration, as a whole or not at all, and reads the interfaces' addresses
    /// again. Queued packets stay.
    ///
    /// # Errors
    /// [`ReloadError`]; the old configuration stays in force.
    pub fn reload(&self) -> Result<Vec<Remark>, ReloadError> {
        self.reload_or_say(|_| {})
    }

    /// Like [`Reloader::reload`], and passes a warning to `say` if the file has not been read within 5 s.
    ///
    /// # Errors
    /// As for [`Reloader::reload`].
    pub fn reload_or_say(&self, say: impl FnOnce(String)) -> Result<Vec<Remark>, ReloadError> {
        let refused = |_: &ReloadError| self.orders.turned_away().count(Why::Reload);
        let path = self.config.as_ref().ok_or(ReloadError::None);
        let path = path.inspect_err(refused)?;
        self.orders.count();
        let reloaded = self.reload_from(path, say).inspect_err(refused);
        let refused = reloaded.as_ref().err().map(ToString::to_string);
        let journal = self.orders.journal();
        journal.note("reload", &format!("load {}", path.display()), refused);
        reloaded
    }

    fn reload_from(
        &self,
        path: &Path,
        say: impl FnOnce(String),
    ) -> Result<Vec<Remark>, ReloadError> {
        let from = path.to_owned();
        let late = || say(format!("{} Later reloads wait for it", slow(path)));
        let config = confine::privileged_apart(move || Config::read(&from), SLOW, late);
        let config = config.map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })??;
        let has_command = |line: &str| !line.trim().is_empty() && !line.trim().starts_with('#');
        if !without_mark(&config.text).lines().any(has_command) {
            return Err(ReloadError::Empty(path.to_owned()));
        }
        let builder = self.orders.builder();
        // `me` changes together with the rules.
        builder.set_interfaces(interfaces(&self.names, &self.namespace));
        let mut output = Output::default();
        let built = builder.build(&config.text, &config.files, &mut output);
        let prepared = config.refusal(built)?;
        // The answer is the old configuration, which is freed here.
        self.orders.order(Work::Replace(prepared), PATIENCE)?;
        Ok(output.warnings.iter().map(Remark::from).collect())
    }
}

/// Returns the ports' interfaces with their current addresses. An interface whose addresses cannot
/// be read is gone or has none.
pub(super) fn interfaces(names: &[String], namespace: &Namespace) -> Vec<Interface> {
    let mut links = namespace.links().ok();
    let mut addresses = |name: &str| {
        let links = links.as_mut()?;
        links.addresses(name).ok()
    };
    let interface = |name: &String| Interface {
        addresses: addresses(name.as_str()).unwrap_or_default(),
        name: name.clone(),
    };
    names.iter().map(interface).collect()
}
