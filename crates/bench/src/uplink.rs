//! Shaping an uplink, before and after: `client -- home router -- modem -- server`.
//!
//! The modem is a bridge of Sluice with the line's rates and a large FIFO, as such devices have.
//! The home router is the kernel. Traffic in both directions fills the line, while a ping measures
//! the delay: first with the kernel alone, then with Sluice's rules in it.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use sluice_core::{Rate, Span, Stop, Time};
use sluice_load::bulk::{Bulk, BulkReport};
use sluice_load::ping::Ping;
use sluice_net::Clock;
use sluice_net::namespace::{Mac, Namespace, VethEnd, create_veth};
use sluice_router::process::{Hook, Hooked, IfDead, PortSpec, Router, Settings, Traffic};

use super::BenchError;
use super::statistics::quantile;

/// The interface that is shaped.
pub const UPLINK: &str = "wan0";

/// What to shape, and the line behind it.
#[derive(Clone, Debug)]
pub struct UplinkPlan {
    /// The rules for [`UPLINK`], in the language of `sluice ipfw`.
    pub rules: String,
    /// The rate of the line towards the server.
    pub up: Rate,
    /// The rate of the line towards the client.
    pub down: Rate,
    /// The length of one measurement.
    pub length: Span,
}

/// The figures of one state of the uplink.
#[derive(Clone, Copy, Debug, Default)]
pub struct UplinkFigures {
    /// Median round trip in milliseconds.
    pub ping_p50_ms: f64,
    /// 95th percentile of the round trip in milliseconds.
    pub ping_p95_ms: f64,
    /// Payload that arrived at the server, in Mbit/s.
    pub up_mbps: f64,
    /// Payload that arrived at the client, in Mbit/s.
    pub down_mbps: f64,
}

/// The figures without load, with load, and with load behind Sluice's queues.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uplink {
    /// Without load.
    pub idle: UplinkFigures,
    /// With load, unshaped.
    pub before: UplinkFigures,
    /// With load, shaped.
    pub after: UplinkFigures,
}

/// Measures the uplink idle, unshaped and shaped, in namespaces that vanish with the process.
///
/// # Errors
/// The network cannot be created, or the rules are refused.
pub fn uplink(plan: &UplinkPlan, interrupt: &Stop) -> Result<Uplink, BenchError> {
    let home = Home::new()?;
    let modem = home.start_modem(plan)?;
    let idle = home.measure(0, Span::from_ns(plan.length.as_ns() / 4), interrupt)?;
    let before = home.measure(FLOWS, plan.length, interrupt)?;
    let mut settings = Settings::hooked(Hooked {
        traffic: Traffic {
            hooks: vec![Hook::Forward, Hook::Input, Hook::Output],
            entering: vec![UPLINK.to_owned()],
            leaving: vec![UPLINK.to_owned()],
            mark: None,
        },
        queue: 0,
        if_dead: IfDead::Bypass,
        headers_only: false,
    });
    settings.namespace = Some(path_of(&home.router));
    settings.commands = Some(plan.rules.clone());
    settings.engine.accepts_by_default = true;
    let router = Router::start(&settings)?;
    let after = home.measure(FLOWS, plan.length, interrupt);
    router.stop();
    modem.stop();
    Ok(Uplink {
        idle,
        before,
        after: after?,
    })
}

/// The network.
struct Home {
    client: Namespace,
    router: Namespace,
    modem: Namespace,
    server: Namespace,
}

impl Home {
    fn new() -> Result<Home, BenchError> {
        let home = Home {
            client: Namespace::create("client")?,
            router: Namespace::create("home")?,
            modem: Namespace::create("modem")?,
            server: Namespace::create("server")?,
        };
        for namespace in [&home.client, &home.router, &home.modem, &home.server] {
            namespace.silence_ipv6()?;
            namespace.links()?.set_up("lo", true)?;
        }
        let wires = [
            (&home.client, "eth0", &home.router, "lan0"),
            (&home.router, UPLINK, &home.modem, "m0"),
            (&home.modem, "m1", &home.server, "eth0"),
        ];
        for (number, (near, near_name, far, far_name)) in wires.into_iter().enumerate() {
            let end = |namespace, name, side| VethEnd {
                namespace,
                name,
                mac: Mac([2, 0, 0, 0, number as u8, side]),
            };
            create_veth(end(near, near_name, 1), end(far, far_name, 2))?;
            near.links()?.set_up(near_name, true)?;
            far.links()?.set_up(far_name, true)?;
        }
        let addresses = [
            (&home.client, "eth0", CLIENT),
            (&home.router, "lan0", LAN),
            (&home.router, UPLINK, WAN),
            (&home.server, "eth0", SERVER),
        ];
        for (namespace, name, address) in addresses {
            namespace.links()?.add_address(name, address, 24)?;
        }
        let anywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        for (host, gateway) in [(&home.client, LAN), (&home.server, WAN)] {
            host.links()?
                .add_route("eth0", anywhere, 0, Some(gateway), None)?;
        }
        home.router.set_sysctl("net.ipv4.ip_forward", "1")?;
        Ok(home)
    }

