//! A module that was checked and compiled.

use wasmi::{CompilationMode, Config, EnforcedLimits, Engine, ExternType, FuncType, ValType};

use sluice_core::param::{ParamError, Values};
use sluice_core::registry::{Outside, Started};

use sluice_loader::OnError;

use crate::abi;
use crate::declare::{self, Declared, number};
use crate::instance::{self, Compiled, Shared};

/// A checked and compiled module.
pub struct Module {
    compiled: Compiled,
    /// Names of the parameters, in the order of their numbers.
    params: Vec<&'static str>,
}

impl Module {
    /// Checks and compiles a module, and starts it once. `path` is its name in messages.
    ///
    /// # Errors
    /// Returns what is wrong with the module, and what would be right.
    pub fn new(bytes: &[u8], path: &str) -> Result<(Declared, Module), String> {
        if !bytes.starts_with(b"\0asm") {
            return Err(
                "it is not a WebAssembly module: it does not begin with `\\0asm`".to_owned(),
            );
        }
        let engine = Engine::new(&config());
        let module = wasmi::Module::new(&engine, bytes).map_err(|e| e.to_string())?;
        let sections = module.custom_sections();
        let mut own = sections.filter(|section| section.name() == abi::SECTION);
        let declared = match (own.next(), own.next()) {
            (Some(section), None) => declare::parse(section.data())?,
            (None, _) => {
                return Err(format!(
                    "it has no custom section `{}`, in which an AQM declares itself",
                    abi::SECTION
                ));
            }
            (Some(_), Some(_)) => {
                return Err(format!("it has two custom sections `{}`", abi::SECTION));
            }
        };
        check_exports(&module, &declared)?;
        let module = Module {
            compiled: Compiled {
                path: path.to_owned(),
                module,
                variables: declared.variables.clone(),
            },
            params: declared.params.iter().map(|decl| decl.name).collect(),
        };
        let mut defaults = Values::new();
        for decl in &declared.params {
            defaults.set(decl.name, decl.default);
        }
        module.instantiate(&defaults)?.create()?;
        Ok((declared, module))
    }

    fn instantiate(&self, values: &Values) -> Result<Shared, String> {
        let value =
            |name: &&'static str| number(values.find(name).expect("every parameter has a value"));
        Shared::new(
            &self.compiled,
            &self.params.iter().map(value).collect::<Vec<i64>>(),
            OnError::of(values),
        )
    }
}

impl Outside for Module {
    fn start(&self, values: &Values) -> Result<Box<dyn Started>, ParamError> {
        let shared = self.instantiate(values).and_then(|shared| {
            // Creates one state, to detect a module that cannot create any.
            shared.create().map(|_| shared)
        });
        let refuse = |why| ParamError::Contradiction(format!("`{}`: {why}", self.compiled.path));
        Ok(Box::new(shared.map_err(refuse)?))
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .floats(false)
        .wasm_multi_memory(false)
        .allow_start_fn(false)
        .compilation_mode(CompilationMode::Eager)
        .enforced_limits(EnforcedLimits::strict());
    config
}

/// Checks names and types of the exports that Sluice calls.
fn check_exports(module: &wasmi::Module, declared: &Declared) -> Result<(), String> {
    let needs_set = !declared.params.is_empty();
    let needs_variable = !declared.variables.is_empty();
    for (name, params, results) in instance::EXPORTS {
        let is_needed = match *name {
            "create" => true,
            "set_param" => needs_set,
            "variable" => needs_variable,
            _ => false,
        };
        let right = FuncType::new(params.iter().copied(), results.iter().copied());
        match module.get_export(name) {
            None if is_needed => {
                return Err(format!("it does not export `{name}`, {}", show(&right)));
            }
            None => {}
            Some(ExternType::Func(found)) if found == right => {}
            Some(ExternType::Func(found)) => {
                return Err(format!(
                    "its export `{name}` is {} instead of {}",
                    show(&found),
                    show(&right)
                ));
            }
            Some(_) => return Err(format!("its export `{name}` is not a function")),
        }
    }
    if ["on_enqueue", "on_dequeue"]
        .iter()
        .all(|name| module.get_export(name).is_none())
    {
        return Err("it exports neither `on_enqueue` nor `on_dequeue`".to_owned());
    }
    Ok(())
}

fn show(func: &FuncType) -> String {
    let list = |types: &[ValType]| {
        let names: Vec<String> = types
            .iter()
            .map(|t| format!("{t:?}").to_lowercase())
            .collect();
        names.join(", ")
    };
    format!("({}) -> ({})", list(func.params()), list(func.results()))
}
