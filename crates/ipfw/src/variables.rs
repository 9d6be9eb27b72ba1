//! The variables of `sysctl`: `net.inet.ip.dummynet.*`, `net.inet.ip.fw.*` and others.
//!
//! As in dummynet, a change applies to objects that are configured afterwards.
//! `net.inet.ip.dummynet.compat` is specific to Sluice: 1 makes the engine behave like dummynet
//! where the two deliberately differ.

use std::collections::BTreeMap;

use sluice_core::param::{Ratio, Value};
use sluice_core::registry::Algorithm;
use sluice_core::units::Span;

use crate::grammar::{At, CommandError, ErrorKind, Position};

/// The kind of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// The variable can be set within a range.
    Set(u64, u64),
    /// The variable can be set but is not read, for this reason.
    Unused(&'static str),
    /// The variable is constant.
    Constant,
    /// The engine counts it.
    Counter,
}

struct Variable {
    name: &'static str,
    default: u64,
    access: Access,
}

const fn set(name: &'static str, default: u64, low: u64, high: u64) -> Variable {
    Variable {
        name,
        default,
        access: Access::Set(low, high),
    }
}

const fn unused(name: &'static str, default: u64, why: &'static str) -> Variable {
    Variable {
        name,
        default,
        access: Access::Unused(why),
    }
}

const fn constant(name: &'static str, default: u64) -> Variable {
    Variable {
        name,
        default,
        access: Access::Constant,
    }
}

const fn counter(name: &'static str) -> Variable {
    Variable {
        name,
        default: 0,
        access: Access::Counter,
    }
}

const NO_TICKS: &str = "there are no ticks, each packet leaves at its own time";
const NO_PROBES: &str = "no keep-alive packets are sent";
const COMPAT_ONLY: &str = "only compat enforces it";
const ALL_LAYERS: &str = "the host decides which packets reach the rules";
const S: u64 = 1_000_000;

