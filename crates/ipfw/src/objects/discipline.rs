//! Builds the core's disciplines from commands, through the names and declarations of the registry
//! only.

use std::sync::atomic::{AtomicU32, Ordering};

use sluice_core::Discipline;
use sluice_core::aqm::Aqm;
use sluice_core::aqm::droptail::DropTail;
use sluice_core::param::{Kind, ParamError, Value};
use sluice_core::registry::{self, Algorithm, Spec};
use sluice_core::sched::fifo::FifoParams;
use sluice_core::sched::{Classful, Share, ShareDecl, ShareError, ShareRange};
use sluice_core::units::{Bytes, Rate};

use super::layout::FlowsetConfig;
use crate::grammar::{At, CommandError, Config, Policy, QueueSize, RedWords, Warning};
use crate::variables::Variables;

/// Returns an algorithm that is always registered.
///
/// # Panics
///
/// If the registry lacks it.
pub(crate) fn find(name: &str) -> &'static Algorithm {
    registry::find(name).expect("the registry has dummynet's own schedulers")
}

/// Builds the discipline of a specification that was accepted.
///
/// An algorithm from a file may fail to start nevertheless, for lack of memory or by its own fault.
/// Its packets then pass in the order of their arrival, as after its other errors.
pub(crate) fn build(spec: &Spec) -> Box<dyn Discipline> {
    let built = spec.algorithm.build(&spec.values);
    built.unwrap_or_else(|error| {
        report(&error);
        let mut plain = Spec::new(find("droptail"));
        for limit in ["limit", "limit_bytes"] {
            if let Some(value) = spec.values.find(limit) {
                plain.values.set(limit, value);
            }
        }
        let built = plain.build();
        built.expect("the limits of a queue contradict nothing")
    })
}

/// Reports an algorithm that failed to start: the first, second, fourth and so on.
#[cold]
fn report(error: &ParamError) {
    let count = FAILED.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if count.is_power_of_two() {
        sluice_loader::report(&format!(
            "{error}; its queue passes every packet ({count} so far)"
        ));
    }
}

/// Algorithms that failed to start.
static FAILED: AtomicU32 = AtomicU32::new(0);

/// Whether each flowset has its own queues in the discipline.
pub(crate) fn is_multi_queue(spec: &Spec) -> bool {
    build(spec).as_classful().is_some()
}

/// Builds the single queue of a FIFO, with the limits and the AQM of its flowset.
pub(crate) fn build_fifo(flowset: &FlowsetConfig, rate: Rate) -> Box<dyn Discipline> {
    let mut spec = match &flowset.aqm {
        Some(aqm) => on_link(aqm.clone(), rate),
        None => Spec::new(find("droptail")),
    };
    let limits = limits(flowset);
    spec.values.set("limit", Value::Count(limits.limit));
    spec.values
        .set("limit_bytes", Value::Bytes(limits.limit_bytes));
    build(&spec)
}

/// Builds the AQM for one queue of a scheduler with several queues.
pub(crate) fn build_aqm(flowset: &FlowsetConfig, rate: Rate) -> Box<dyn Aqm> {
    let spec = match &flowset.aqm {
        Some(aqm) => on_link(aqm.clone(), rate),
        None => Spec::new(find("droptail")),
    };
    let built = spec.algorithm.build_aqm(&spec.values);
    built.expect("a policy is an AQM").unwrap_or_else(|error| {
        report(&error);
        Box::new(DropTail)
    })
}

/// Returns the limits of a flowset's queues.
pub(crate) fn limits(flowset: &FlowsetConfig) -> FifoParams {
    match flowset.queue {
        QueueSize::Slots(n) => FifoParams {
            limit: n,
            limit_bytes: Bytes::new(u64::MAX),
        },
        QueueSize::Bytes(n) => FifoParams {
            limit: u64::MAX,
            limit_bytes: Bytes::new(n),
        },
    }
}

/// Returns the share of a flowset's queues.
pub(crate) fn share(flowset: &FlowsetConfig) -> Share {
    Share {
        weight: flowset.weight,
        max_len: if flowset.max_len == 0 {
            Share::default().max_len
        } else {
            flowset.max_len
        },
    }
}

/// Adds the defaults set by `sysctl` and, under `compat`, dummynet's variant.
pub(crate) fn with_defaults(spec: &Spec, variables: &Variables, is_compat: bool) -> Spec {
    let mut filled = spec.clone();
    for (name, value) in variables.defaults_of(spec.algorithm) {
        if spec.values.find(name).is_none() {
            filled.values.set(name, value);
        }
    }
    if is_compat
        && spec.values.find("variant").is_none()
        && let Some(decl) = spec.algorithm.params().find(|d| d.name == "variant")
        && let Kind::Choice(words) = decl.kind
        && let Some(word) = words.iter().find(|w| **w == "dummynet")
    {
        filled.values.set("variant", Value::Choice(word));
    }
    filled
}

/// Returns the AQM of the registry for a policy.
pub(crate) fn aqm_of(
    policy: &At<Policy>,
    queue: &QueueSize,
    variables: &Variables,
    is_compat: bool,
) -> Result<Spec, CommandError> {
    let spec = match &policy.value {
        Policy::Aqm(spec) => spec.clone(),
        Policy::Red(words) => red(words, queue),
    };
    let spec = with_defaults(&spec, variables, is_compat);
    let built = spec.algorithm.build(&spec.values);
    built.map_err(|error| CommandError::new(error, policy.at))?;
    Ok(spec)
}

