//! A module that was checked and compiled.

use wasmi::{CompilationMode, Config, EnforcedLimits, Engine, ExternType, FuncType, ValType};
use wasmparser::{Parser, Payload, Validator};

use sluice_core::Discipline;
use sluice_core::param::{ParamError, Values};
use sluice_core::registry::{Outside, OutsideDiscipline, Started};
use sluice_loader::{CONSEQUENCE_FOR_RANKS, OnError, Ranked, limit_of};

use crate::abi;
use crate::declare::{self, Declared, number};
use crate::instance::{self, Compiled, InQueue, Shared};
use crate::scheduler::Scheduler;
use crate::selects;

/// A checked and compiled module.
pub struct Module {
    compiled: Compiled,
    /// Names of the parameters, in the order of their numbers.
    params: Vec<&'static str>,
    ranks: bool,
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
        validate(bytes)?;
        let engine = Engine::new(&config());
        let separated = selects::separated(bytes).map_err(|error| error.to_string())?;
        let module = wasmi::Module::new(&engine, &separated).map_err(|error| refusal(&error))?;
        let sections = module.custom_sections();
        let mut own = sections.filter(|section| section.name() == abi::SECTION);
        let declared = match (own.next(), own.next()) {
            (Some(section), None) => declare::parse(section.data())?,
            (None, _) => {
                return Err(format!(
                    "it has no custom section `{}`, in which an algorithm declares itself",
                    abi::SECTION
                ));
            }
            (Some(_), Some(_)) => {
                return Err(format!("it has two custom sections `{}`", abi::SECTION));
            }
        };
        let ranks = module.get_export("rank").is_some();
        check_imports(&module)?;
        check_exports(&module, &declared, ranks)?;
        let module = Module {
            ranks,
            compiled: Compiled {
                path: path.to_owned(),
                module,
                len: bytes.len(),
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
            match self.ranks {
                true => CONSEQUENCE_FOR_RANKS,
                false => instance::CONSEQUENCE,
            },
        )
    }

    /// Returns whether the module ranks packets; otherwise it is an AQM.
    pub fn ranks(&self) -> bool {
        self.ranks
    }

    /// Starts the module, and creates one state, to detect a module that cannot create any.
    fn begin(&self, values: &Values) -> Result<Shared, ParamError> {
        let shared = self.instantiate(values);
        let shared = shared.and_then(|shared| shared.create().map(|_| shared));
        let refuse = |why| ParamError::Contradiction(format!("`{}`: {why}", self.compiled.path));
        shared.map_err(refuse)
    }
}

impl Outside for Module {
    fn start(&self, values: &Values) -> Result<Box<dyn Started>, ParamError> {
        Ok(Box::new(self.begin(values)?))
    }
}

impl OutsideDiscipline for Module {
    fn build(&self, values: &Values) -> Result<Box<dyn Discipline>, ParamError> {
        let limit = limit_of(values);
        let scheduler = Scheduler {
            module: InQueue::new(&self.begin(values)?),
            limit,
        };
        Ok(Box::new(Ranked::new(limit, scheduler)))
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

/// Checks the whole module before wasmi compiles a function of it. wasmi 2.0 checks while it compiles,
/// and panics at some modules that are not valid: at operators behind the end of a function, and at a
/// code section without functions. More functions than wasmi accepts are refused before all of them are
/// read.
fn validate(bytes: &[u8]) -> Result<(), String> {
    let functions = Parser::new(0)
        .parse_all(bytes)
        .find_map(|payload| match payload {
            Ok(Payload::FunctionSection(section)) => Some(section.count()),
            _ => None,
        });
    if let Some(count) = functions.filter(|count| *count > MOST_FUNCTIONS) {
        return Err(format!(
            "it has {count} functions; a module can have at most {MOST_FUNCTIONS}"
        ));
    }
    let types = Validator::new().validate_all(bytes);
    types.map(drop).map_err(|error| error.to_string())
}

/// Returns the reason why a module was refused.
fn refusal(error: &wasmi::Error) -> String {
    let why = error.to_string();
    match why.contains("floating-point") {
        true => format!("{why}; a module computes with whole numbers only"),
        false => why,
    }
}

/// Checks the names of the imports.
fn check_imports(module: &wasmi::Module) -> Result<(), String> {
    let is_known =
        |module: &str, name: &str| module == abi::IMPORTS && abi::FUNCTIONS.contains(&name);
    let mut imports = module.imports();
    match imports.find(|import| !is_known(import.module(), import.name())) {
        None => Ok(()),
        Some(import) => Err(format!(
            "it imports `{}` from `{}`; a module can import from `{}` only {}",
            import.name(),
            import.module(),
            abi::IMPORTS,
            abi::FUNCTIONS.join(", "),
        )),
    }
}

/// Checks names and types of the exports that Sluice calls.
fn check_exports(module: &wasmi::Module, declared: &Declared, ranks: bool) -> Result<(), String> {
    let needs_set = !declared.params.is_empty();
    let needs_variable = !declared.variables.is_empty();
    let exports = match ranks {
        true => instance::OF_SCHEDULER,
        false => instance::OF_AQM,
    };
    for (name, params, results) in exports {
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
    let has = |name: &&str| module.get_export(name).is_some();
    if ranks {
        let mut others = instance::OF_AQM.iter().map(|(name, ..)| *name);
        let is_foreign = |name: &&str| has(name) && exports.iter().all(|(own, ..)| own != name);
        if let Some(name) = others.find(is_foreign) {
            return Err(format!(
                "it exports `rank`, so that it is a scheduler, and `{name}`, which is called in AQMs \
                 only"
            ));
        }
    } else if !["on_enqueue", "on_dequeue"].iter().any(has) {
        let why =
            "it exports none of `on_enqueue` and `on_dequeue` (an AQM) and `rank` (a scheduler)";
        return Err(why.to_owned());
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

/// Functions of a module: `max_functions` of [`EnforcedLimits::strict`].
const MOST_FUNCTIONS: u32 = 10_000;