/// The ranges are those of dummynet's kernel. Times of AQMs are in microseconds.
static VARIABLES: &[Variable] = &[
    set("net.inet.ip.dummynet.compat", 0, 0, 1),
    set("net.inet.ip.dummynet.hash_size", 64, 16, 65536),
    set("net.inet.ip.dummynet.pipe_slot_limit", 100, 2, 1 << 31),
    set(
        "net.inet.ip.dummynet.pipe_byte_limit",
        1 << 20,
        1500,
        1 << 40,
    ),
    set("net.inet.ip.dummynet.expire", 1, 0, 1 << 20),
    unused("net.inet.ip.dummynet.io_fast", 0, NO_TICKS),
    unused(
        "net.inet.ip.dummynet.debug",
        0,
        "nothing is printed to a console",
    ),
    unused(
        "net.inet.ip.dummynet.max_chain_len",
        16,
        "tables grow as needed",
    ),
    constant("net.inet.ip.dummynet.red_lookup_depth", 256),
    constant("net.inet.ip.dummynet.red_avg_pkt_size", 512),
    constant("net.inet.ip.dummynet.red_max_pkt_size", 1500),
    constant("net.inet.ip.dummynet.tick_delta", 0),
    constant("net.inet.ip.dummynet.tick_delta_sum", 0),
    constant("net.inet.ip.dummynet.tick_adjustment", 0),
    constant("net.inet.ip.dummynet.tick_diff", 0),
    constant("net.inet.ip.dummynet.tick_lost", 0),
    counter("net.inet.ip.dummynet.expire_cycle"),
    counter("net.inet.ip.dummynet.schk_count"),
    counter("net.inet.ip.dummynet.si_count"),
    counter("net.inet.ip.dummynet.fsk_count"),
    counter("net.inet.ip.dummynet.queue_count"),
    counter("net.inet.ip.dummynet.io_pkt"),
    counter("net.inet.ip.dummynet.io_pkt_fast"),
    counter("net.inet.ip.dummynet.io_pkt_drop"),
    set("net.inet.ip.dummynet.codel.target", 5000, 1, 5 * S),
    set("net.inet.ip.dummynet.codel.interval", 100_000, 1, 100 * S),
    set("net.inet.ip.dummynet.fqcodel.target", 5000, 1, 5 * S),
    set("net.inet.ip.dummynet.fqcodel.interval", 100_000, 1, 100 * S),
    set("net.inet.ip.dummynet.fqcodel.quantum", 1514, 1, 9000),
    set("net.inet.ip.dummynet.fqcodel.flows", 1024, 1, 65536),
    set("net.inet.ip.dummynet.fqcodel.limit", 10240, 1, 20480),
    set("net.inet.ip.dummynet.pie.target", 15_000, 1, 10 * S),
    set("net.inet.ip.dummynet.pie.tupdate", 15_000, 1, 10 * S),
    set("net.inet.ip.dummynet.pie.max_burst", 150_000, 0, 10 * S),
    set("net.inet.ip.dummynet.pie.max_ecnth", 99, 0, 1000),
    set("net.inet.ip.dummynet.pie.alpha", 125, 0, 7000),
    set("net.inet.ip.dummynet.pie.beta", 1250, 0, 7000),
    set("net.inet.ip.dummynet.fqpie.target", 15_000, 1, 5 * S),
    set("net.inet.ip.dummynet.fqpie.tupdate", 15_000, 1, 5 * S),
    set("net.inet.ip.dummynet.fqpie.max_burst", 150_000, 0, 5 * S),
    set("net.inet.ip.dummynet.fqpie.max_ecnth", 99, 0, 1000),
    set("net.inet.ip.dummynet.fqpie.alpha", 125, 0, 7000),
    set("net.inet.ip.dummynet.fqpie.beta", 1250, 0, 7000),
    set("net.inet.ip.dummynet.fqpie.quantum", 1514, 1, 9000),
    set("net.inet.ip.dummynet.fqpie.flows", 1024, 1, 65536),
    set("net.inet.ip.dummynet.fqpie.limit", 10240, 1, 20480),
    set("net.inet.ip.fw.one_pass", 1, 0, 1),
    set("net.inet.ip.fw.enable", 1, 0, 1),
    set("net.inet6.ip6.fw.enable", 1, 0, 1),
    set("net.inet.ip.fw.autoinc_step", 100, 1, 1000),
    set("net.inet.ip.fw.verbose", 0, 0, 2),
    set("net.inet.ip.fw.verbose_limit", 0, 0, 1 << 31),
    set("net.inet.ip.fw.dyn_ack_lifetime", 300, 1, 1 << 31),
    set("net.inet.ip.fw.dyn_syn_lifetime", 20, 1, 1 << 31),
    set("net.inet.ip.fw.dyn_fin_lifetime", 1, 1, 1 << 31),
    set("net.inet.ip.fw.dyn_rst_lifetime", 1, 1, 1 << 31),
    set("net.inet.ip.fw.dyn_udp_lifetime", 10, 1, 1 << 31),
    set("net.inet.ip.fw.dyn_short_lifetime", 5, 1, 1 << 31),
    set("net.inet.ip.fw.dyn_max", 16384, 1, 1 << 24),
    set("net.inet.ip.fw.dyn_src_max", 4096, 0, 1 << 24),
    unused("net.inet.ip.fw.dyn_keepalive", 1, NO_PROBES),
    unused(
        "net.inet.ip.fw.dyn_buckets",
        8192,
        "the table of states grows as needed",
    ),
    unused(
        "net.inet.ip.fw.dyn_parent_max",
        4096,
        "`dyn_max` also limits the groups of `limit` rules",
    ),
    unused(
        "net.inet.ip.fw.dyn_keep_states",
        0,
        "states are deleted with their rule",
    ),
    unused(
        "net.inet6.ip6.fw.deny_unknown_exthdrs",
        1,
        "`sluice router --strict` drops such packets",
    ),
    unused(
        "net.inet6.ip6.fw.permit_single_frag6",
        1,
        "packets of a single fragment are never dropped",
    ),
    unused("net.inet.ip.fw.debug", 0, "nothing is printed to a console"),
    unused(
        "net.inet.ip.fw.tables_max",
        128,
        "there may be any number of tables",
    ),
    unused("net.inet.ip.fw.tables_sets", 0, "tables belong to no set"),
    constant("net.inet.ip.fw.default_rule", 65535),
    counter("net.inet.ip.fw.default_to_accept"),
    counter("net.inet.ip.fw.static_count"),
    counter("net.inet.ip.fw.dyn_count"),
    counter("net.inet.ip.fw.dyn_refused_full"),
    counter("net.inet.ip.fw.dyn_refused_limit"),
    counter("net.inet.ip.fw.dyn_refused_src"),
    counter("net.inet.ip.fw.dyn_evicted"),
    unused("net.link.ether.ipfw", 0, ALL_LAYERS),
    unused("net.link.bridge.ipfw", 0, ALL_LAYERS),
    unused("kern.hz", 1000, NO_TICKS),
];

