//! Chooses the kind of port that serves an interface best, and opens it.
//!
//! Super-packets multiply the throughput by ten. Where hosts send super-packets, a kind is chosen
//! that forwards them whole. Otherwise the cost per packet decides, which is lowest with AF_XDP.
//! Each kind states which interfaces it declines ([`Attach`]).

use super::registry::{Kind, Named, OpenError, Opened, OpenedGroup, Sharing, Site, attaching};
use super::{Pool, Port};
use crate::clock::Clock;
use crate::namespace::{LinkError, Namespace, OffloadError, Offloads, is_of_link};
use sluice_wire::frame::Link;
use std::fmt;
use std::sync::Arc;

/// A kind of port that attaches to an interface that exists.
pub trait Attach: Sync {
    /// Returns the name of the kind in messages, such as `AF_XDP`.
    fn title(&self) -> &'static str;

    /// Returns the reason why another kind serves this interface better; `None` if this kind serves
    /// it.
    fn declines(&self, facts: &Facts) -> Option<&'static str>;

    /// Returns the reason to choose this kind for an interface that it does not decline.
    fn merit(&self) -> &'static str;

    /// Returns the limitations of this kind on an interface with these offloads, one sentence each.
    fn cannot(&self, offloads: Offloads) -> Vec<String>;

    /// Opens a port with frames in `pool`. Also returns an addition to the reason for the choice.
    ///
    /// # Errors
    /// The kernel refuses.
    fn open(
        &self,
        namespace: &Namespace,
        interface: &str,
        pool: &mut Pool,
        options: AttachOptions,
    ) -> Result<(Box<dyn Port + Send>, Option<String>), OpenError>;

    /// Opens an interface as one port for each of several workers. Each direction of a flow arrives at
    /// one of them; all of them send. Each has frames in one of `pools`.
    ///
    /// # Errors
    /// As for [`Attach::open`].
    fn open_group(
        &self,
        namespace: &Namespace,
        interface: &str,
        pools: &mut [&mut Pool],
        options: AttachOptions,
        sharing: Sharing,
    ) -> Result<Vec<Box<dyn Port + Send>>, OpenError>;

    /// Returns whether a group gives both directions of a flow to the same place, at all interfaces.
    fn keeps_flows(&self) -> bool;

    /// Opens an interface as two ports for two threads: one that only receives, into `into`, and
    /// one that only sends, from `from`. The two are pools of one memory ([`Pool::pair`]).
    ///
    /// # Errors
    /// As for [`Attach::open`].
    fn open_halves(
        &self,
        namespace: &Namespace,
        interface: &str,
        into: &mut Pool,
        from: &Pool,
        options: AttachOptions,
    ) -> Result<[Box<dyn Port + Send>; 2], OpenError>;
}

/// The settings for attaching to an interface, for all kinds of port.
#[derive(Clone, Copy, Debug)]
pub struct AttachOptions {
    /// The clock that arrivals are stamped on, where the kind can do that.
    pub clock: Option<Clock>,
    /// Let super-packets and open checksums through, where the kind can do that.
    pub offloads: bool,
    /// Largest number of frames of one [`Port::receive`]; the kind's own default if `None`.
    pub batch: Option<usize>,
    /// Ask the interface for frames for all addresses, which a bridge needs.
    pub promiscuous: bool,
}

impl Default for AttachOptions {
    fn default() -> AttachOptions {
        AttachOptions {
            clock: None,
            offloads: true,
            batch: None,
            promiscuous: true,
        }
    }
}

/// The properties of an interface that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The MTU of the interface.
    pub mtu: u32,
    /// The offloads that are on.
    pub offloads: Offloads,
    /// The number of receive queues.
    pub queues: u32,
    /// Whether the machine can be reached at the interface: it has an address beyond the link.
    pub has_address: bool,
}

/// The kind chosen for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The chosen kind.
    pub kind: &'static Kind,
    /// The reason for the choice.
    pub reason: String,
    /// The port's limitations on the interface, one sentence each.
    pub cannot: Vec<String>,
}

/// The reasons why no kind of port can be chosen.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// There is no such interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The offloads of the interface cannot be read.
    #[error(transparent)]
    Offload(#[from] OffloadError),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind.name, self.reason)
    }
}

