//! Pairs of virtual Ethernet interfaces.

use super::link::check_name;
use super::{LinkError, Mac, Namespace};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};
use std::os::fd::{AsFd, AsRawFd};

/// One end of a veth pair that is to be created.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// The namespace of the end.
    pub namespace: &'a Namespace,
    /// The name of the end in its namespace (1 to 15 bytes).
    pub name: &'a str,
    /// The Ethernet address of the end.
    pub mac: Mac,
}

/// Creates a pair of interfaces connected to each other, both down.
///
/// # Errors
/// One of the names is in use or invalid, or the process lacks the privilege.
pub fn create_veth(first: VethEnd<'_>, second: VethEnd<'_>) -> Result<(), LinkError> {
    create_veth_with_queues(first, second, None)
}

/// Like [`create_veth`], with this number of queues in each direction of both interfaces [default: the
/// kernel's, of which one is used].
///
/// # Errors
/// As for [`create_veth`]; also if the kernel refuses the number.
pub fn create_veth_with_queues(
    first: VethEnd<'_>,
    second: VethEnd<'_>,
    queues: Option<u32>,
) -> Result<(), LinkError> {
    let attributes = |end: VethEnd<'_>| -> Result<Vec<LinkAttribute>, LinkError> {
        check_name(end.name)?;
        let mut attributes = vec![
            LinkAttribute::IfName(end.name.to_owned()),
            LinkAttribute::Address(end.mac.0.to_vec()),
            LinkAttribute::NetNsFd(end.namespace.as_fd().as_raw_fd()),
        ];
        if let Some(queues) = queues {
            attributes.push(LinkAttribute::NumTxQueues(queues));
            attributes.push(LinkAttribute::NumRxQueues(queues));
        }
        Ok(attributes)
    };
    let mut peer = LinkMessage::default();
    peer.attributes = attributes(second)?;
    let mut message = LinkMessage::default();
    message.attributes = attributes(first)?;
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    let what = format!("create the pair {:?}, {:?}", first.name, second.name);
    first.namespace.links()?.request(
        RouteNetlinkMessage::NewLink(message),
        NLM_F_CREATE | NLM_F_EXCL,
        &what,
    )
}
