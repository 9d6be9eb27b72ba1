//! Recordings name algorithms, too. Only the user decides to execute what others wrote.

use std::path::{Path, PathBuf};

use sluice_core::registry::{Algorithm, Loaders};

use crate::{InFolder, loaders};

/// Returns the file that the algorithm called `word` executes with all rights of this process; its path is
/// relative to `folder`. Returns `None` if the algorithm runs in a sandbox or comes from no file.
pub fn executes(word: &str, folder: &Path) -> Option<PathBuf> {
    let plain = word.strip_prefix("fq_").unwrap_or(word);
    let (scheme, argument) = plain.split_once(':')?;
    let loader = loaders().iter().find(|l| l.scheme() == scheme)?;
    // The code of a sandbox opens no files, and needs no other program.
    let is_free = loader.opens_files() || loader.replaces_process();
    let file = argument.split_once(':').map_or(argument, |(file, _)| file);
    is_free.then(|| folder.join(file))
}

/// Loads files relative to a folder, except those that would be executed outside of a sandbox
/// ([`executes`]).
#[derive(Clone, Copy, Debug)]
pub struct Contained<P>(pub P);

impl<P: AsRef<Path>> Loaders for Contained<P> {
    fn load(&self, word: &str) -> Option<Result<&'static Algorithm, String>> {
        let folder = self.0.as_ref();
        if let Some(file) = executes(word, folder) {
            let file = file.display();
            return Some(Err(format!("`{file}` is named by a recording")));
        }
        InFolder(folder).load(word)
    }
}