/// The values that differ from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables {
    changed: BTreeMap<&'static str, u64>,
}

fn find(name: &At<String>) -> Result<&'static Variable, CommandError> {
    VARIABLES
        .iter()
        .find(|v| v.name == name.value)
        .ok_or_else(|| {
            let kind = ErrorKind::UnknownVariable(name.value.clone());
            CommandError::new(kind, name.at).near(&name.value, VARIABLES.iter().map(|v| v.name))
        })
}

impl Variables {
    /// Returns the variables of a new engine.
    pub fn starting(compat: bool) -> Self {
        let mut variables = Variables::default();
        if compat {
            variables.put("net.inet.ip.dummynet.compat", 1);
        }
        variables
    }

    /// Iterates over the variables that were set.
    pub fn changed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.changed.iter().map(|(name, value)| (*name, *value))
    }

    /// Iterates over the names of all variables.
    pub fn names() -> impl Iterator<Item = &'static str> {
        VARIABLES.iter().map(|variable| variable.name)
    }

    /// Returns the value of a variable that can be set.
    ///
    /// # Panics
    ///
    /// If the variable does not exist; names in this crate are constants.
    pub fn value(&self, name: &str) -> u64 {
        self.changed.get(name).copied().unwrap_or_else(|| {
            let variable = VARIABLES.iter().find(|v| v.name == name);
            variable
                .expect("a variable that is read is declared")
                .default
        })
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.value(name) != 0
    }

    /// Returns the current value. `count` supplies the values of counters.
    pub fn show(
        &self,
        name: &At<String>,
        count: impl Fn(&str) -> u64,
    ) -> Result<u64, CommandError> {
        let variable = find(name)?;
        Ok(match variable.access {
            Access::Counter => count(variable.name),
            _ => self.value(variable.name),
        })
    }

    /// Sets a variable and returns a warning if it has no effect.
    pub fn set(
        &mut self,
        name: &At<String>,
        value: &At<String>,
    ) -> Result<Option<String>, CommandError> {
        let variable = find(name)?;
        let number: u64 = value.value.parse().map_err(|_| {
            let kind = ErrorKind::Invalid {
                text: value.value.clone(),
                what: "a value",
                accepted: "a whole number",
            };
            CommandError::new(kind, value.at)
        })?;
        let said = match variable.access {
            Access::Counter | Access::Constant => {
                return Err(CommandError::new(
                    ErrorKind::ReadOnlyVariable(variable.name),
                    name.at,
                ));
            }
            Access::Set(low, high) if number < low || number > high => {
                let kind = ErrorKind::OutOfRange {
                    what: variable.name,
                    value: number,
                    low,
                    high,
                };
                return Err(CommandError::new(kind, value.at));
            }
            Access::Set(..)
                if variable.name.ends_with("_limit") && variable.name.contains("pipe_") =>
            {
                Some(COMPAT_ONLY)
            }
            Access::Set(..) => None,
            Access::Unused(why) => Some(why),
        };
        self.put(variable.name, number);
        Ok(said.map(|why| format!("`{}` has no effect: {why}", variable.name)))
    }

    /// Sets a variable by its declared name.
    pub fn put(&mut self, name: &'static str, value: u64) {
        self.changed.insert(name, value);
    }

    /// Returns the changed defaults of an algorithm: `codel.target` and similar variables.
    pub fn defaults_of(&self, algorithm: &Algorithm) -> Vec<(&'static str, Value)> {
        let Some(prefix) = prefix_of(algorithm.name) else {
            return Vec::new();
        };
        let changed = |name: &str| {
            let (_, value) = self.changed.iter().find(|(n, _)| {
                n.strip_prefix("net.inet.ip.dummynet.")
                    .and_then(|rest| rest.strip_prefix(prefix))
                    .is_some_and(|rest| rest.strip_prefix('.') == Some(name))
            })?;
            Some(*value)
        };
        let params = algorithm.params();
        let changed = params.filter_map(|decl| changed(decl.name).map(|n| (decl, n)));
        changed
            .filter_map(|(decl, n)| {
                let value = match decl.default {
                    Value::Span(_) => Value::Span(Span::from_us(n)),
                    Value::Count(_) => Value::Count(n),
                    // alpha, beta and max_ecnth are in thousandths.
                    Value::Ratio(_) => Value::Ratio(Ratio::from_billionths(n * 1_000_000)),
                    _ => return None,
                };
                decl.check(value).ok().map(|()| (decl.name, value))
            })
            .collect()
    }
}