/// Translates RED's four numbers into parameters of the registry's `gred`, which implements
/// dummynet's arithmetic of both `red` and `gred`. Thresholds have the unit of the queue size.
fn red(words: &RedWords, queue: &QueueSize) -> Spec {
    let mut spec = Spec::new(find("gred"));
    for (name, value) in [
        ("wq", Value::Ratio(words.weight)),
        ("min", Value::Count(words.min)),
        ("max", Value::Count(words.max)),
        ("max_p", Value::Ratio(words.max_p)),
        ("gentle", Value::Flag(words.is_gentle)),
        ("ecn", Value::Flag(words.ecn)),
        ("bytes", Value::Flag(matches!(queue, QueueSize::Bytes(_)))),
    ] {
        spec.values.set(name, value);
    }
    spec
}

/// Completes the AQM of a queue in front of a link of `rate`. RED needs the rate because its
/// average decays while the link is idle.
fn on_link(mut spec: Spec, rate: Rate) -> Spec {
    if follows_link(&spec) {
        spec.values.set("bandwidth", Value::Rate(rate));
    }
    spec
}

/// Whether an AQM has the rate of the link as a parameter that is not given.
pub(crate) fn follows_link(aqm: &Spec) -> bool {
    let asks = aqm.algorithm.params().any(|d| d.name == "bandwidth");
    asks && aqm.values.find("bandwidth").is_none()
}

/// Limits the share of a command to the range of the scheduler, as dummynet's kernel does silently,
/// and warns about it. A share of 0 is not given.
pub(crate) fn bound_share(
    spec: &Spec,
    c: &Config,
    flowset: &mut FlowsetConfig,
    is_compat: bool,
    warnings: &mut Vec<Warning>,
) {
    let name = spec.algorithm.name;
    let decl = share_decl(spec);
    let max_len = decl.and_then(|decl| decl.max_len);
    let before = (flowset.weight, flowset.max_len);
    let default = Share::default();
    let dummynets = |range: Option<ShareRange>, value: u32, default: u32| {
        range.map_or(value, |range| range.dummynet_value(value, default))
    };
    let weight = decl.map(|decl| decl.weight);
    if is_compat {
        flowset.weight = dummynets(weight, flowset.weight, default.weight);
        flowset.max_len = dummynets(max_len, flowset.max_len, default.max_len);
    }
    clamp_share(spec, flowset);
    for (given, word, range, taken, default) in [
        (&c.weight, "weight", weight, flowset.weight, default.weight),
        (
            &c.max_len,
            "lmax",
            max_len,
            flowset.max_len,
            default.max_len,
        ),
    ] {
        let Some(given) = given.filter(|g| g.value != 0) else {
            continue;
        };
        let dummynets = dummynets(range, given.value, default);
        if taken == given.value && dummynets != taken {
            let text = format!("`{word} {taken}` is applied; dummynet would use {dummynets}");
            warnings.push(Warning::new(Some(given.at), text));
        }
    }
    for (given, word, before, after) in [
        (&c.weight, "weight", before.0, flowset.weight),
        (&c.max_len, "lmax", before.1, flowset.max_len),
    ] {
        if let Some(given) = given
            && before != after
        {
            let text = format!("{word} {before} is outside the range of {name}: {after} is used");
            warnings.push(Warning::new(Some(given.at), text));
        }
    }
    if name == "fifo" || decl.is_some_and(|decl| decl.is_priority()) {
        return;
    }
    if c.max_len.is_some() && max_len.is_none() {
        let at = c.max_len.map(|l| l.at);
        let text = format!("`lmax` is shown, but {name} does not read it");
        warnings.push(Warning::new(at, text));
    }
}

/// Returns the parts of a share that the scheduler reads; `None` if it has no classes.
fn share_decl(spec: &Spec) -> Option<&'static ShareDecl> {
    Some(build(spec).as_classful()?.share_decl())
}

/// Fills in the defaults of a share and limits it to the range of the scheduler.
pub(crate) fn clamp_share(spec: &Spec, flowset: &mut FlowsetConfig) {
    let Some(decl) = share_decl(spec) else {
        // `show` prints it, although nothing reads it.
        flowset.weight = flowset.weight.max(1);
        return;
    };
    flowset.weight = decl.weight.clamp(flowset.weight);
    if let Some(range) = decl.max_len {
        if flowset.max_len == 0 {
            flowset.max_len = Share::default().max_len;
        }
        flowset.max_len = range.clamp(flowset.max_len);
    }
}

/// Checks that the scheduler can serve one queue of each of these flowsets at the same time.
pub(crate) fn check_shares<'f>(
    spec: &Spec,
    flowsets: impl Iterator<Item = &'f FlowsetConfig>,
) -> Result<(), ShareError> {
    let mut discipline = build(spec);
    let Some(classful) = discipline.as_classful() else {
        return Ok(());
    };
    (0..)
        .zip(flowsets)
        .try_for_each(|(class, flowset)| open(classful, class, flowset))
}

/// Opens a queue of a flowset.
pub(crate) fn open(
    classful: &mut dyn Classful,
    class: u32,
    flowset: &FlowsetConfig,
) -> Result<(), ShareError> {
    let aqm = build_aqm(flowset, Rate::UNLIMITED);
    classful.open(class, share(flowset), &limits(flowset), aqm)
}
