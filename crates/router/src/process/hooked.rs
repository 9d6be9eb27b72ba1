//! A router that queues packets of the kernel's own stack, which remains the router or host.

use sluice_net::namespace::Namespace;
use sluice_net::port::nfqueue::{IfDead, KIND, NfqueueOptions, Traffic};
use sluice_net::port::{NfqueuePort, PoolSize, Port};

use super::ports::{PortList, PortTime, Ports};
use super::{PortChoice, StartError};

/// The packets of the kernel's stack that a router queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooked {
    /// The packets.
    pub traffic: Traffic,
    /// The number of the kernel's queue; that of the first one if there are several workers.
    pub queue: u16,
    /// The fate of packets when the router has died.
    pub if_dead: IfDead,
    /// Fetch headers only: faster for super-packets, but packets cannot be marked.
    pub headers_only: bool,
}

impl Hooked {
    /// Returns the names of all interfaces of a namespace, after a check that those that the
    /// traffic names are among them.
    pub(super) fn interfaces(&self, namespace: &Namespace) -> Result<Vec<String>, StartError> {
        let interfaces = namespace.links()?.interfaces()?;
        let names: Vec<String> = interfaces.into_iter().map(|one| one.name).collect();
        for wanted in self.traffic.interfaces() {
            if !names.iter().any(|name| name == wanted) {
                return Err(StartError::NoInterface {
                    name: wanted.to_owned(),
                    existing: names.join(", "),
                });
            }
        }
        Ok(names)
    }

    /// Opens a queue for each worker, and installs the rules. Returns the ports of each worker.
    pub(super) fn open(
        &self,
        namespace: &Namespace,
        names: &[String],
        pool: PoolSize,
        workers: usize,
    ) -> Result<(Ports, Vec<PortList>), StartError> {
        let mut links = namespace.links()?;
        let named = self.traffic.interfaces();
        let mtus = named
            .iter()
            .filter_map(|name| Some(links.interface(name).ok()?.mtu));
        let options = NfqueueOptions {
            number: self.queue,
            traffic: Some(self.traffic.clone()),
            if_dead: self.if_dead,
            interfaces: names.to_vec(),
            headers_only: self.headers_only,
            batch: BATCH,
            // A packet waits in the kernel for as long as it is queued here.
            most_waiting: pool.slots,
            mtu: mtus.min().unwrap_or(USUAL_MTU),
            ..NfqueueOptions::default()
        };
        let ports = NfqueuePort::open_group(namespace, &options, workers)?;
        let first = &ports[0];
        let mut remarks = Vec::new();
        if first.took_over() {
            remarks.push("replaced the nft table that a killed router had left".to_owned());
        }
        if first.can_be_flushed() {
            remarks.push(
                "before Linux 6.9, other programs can remove this router's nft table, as `nft flush \
                 ruleset` and a reload of nftables.service do; packets then pass unqueued until the \
                 router is started again"
                    .to_owned(),
            );
        }
        let reason = match self.if_dead {
            IfDead::Bypass => "if the router dies, packets pass unqueued",
            IfDead::Closed => "if the router dies, packets are dropped until it starts again",
        };
        let mut cannot = Vec::new();
        if self.headers_only {
            cannot.push(
                "packets longer than their headers are dropped where they would be marked"
                    .to_owned(),
            );
        }
        let common = Ports {
            choices: vec![PortChoice {
                name: first.name().to_owned(),
                kind: KIND.name.to_owned(),
                reason: reason.to_owned(),
                cannot,
            }],
            remarks,
            time: PortTime::Machine,
            keeps_flows: true,
        };
        let of_workers = ports
            .into_iter()
            .map(|port| -> PortList { vec![Box::new(port)] });
        Ok((common, of_workers.collect()))
    }
}

const BATCH: usize = 64;
/// Of Ethernet.
const USUAL_MTU: u32 = 1500;
