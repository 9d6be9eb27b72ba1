//! Algorithms from files in the configuration of an engine.

mod common;

use common::Bench;
use common::fuzz::written_configuration_reads_as_the_same;
use sluice_core::aqm::Aqm;
use sluice_core::aqm::droptail::DropTail;
use sluice_core::param::{ParamError, Values};
use sluice_core::registry::{Outside, Started};
use sluice_loader::{Code, Loaded, Loader, Source};

/// The AQMs `any:FILE`, which pass every packet.
struct Any;

impl Loader for Any {
    fn scheme(&self) -> &'static str {
        "any"
    }
    fn synopsis(&self) -> &'static str {
        "any:FILE"
    }
    fn load(&self, _source: &Source<'_>) -> Result<Loaded, String> {
        Ok(Loaded {
            doc: String::new(),
            params: Vec::new(),
            code: Code::Aqm(Box::new(Any)),
        })
    }
}

impl Outside for Any {
    fn start(&self, _values: &Values) -> Result<Box<dyn Started>, ParamError> {
        Ok(Box::new(Any))
    }
}

impl Started for Any {
    fn aqm(&self) -> Box<dyn Aqm> {
        Box::new(DropTail)
    }
}

#[test]
fn a_configuration_knows_the_modules_that_its_commands_load() {
    sluice_loader::register(&[&Any]);
    let mut bench = Bench::new();
    // Any file will do. Tests run in the folder of the package.
    bench.script(
        "pipe 1 config bw 1Mbit/s codel
pipe 2 config bw 1Mbit/s any:Cargo.toml
queue 3 config pipe 1 any:Cargo.toml
sched 4 config type fq_any:Cargo.toml",
    );
    let modules = bench.firewall.configuration().modules();
    let modules: Vec<&str> = modules.into_iter().collect();
    assert_eq!(modules, ["any:Cargo.toml", "fq_any:Cargo.toml"]);
    written_configuration_reads_as_the_same(&mut bench);
    bench.script("pipe 2 config bw 1Mbit/s\nqueue 3 delete\npipe 4 delete");
    assert!(bench.firewall.configuration().modules().is_empty());
}
