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

/// Returns the failure of a flow whose connection broke because of `error`.
pub(super) fn broken(error: &str) -> String {
    format!("its connection broke: {error}")
}

/// Writes the transfers or pages of a live flow.
pub(super) fn write_transfers(
    transfers: &[sluice_load::Transfer],
    rows: &mut Rows<'_>,
) -> Result<(), RecordError> {
    let mut numbered = (0..).zip(transfers);
    numbered.try_for_each(|(seq, done)| rows.transfer(seq, done.start, done.took, done.bytes))
}

#[cfg(test)]
mod tests {
    use sluice_load::rr::RrReport;
    use sluice_load::tcp::TcpReport;
    use sluice_load::web::WebReport;
    use sluice_scenario::{FlowKind, Scenario};

    use crate::flow::LiveFlow;

    #[test]
    fn a_flow_whose_connection_breaks_has_failed() {
        let text = "duration = \"2s\"\n[link]\nrate = \"10Mbit/s\"\n[[flow]]\ntype = \"tcp\"\n\
                    [[flow]]\ntype = \"rr\"\n[[flow]]\ntype = \"web\"\ninterval = \"1s\"\n";
        let variant = Scenario::parse("x.toml", text, &[]).unwrap().remove(0);
        let failure = |kind: &FlowKind, error: Option<&str>| match kind {
            FlowKind::Tcp(tcp) => tcp.failure(&TcpReport {
                broken: error.map(str::to_owned),
                ..TcpReport::default()
            }),
            FlowKind::Rr(rr) => rr.failure(&RrReport {
                broken: error.map(str::to_owned),
                ..RrReport::default()
            }),
            FlowKind::Web(web) => web.failure(&WebReport {
                broken: 2 * u64::from(error.is_some()),
                ..WebReport::default()
            }),
            _ => panic!("there is no other flow"),
        };
        let kinds: Vec<&FlowKind> = variant.scenario.flows.iter().map(|f| &f.kind).collect();
        assert!(kinds.iter().all(|kind| failure(kind, None).is_none()));
        let errors = kinds
            .iter()
            .map(|kind| failure(kind, Some("Connection reset by peer")));
        assert_eq!(
            errors.flatten().collect::<Vec<_>>(),
            [
                "its connection broke: Connection reset by peer",
                "its connection broke: Connection reset by peer",
                "2 of its connections broke",
            ]
        );
    }
}