impl Facts {
    fn of(
        namespace: &Namespace,
        interface: &str,
        wants: Option<&Kind>,
    ) -> Result<Facts, ChooseError> {
        let mut links = namespace.links()?;
        let link = links.interface(interface)?;
        Ok(Facts {
            mtu: link.mtu,
            has_address: !links.addresses(interface)?.iter().all(is_of_link),
            offloads: namespace.offloads(interface)?,
            queues: match wants {
                Some(_) => 1,
                None => namespace.receive_queues(interface)?,
            },
        })
    }

    /// Returns whether hosts may hand over super-packets.
    pub fn has_super_packets(&self) -> bool {
        has_super_packets(self.offloads)
    }
}

/// Returns whether these offloads make super-packets.
pub fn has_super_packets(offloads: Offloads) -> bool {
    offloads.tcp_segmentation || offloads.generic_segmentation || offloads.generic_receive
}

/// Chooses for `interface`: the kind that the user `wants`, or the best.
///
/// # Errors
/// There is no such interface.
pub fn choose(
    namespace: &Namespace,
    interface: &str,
    wants: Option<&'static Kind>,
) -> Result<Choice, ChooseError> {
    let facts = Facts::of(namespace, interface, wants)?;
    Ok(choose_for(&facts, wants, None))
}

/// Opens the port that was chosen, with frames in `pool`. If the user did not request a kind and
/// the best kind cannot be opened, the next kind is tried, and the choice says so.
///
/// # Errors
/// The kernel refuses.
pub fn open(
    namespace: &Namespace,
    interface: &str,
    pool: &mut Pool,
    wants: Option<&'static Kind>,
    options: AttachOptions,
) -> Result<(Box<dyn Port + Send>, Choice), OpenError> {
    let mut facts = Facts::of(namespace, interface, wants)?;
    let mut refused: Option<Refused> = None;
    loop {
        let mut choice = choose_for(&facts, wants, refused.as_ref());
        let attach = choice.kind.attach().expect("kinds that attach are chosen");
        match attach.open(namespace, interface, pool, options) {
            Ok((port, note)) => {
                if let Some(note) = note {
                    choice.reason = format!("{}, {note}", choice.reason);
                }
                return Ok((port, choice));
            }
            Err(error) => {
                let is_last = attaching()
                    .next()
                    .is_some_and(|(kind, _)| kind == choice.kind);
                if wants.is_some() || is_last {
                    return Err(error);
                }
                let reason = format!("{} would be faster, but: {error}", attach.title());
                refused = Some(Refused {
                    kind: choice.kind,
                    reason,
                });
                facts.offloads = namespace.offloads(interface)?;
            }
        }
    }
}

/// A kind that could not be opened.
struct Refused {
    kind: &'static Kind,
    reason: String,
}

/// Returns the wanted kind. Without one, returns the last kind before the refused one that does not
/// decline.
fn choose_for(facts: &Facts, wants: Option<&'static Kind>, refused: Option<&Refused>) -> Choice {
    if let Some((kind, attach)) = wants.and_then(|kind| Some((kind, kind.attach()?))) {
        return Choice {
            kind,
            reason: "as requested".to_owned(),
            cannot: attach.cannot(facts.offloads),
        };
    }
    let mut kinds = attaching().rev();
    let mut reason = None;
    if let Some(refused) = refused {
        kinds.find(|(kind, _)| *kind == refused.kind);
        reason = Some(refused.reason.clone());
    }
    for (kind, attach) in kinds {
        match attach.declines(facts) {
            None => {
                return Choice {
                    kind,
                    reason: reason.unwrap_or_else(|| attach.merit().to_owned()),
                    cannot: attach.cannot(facts.offloads),
                };
            }
            Some(declined) => {
                reason.get_or_insert_with(|| declined.to_owned());
            }
        }
    }
    unreachable!("the first kind of the registry declines no interface")
}

/// Names an existing interface to attach to, by `kind` or by the best kind.
pub(super) fn attached(interface: &str, kind: Option<&'static Kind>) -> Arc<dyn Named> {
    Arc::new(Attached {
        interface: interface.to_owned(),
        kind,
    })
}

#[derive(Debug)]
struct Attached {
    interface: String,
    kind: Option<&'static Kind>,
}

impl Named for Attached {
    fn interface(&self, _number: usize) -> String {
        self.interface.clone()
    }

