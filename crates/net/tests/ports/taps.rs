//! Packets that only a TAP device can be made to deliver.

use super::*;

/// A TAP device, and a port that receives what is written to it.
fn tap() -> (Namespace, TunPort, PacketPort) {
    require_privilege();
    let namespace = Namespace::create("tap").unwrap();
    namespace.silence_ipv6().unwrap();
    let options = TunOptions {
        link: Link::Ethernet,
        ..TunOptions::default()
    };
    let tap = TunPort::create(&namespace, "tap0", options).unwrap();
    namespace.links().unwrap().set_up("tap0", true).unwrap();
    let port = PacketPort::open(&namespace, "tap0", PacketOptions::default()).unwrap();
    (namespace, tap, port)
}

/// The kernel cannot describe a super-packet of UDP fragments to a packet socket, and the ring gets
/// stuck at such a packet.
#[test]
fn a_packet_that_the_kernel_cannot_describe_costs_no_other() {
    let (_namespace, mut tap, mut port) = tap();
    let size = PoolSize {
        slots: 128,
        large: 64,
    };
    let mut pool = Pool::new(size).unwrap();
    let mut send = |pool: &mut Pool, frame: &[u8], vnet: VnetHeader| {
        let slot = put(pool, frame);
        pool.set_vnet(slot, vnet);
        assert_eq!(tap.transmit(pool, &[slot]), 1);
        assert_eq!(tap.counters().lost_total(), 0);
    };
    let plain = frame(&[], 100);
    send(&mut pool, &plain, VnetHeader::default());
    let slots = receive(&mut port, &mut pool, 1);
    assert_eq!(take_first(&mut pool, slots), Some(plain.clone()));
    let fragments = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type: 3,
        hdr_len: 42,
        gso_size: 504,
        csum_start: 34,
        csum_offset: 6,
    };
    let udp = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9)
        .udp(9, 9);
    let mut packet = Vec::new();
    udp.write(&mut packet, &[7; 1400]).unwrap();
    send(&mut pool, &packet, fragments);
    // The interface is checked ten times a second.
    let arrived = (0..100).find_map(|_| {
        send(&mut pool, &plain, VnetHeader::default());
        let slots = receive_for(&mut port, &mut pool, 1, Span::from_ms(20));
        take_first(&mut pool, slots)
    });
    assert_eq!(arrived, Some(plain.clone()));
    // Now it affects no other frame.
    send(&mut pool, &packet, fragments);
    send(&mut pool, &plain, VnetHeader::default());
    let slots = receive(&mut port, &mut pool, 1);
    assert_eq!(take_first(&mut pool, slots), Some(plain));
    assert!(port.counters().lost(Loss::KernelQueue) >= 2);
    port.release(&mut pool);
    assert_eq!((pool.available(), pool.available_large()), (128, 64));
}

/// With BIG TCP, the kernel has packets above 65535 bytes.
#[test]
fn a_packet_of_big_tcp_is_counted_and_costs_no_other() {
    let (_namespace, tap, mut port) = tap();
    let size = PoolSize {
        slots: 128,
        large: 64,
    };
    let mut pool = Pool::new(size).unwrap();
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        // VIRTIO_NET_HDR_GSO_TCPV6 of linux/virtio_net.h.
        gso_type: 4,
        hdr_len: 74,
        gso_size: 1400,
        csum_start: 54,
        csum_offset: 16,
    };
    let send = |frame: &[u8], vnet: VnetHeader| {
        let bytes = [&vnet.to_bytes(), frame].concat();
        assert_eq!(rustix::io::write(tap.as_fd(), &bytes), Ok(bytes.len()));
    };
    // `length` without the Ethernet header.
    let super_packet = |length: usize| {
        let mut packet = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv6([1; 16], [2; 16], 64)
            .tcp(1000, 80, 1, 500)
            .ack(1)
            .write(&mut packet, &[7; 1400])
            .unwrap();
        packet.resize(14 + length, 7);
        // RFC 2675 section 2: the length of the payload is 0 where it does not fit.
        let payload = u16::try_from(length - 40).unwrap_or(0);
        packet[18..20].copy_from_slice(&payload.to_be_bytes());
        packet
    };
    // A slot of 2048 bytes less 64 before the frame, and a large slot of 65536.
    let most = 2048 - 64 + 65_536;
    assert_eq!(LONGEST, most);
    let longest = super_packet(most - 14);
    for long in [most + 1, 100_000] {
        send(&super_packet(long - 14), vnet);
        send(&longest, vnet);
        for slot in receive(&mut port, &mut pool, 1) {
            let whole = [pool.head(slot), pool.tail(slot)].concat();
            assert!(whole == longest, "{} bytes arrived", whole.len());
            pool.free(slot);
        }
    }
    assert_eq!(port.counters().received, 2);
    let counters = port.counters();
    assert_eq!(
        (counters.lost(Loss::Oversize), counters.lost_total()),
        (2, 2),
        "{counters:?}"
    );
    port.release(&mut pool);
    assert_eq!((pool.available(), pool.available_large()), (128, 64));
}
