//! A capture of two flows, and a scenario that sends it. The tests of both backends use it too.

/// Builds a pcap file of IPv4 packets without link header (type 101). Each packet is given by its
/// microseconds, source port, bytes and ECN. The file has only the headers, as with a snap length
/// of 28.
pub fn capture(packets: &[(u32, u16, u16, u8)]) -> Vec<u8> {
    // draft-ietf-opsawg-pcap section 4: magic, version 2.4, two reserved words, snap length, link type.
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0002_0004_u32.rotate_left(16), 0, 0, 28, 101] {
        file.extend(u32::to_le_bytes(word));
    }
    for &(us, port, bytes, ecn) in packets {
        for word in [1000 + us / 1_000_000, us % 1_000_000, 28, u32::from(bytes)] {
            file.extend(word.to_le_bytes());
        }
        let [high, low] = bytes.to_be_bytes();
        file.extend([0x45, ecn, high, low, 0, 0, 0, 0, 64, 17, 0, 0]);
        file.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        file.extend(port.to_be_bytes());
        file.extend([0, 53, 0, 0, 0, 0]);
    }
    file
}

pub const SCENARIO: &str = r#"
duration = "1s"
[link]
rate = "1Mbit/s"
rtt = "20ms"
[measure]
warmup = "0s"
window = "100ms"
step = "100ms"
[[flow]]
type = "pcap"
name = "old"
file = "old.pcap"
"#;

/// Two flows of two packets. One packet was joined by an offload, and one is too short for the
/// measurement.
pub const PACKETS: [(u32, u16, u16, u8); 4] = [
    (0, 1, 1028, 2),
    (100_000, 2, 40, 0),
    (100_000, 1, 4000, 3),
    (300_000, 2, 528, 1),
];
