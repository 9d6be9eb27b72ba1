//! The algorithms from files that a scenario names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sluice_core::registry::Algorithm;

use crate::field::Queue;
use crate::{Rules, Scenario};

impl Scenario {
    /// Returns what was read of the files of algorithms that queues and rules name, by the words that
    /// name them ([`sluice_loader::content_of`]). A file that no longer exists is left out.
    pub fn content_of_algorithms(&self) -> BTreeMap<String, Vec<u8>> {
        let rules = self.rules.iter().flat_map(Rules::algorithms);
        let content = |algorithm: &'static Algorithm| {
            let content = sluice_loader::content_of(algorithm)?;
            Some((algorithm.name.to_owned(), content))
        };
        self.of_queues().chain(rules).filter_map(content).collect()
    }

    /// Returns the folder that the paths of the queues' algorithms are relative to; `None` if no queue
    /// loads one.
    pub fn folder_of_algorithms(&self) -> Option<PathBuf> {
        let folder = self.of_queues().find_map(sluice_loader::folder_of)?;
        std::path::absolute(folder).ok()
    }

    /// Loads the algorithms that queues name from their files, with paths relative to `folder`: those of a
    /// recording have no folder.
    ///
    /// # Errors
    /// Why one cannot be loaded, or does not have the parameters of the queue.
    pub fn load_algorithms(&mut self, folder: &Path) -> Result<(), String> {
        for link in std::iter::once(&mut self.link).chain(&mut self.hops) {
            for pipe in [&mut link.up, &mut link.down] {
                let words = pipe.queue.to_string();
                if sluice_loader::names_file(&words) {
                    let spec = sluice_loader::parse_queue(&words, folder);
                    pipe.queue = Queue(spec.map_err(|error| error.to_string())?);
                }
            }
        }
        Ok(())
    }

    fn of_queues(&self) -> impl Iterator<Item = &'static Algorithm> {
        self.pipes().map(|(_, pipe)| pipe.queue.0.algorithm)
    }
}
