//! The common part of the flow types over TCP.

use sluice_core::spelling;
use sluice_load::tcp::{Ecn, TcpSettings};
use sluice_recording::RecordError;
use sluice_scenario::{Dscp, FlowInstance, Growth, TcpEcn, Word};
use sluice_tcp::{self as tcp, EcnMode, cc};

use super::Rows;

/// The simulator has no such congestion control.
#[derive(Debug, thiserror::Error)]
#[error(
    "{place}: flow `{flow}`: the simulator has no congestion control `{name}`; {}; \
     `--backend live` takes what the kernel has",
    known(name)
)]
pub struct UnknownCongestionControl {
    /// The place in the scenario.
    pub place: String,
    /// The flow.
    pub flow: String,
    /// The requested name.
    pub name: String,
}

/// The reason why a flow cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum NotSimulated {
    /// Its congestion control.
    #[error(transparent)]
    CongestionControl(#[from] UnknownCongestionControl),
    /// It is a program.
    #[error(
        "{place}: flow `{flow}` runs a program, which needs real packets: use `--backend live`, or \
         write `backend = \"live\"` at the top of the scenario"
    )]
    Program {
        /// The place in the scenario.
        place: String,
        /// The flow.
        flow: String,
    },
}

fn known(name: &str) -> String {
    let names: Vec<&str> = cc::REGISTRY.iter().map(|entry| entry.name).collect();
    let meant = spelling::question(name, names.iter().copied());
    let meant = meant.map(|question| format!("{question} "));
    format!("{}it has {}", meant.unwrap_or_default(), names.join(", "))
}

/// Returns the configuration of the simulator's TCP.
pub(super) fn config(
    instance: &FlowInstance<'_>,
    name: &Word,
    ecn: TcpEcn,
) -> Result<tcp::Config, UnknownCongestionControl> {
    let found = cc::find(&name.0).ok_or_else(|| UnknownCongestionControl {
        place: name.place().unwrap_or("the default of `cc`").to_owned(),
        flow: instance.name.clone(),
        name: name.0.clone(),
    })?;
    let mut config = sluice_sim::Tcp::bulk(found).config;
    if let Some(segments) = instance.flow.kind.initial_window() {
        config.initial_window = segments;
    }
    if let Some(settings) = &instance.flow.tcp {
        config.growth = match settings.growth {
            Growth::Segments => tcp::Growth::Segments,
            Growth::Bytes => tcp::Growth::Bytes,
        };
        config.abe = settings.abe;
        config.slow_start = settings
            .slow_start
            .map(tcp::SlowStart::from)
            .unwrap_or_default();
        config.pacing = match settings.pacing {
            None => tcp::Pacing::Auto,
            Some(false) => tcp::Pacing::Off,
            Some(true) => tcp::Pacing::On,
        };
        config.rto_floor = settings.rto_floor;
    }
    match ecn {
        TcpEcn::Off => {}
        TcpEcn::On if config.ecn == EcnMode::Off => config.ecn = EcnMode::Classic,
        TcpEcn::On => {}
        TcpEcn::Accurate => config.ecn = EcnMode::Accurate,
    }
    Ok(config)
}

/// Returns the settings of the kernel's TCP.
pub(super) fn kernel_settings(name: &Word, ecn: TcpEcn, dscp: Dscp) -> TcpSettings {
    TcpSettings {
        congestion_control: Some(name.0.clone()),
        ecn: match ecn {
            TcpEcn::Off => Ecn::Off,
            TcpEcn::On => Ecn::On,
            TcpEcn::Accurate => Ecn::Accurate,
        },
        dscp: dscp.value(),
    }
}

/// Writes the transfers or pages of a live flow.
pub(super) fn write_transfers(
    transfers: &[sluice_load::Transfer],
    rows: &mut Rows<'_>,
) -> Result<(), RecordError> {
    let mut numbered = (0..).zip(transfers);
    numbered.try_for_each(|(seq, done)| rows.transfer(seq, done.start, done.took, done.bytes))
}
