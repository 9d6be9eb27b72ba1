//! Interfaces that deliver only frames for their own addresses, although they grant promiscuous mode.

use netlink_packet_route::link::{
    InfoData, InfoKind, InfoMacVlan, InfoMacVtap, LinkInfo, MacVlanMode,
};

/// Returns whether an interface of this kind delivers only frames for its own addresses. Its device chooses
/// among several interfaces by the address (`macvlan_handle_frame` of Linux's drivers/net/macvlan.c,
/// `ipvlan_rcv_frame` of drivers/net/ipvlan/ipvlan_core.c).
pub(super) fn delivers_own_only(parts: &[LinkInfo]) -> bool {
    let is_choosing = |mode: &MacVlanMode| *mode != MacVlanMode::Passthrough;
    parts.iter().any(|part| match part {
        LinkInfo::Kind(InfoKind::IpVlan | InfoKind::IpVtap) => true,
        LinkInfo::Data(InfoData::MacVlan(data)) => data
            .iter()
            .any(|one| matches!(one, InfoMacVlan::Mode(mode) if is_choosing(mode))),
        LinkInfo::Data(InfoData::MacVtap(data)) => data
            .iter()
            .any(|one| matches!(one, InfoMacVtap::Mode(mode) if is_choosing(mode))),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_macvlan_delivers_all_frames_in_mode_passthru_only() {
        let of = |mode| {
            delivers_own_only(&[
                LinkInfo::Kind(InfoKind::MacVlan),
                LinkInfo::Data(InfoData::MacVlan(vec![InfoMacVlan::Mode(mode)])),
            ])
        };
        for mode in [
            MacVlanMode::Private,
            MacVlanMode::Vepa,
            MacVlanMode::Bridge,
            MacVlanMode::Source,
        ] {
            assert!(of(mode), "{mode:?}");
        }
        assert!(!of(MacVlanMode::Passthrough));
        let tap = InfoData::MacVtap(vec![InfoMacVtap::Mode(MacVlanMode::Bridge)]);
        assert!(delivers_own_only(&[LinkInfo::Data(tap)]));
        assert!(delivers_own_only(&[LinkInfo::Kind(InfoKind::IpVlan)]));
        assert!(!delivers_own_only(&[LinkInfo::Kind(InfoKind::Veth)]));
        assert!(!delivers_own_only(&[]));
    }
}
