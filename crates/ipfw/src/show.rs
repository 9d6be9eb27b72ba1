//! The state of pipes, queues and rules: as values, and in dummynet's text format.

pub(crate) mod collect;
pub(crate) mod policy;
pub(crate) mod rules;
mod snapshot;
pub(crate) mod text;

pub use snapshot::{
    CounterState, DynamicRuleState, FlowState, FlowsetState, GroupState, LinkState, PipeState,
    ProfileState, QueueState, RuleState, SchedulerLine, SchedulerState, Snapshot, WaitState,
};
