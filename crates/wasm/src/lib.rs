//! AQMs and schedulers in WebAssembly modules: `wasm:my.wasm bound 20ms`, and `fq_wasm:my.wasm` with
//! one state of an AQM per flow.
//!
//! A module is loaded at run time. It decides about packets, or ranks them. It sees only numbers: the
//! packet's length, sojourn time, ECN codepoint and flow, its queue, the time, and its own handle for
//! the state of the queue ([`abi`]). One instance serves all queues of a discipline.
//!
//! - **Deterministic**: floating-point instructions are refused, the only import with an effect is
//!   seeded randomness, and time is an argument.
//! - **Contained**: a module has at most [`MEMORY`] bytes and [`FUEL`] units of work per call. A
//!   call that fails, does not end, or returns no verdict stops the module, unless `on_error`
//!   selects otherwise: its queues pass every packet from then on, `errors` and `stopped` are
//!   recorded as variables of the queue, and the log names the packet.
#![deny(missing_docs)]

pub mod abi;
mod declare;
mod instance;
mod limits;
mod module;
mod scheduler;
mod selects;

use sluice_loader::{Code, Loaded, Loader, Source};

pub use instance::FUEL;
pub use limits::MEMORY;
pub use module::Module;

/// The loader of `wasm:FILE`.
#[derive(Clone, Copy, Debug)]
pub struct WasmLoader;

impl Loader for WasmLoader {
    fn scheme(&self) -> &'static str {
        "wasm"
    }

    fn synopsis(&self) -> &'static str {
        "wasm:FILE"
    }

    fn load(&self, source: &Source<'_>) -> Result<Loaded, String> {
        if let Some(item) = source.item {
            return Err(format!("a module has one algorithm: leave out `:{item}`"));
        }
        let (declared, module) = Module::new(source.bytes, &source.path.display().to_string())?;
        Ok(Loaded {
            doc: declared.doc,
            params: declared.params,
            code: match module.ranks() {
                true => Code::Discipline(Box::new(module)),
                false => Code::Aqm(Box::new(module)),
            },
        })
    }
}