fn prefix_of(algorithm: &str) -> Option<&'static str> {
    Some(match algorithm {
        "codel" => "codel",
        "fq_codel" => "fqcodel",
        "pie" => "pie",
        "fq_pie" => "fqpie",
        _ => return None,
    })
}

/// Wraps a variable's name for the switches `enable` and `disable`.
pub(crate) fn named(name: &str) -> At<String> {
    At::new(name.to_string(), Position::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::registry;

    #[test]
    fn a_changed_variable_is_a_default_of_its_algorithm() {
        let mut variables = Variables::default();
        let codel = registry::find("codel").unwrap();
        assert!(variables.defaults_of(codel).is_empty());
        variables
            .set(&named("net.inet.ip.dummynet.codel.target"), &named("7000"))
            .unwrap();
        assert_eq!(
            variables.defaults_of(codel),
            [("target", Value::Span(Span::from_ms(7)))]
        );
        let fq = registry::find("fq_codel").unwrap();
        assert!(variables.defaults_of(fq).is_empty());
    }

    #[test]
    fn variables_that_nothing_reads_are_stored_with_a_warning() {
        // The defaults of FreeBSD 14: ip_fw_dynamic.c, `ipfw_dyn_init`; ip_fw2.c.
        for (name, default) in [
            ("net.inet.ip.fw.dyn_buckets", 8192),
            ("net.inet.ip.fw.dyn_parent_max", 4096),
            ("net.inet.ip.fw.dyn_keep_states", 0),
            ("net.inet6.ip6.fw.deny_unknown_exthdrs", 1),
            ("net.inet6.ip6.fw.permit_single_frag6", 1),
        ] {
            let mut variables = Variables::default();
            assert_eq!(variables.value(name), default, "{name}");
            let said = variables.set(&named(name), &named("2")).unwrap().unwrap();
            assert!(
                said.starts_with(&format!("`{name}` has no effect: ")),
                "{said}"
            );
            assert_eq!(variables.value(name), 2);
        }
    }

    #[test]
    fn read_only_variables_are_refused() {
        let mut variables = Variables::default();
        let mut refusal = |name: &str, value: &str| {
            variables
                .set(&named(name), &named(value))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refusal("net.inet.ip.fw.default_rule", "1"),
            "oid 'net.inet.ip.fw.default_rule' is read only"
        );
        assert_eq!(
            refusal("net.inet.ip.fw.onepass", "1"),
            "unknown oid 'net.inet.ip.fw.onepass' (did you mean ``net.inet.ip.fw.one_pass''?)"
        );
        assert_eq!(
            refusal("net.inet.ip.dummynet.hash_size", "8"),
            "net.inet.ip.dummynet.hash_size 8 is outside 16 to 65536"
        );
    }
}
