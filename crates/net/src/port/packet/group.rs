//! The ports of one interface for several workers.
//!
//! The kernel numbers the sockets of a group in the order in which they join, and the number decides
//! which flows a socket gets. It does not attach a socket of a group to another interface
//! (`packet_do_bind` in Linux's net/packet/af_packet.c). So if the interface is removed and created
//! again, all ports get new sockets at once, which join in the same order, and each port takes its own.

use super::{PacketError, PacketOptions, PacketPort, is_bound};
use crate::namespace::{Interface, Namespace};
use std::sync::{Arc, Mutex, PoisonError};

/// The group of ports that share the frames of an interface.
///
/// The kernel numbers the members in the order in which they join, and chooses one by a hash of
/// addresses and ports that is the same for both directions of a flow
/// (`__skb_get_hash_symmetric`). So groups of the same size on several interfaces give a flow to the
/// same member everywhere. Fragments have no ports: their addresses decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// A new group, whose number the kernel chooses ([`PacketPort::group`]).
    New,
    /// The group with this number.
    Join(u16),
}

impl Fanout {
    /// Returns the value of `PACKET_FANOUT`, packet(7): the group's number in the low half, the method
    /// of spreading and flags in the high half.
    pub(super) const fn value(self) -> i32 {
        let method = libc::PACKET_FANOUT_HASH as i32 | IGNORE_OUTGOING;
        match self {
            Fanout::New => (method | libc::PACKET_FANOUT_FLAG_UNIQUEID as i32) << 16,
            Fanout::Join(group) => group as i32 | method << 16,
        }
    }
}

/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING` of linux/if_packet.h: a group has its own setting.
const IGNORE_OUTGOING: i32 = 0x4000;

/// A place in a group.
#[derive(Clone)]
pub(super) struct Member {
    group: Arc<Group>,
    place: usize,
}

struct Group {
    interface: String,
    options: PacketOptions,
    workers: usize,
    /// Ports of an interface that was created again, which their workers have not taken yet. Only the
    /// helper waits for this lock.
    reopened: Mutex<Vec<Option<PacketPort>>>,
}

/// Opens as many ports as there are workers, which share what arrives.
///
/// # Errors
/// As for [`PacketPort::open`].
pub(super) fn open_group(
    namespace: &Namespace,
    interface: &str,
    workers: usize,
    options: PacketOptions,
) -> Result<Vec<PacketPort>, PacketError> {
    let group = Arc::new(Group {
        interface: interface.to_owned(),
        options,
        workers,
        reopened: Mutex::default(),
    });
    let mut ports = group.open(namespace)?;
    for (place, port) in ports.iter_mut().enumerate() {
        let group = Arc::clone(&group);
        port.member = Some(Member { group, place });
    }
    Ok(ports)
}

impl Group {
    fn open(&self, namespace: &Namespace) -> Result<Vec<PacketPort>, PacketError> {
        let open = |fanout| {
            let options = PacketOptions {
                fanout: Some(fanout),
                ..self.options
            };
            PacketPort::open(namespace, &self.interface, options)
        };
        let first = open(Fanout::New)?;
        let group = first.group().map_err(|source| PacketError::Kernel {
            step: "read the fanout group",
            interface: self.interface.clone(),
            namespace: namespace.name().to_owned(),
            source,
        })?;
        let mut ports = vec![first];
        for _ in 1..self.workers {
            let mut port = open(Fanout::Join(group))?;
            // If one member leaves the interface, all do: a new group beside this one would get every frame
            // a second time.
            port.hold = ports[0].hold.clone();
            ports.push(port);
        }
        Ok(ports)
    }
}

impl Member {
    /// Returns this member's port of an interface that was created again; `None` while it is down. Opens
    /// those of all members unless another member has done it.
    pub(super) fn reopen(
        &self,
        namespace: &Namespace,
        link: &Interface,
    ) -> Result<Option<PacketPort>, PacketError> {
        // Older kernels add no socket to a group while the interface is down.
        if !link.is_up {
            return Ok(None);
        }
        let reopened = self.group.reopened.lock();
        let mut reopened = reopened.unwrap_or_else(PoisonError::into_inner);
        let waits = reopened
            .get_mut(self.place)
            .and_then(Option::take)
            .filter(|port| port.index == link.index && is_bound(&port.socket, link.index))
            .filter(|port| !port.hold.is_lost());
        if waits.is_some() {
            return Ok(waits);
        }
        let ports = self.group.open(namespace)?;
        *reopened = ports.into_iter().map(Some).collect();
        Ok(reopened[self.place].take())
    }
}