    fn link(&self) -> Result<Option<Link>, OpenError> {
        Ok(Some(Link::Ethernet))
    }

    fn open(&self, site: &mut Site<'_>) -> Result<Opened, OpenError> {
        let options = AttachOptions {
            clock: Some(site.clock),
            batch: Some(BATCH),
            ..AttachOptions::default()
        };
        let (port, choice) = open(
            site.namespace,
            &self.interface,
            site.pool,
            self.kind,
            options,
        )?;
        Ok(Opened {
            port,
            kind: choice.kind,
            reason: choice.reason,
            cannot: choice.cannot,
            remarks: Vec::new(),
        })
    }

    /// Without a wanted kind, the first one is chosen, which serves every interface.
    fn open_group(
        &self,
        namespace: &Namespace,
        clock: Clock,
        pools: &mut [&mut Pool],
        sharing: Sharing,
    ) -> Option<Result<OpenedGroup, OpenError>> {
        let options = AttachOptions {
            clock: Some(clock),
            batch: Some(BATCH),
            ..AttachOptions::default()
        };
        let mut kinds = attaching();
        let (kind, attach) =
            kinds.find(|(kind, _)| self.kind.is_none_or(|wanted| wanted == *kind))?;
        let opened = attach.open_group(namespace, &self.interface, pools, options, sharing);
        Some(opened.and_then(|ports| {
            Ok(OpenedGroup {
                ports,
                kind,
                reason: sharing.reason(),
                cannot: attach.cannot(namespace.offloads(&self.interface)?),
                keeps_flows: sharing != Sharing::Flows || attach.keeps_flows(),
            })
        }))
    }
}

/// Largest number of frames that a router takes from a port at once. A larger number of
/// super-packets would not fit into the cache.
const BATCH: usize = 32;

#[cfg(test)]
mod tests {
    use super::super::packet::PacketOptions;
    use super::super::xdp::XdpOptions;
    use super::*;

    #[test]
    fn every_kind_obeys_the_options_of_the_attachment() {
        for promiscuous in [false, true] {
            let options = AttachOptions {
                offloads: false,
                batch: Some(7),
                promiscuous,
                ..AttachOptions::default()
            };
            let packet = PacketOptions::from(options);
            assert_eq!((packet.promiscuous, packet.batch), (promiscuous, 7));
            assert!(!packet.offloads);
            let xdp = XdpOptions::from(options);
            assert_eq!((xdp.promiscuous, xdp.batch), (promiscuous, 7));
        }
    }

    /// AF_XDP would take every frame of a card by which the machine itself is reached.
    #[test]
    fn a_card_with_an_address_of_the_machine_gets_no_xdp_port_unless_asked_for() {
        let choice = |has_address, wants| {
            let facts = Facts {
                mtu: 1500,
                offloads: Offloads::OFF,
                queues: 1,
                has_address,
            };
            choose_for(&facts, wants, None)
        };
        let xdp = &super::super::xdp::KIND;
        assert_eq!(choice(false, None).kind.name, "xdp");
        let declined = choice(true, None);
        assert_eq!(declined.kind.name, "packet");
        let why = "the interface has an address of this machine, which AF_XDP would cut off";
        assert!(declined.reason.contains(why), "{}", declined.reason);
        assert_eq!(choice(true, Some(xdp)).kind.name, "xdp");
    }

    #[test]
    fn an_address_that_is_valid_beyond_the_link_is_one_of_the_machine() {
        let Some(namespace) = super::super::live::wire() else {
            return;
        };
        let has_address = || Facts::of(&namespace, "left", None).unwrap().has_address;
        assert!(!has_address());
        let address = "10.0.0.1".parse().unwrap();
        let mut links = namespace.links().unwrap();
        links.add_address("left", address, 24).unwrap();
        assert!(has_address());
    }

    /// [`choose_for`] has an answer for every interface.
    #[test]
    fn the_first_kind_declines_no_interface() {
        let (kind, attach) = attaching().next().unwrap();
        for offloads in [Offloads::ON, Offloads::OFF] {
            for (mtu, queues) in [(68, 1), (65_535, 64)] {
                let facts = Facts {
                    mtu,
                    offloads,
                    queues,
                    has_address: true,
                };
                assert_eq!(attach.declines(&facts), None, "{}", kind.name);
            }
        }
    }
}