    fn start_modem(&self, plan: &UplinkPlan) -> Result<Router, BenchError> {
        let mut settings = Settings::new(PortSpec::auto("m0"), PortSpec::auto("m1"));
        settings.namespace = Some(path_of(&self.modem));
        settings.engine.accepts_by_default = true;
        let pipe = |number: u32, rate: Rate, to: &str| {
            // What a full queue takes to drain, in bytes.
            let bytes = rate.as_bps() / 8 * BUFFER.as_ns() / 1_000_000_000;
            format!(
                "pipe {number} config bw {rate} delay 10ms queue {}KBytes\n\
                 add {number}00 pipe {number} ip from any to any out xmit {to}\n",
                (bytes / 1000).max(1),
            )
        };
        settings.commands = Some(pipe(1, plan.up, "m1") + &pipe(2, plan.down, "m0"));
        Ok(Router::start(&settings)?)
    }

    /// Measures round trips, while this number of transfers runs in each direction.
    fn measure(
        &self,
        flows: usize,
        length: Span,
        interrupt: &Stop,
    ) -> Result<UplinkFigures, BenchError> {
        let clock = Clock::start();
        let start = Time::ZERO + LEAD;
        let (from, to) = (start + WARM_UP, start + WARM_UP + length);
        let ping = Ping {
            stop: Some(to),
            ..Ping::new(CLIENT, SERVER, Span::from_ms(20), from)
        };
        let ping = ping.start(&self.client, &self.server, &clock, interrupt)?;
        let mut running = Vec::new();
        if flows > 0 {
            let (client, server) = (&self.client, &self.server);
            let ways = [
                (CLIENT, SERVER, client, server),
                (SERVER, CLIENT, server, client),
            ];
            for (source, destination, sender, receiver) in ways {
                let bulk = Bulk::new(source, destination, flows, start, to);
                running.push(bulk.start(sender, receiver, &clock, interrupt)?);
            }
        }
        let mut rates = [0.0; 2];
        for (rate, running) in rates.iter_mut().zip(running) {
            *rate = mbps(&running.join()?, from, to);
        }
        let ping = ping.join()?;
        let samples = ping.samples.iter();
        let mut round_trips: Vec<f64> = samples
            .filter_map(|sample| Some(sample.round_trip?.as_ns() as f64 / 1e6))
            .collect();
        round_trips.sort_by(f64::total_cmp);
        Ok(UplinkFigures {
            ping_p50_ms: quantile(&round_trips, 0.5),
            ping_p95_ms: quantile(&round_trips, 0.95),
            up_mbps: rates[0],
            down_mbps: rates[1],
        })
    }
}

/// Returns the payload that arrived between two instants, in Mbit/s.
fn mbps(report: &BulkReport, from: Time, to: Time) -> f64 {
    let at = |time: Time| -> u64 {
        let flows = report.goodput.iter();
        let notes = flows.filter_map(|notes| notes.iter().rfind(|note| note.time <= time));
        notes.map(|note| note.bytes).sum()
    };
    let bytes = at(to).saturating_sub(at(from));
    bytes as f64 * 8.0 / 1e6 / to.since(from).as_secs_f64()
}

fn path_of(namespace: &Namespace) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd()))
}

/// Transfers in each direction.
const FLOWS: usize = 4;
/// Of a modem, in time.
const BUFFER: Span = Span::from_ms(500);
/// Time for slow start to fill the modem's queue.
const WARM_UP: Span = Span::from_secs(2);
const LEAD: Span = Span::from_ms(100);

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 42, 1, 2));
const LAN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 42, 1, 1));
const WAN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 42, 2, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 42, 2, 2));
