//! `show` in dummynet's exact layout. Tools read it by columns, so spaces at line ends matter.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use super::policy::capital;
use super::{
    FlowState, FlowsetState, LinkState, PipeState, QueueState, SchedulerLine, SchedulerState,
    Snapshot,
};
use crate::flow::{Mask, v6_mask};
use crate::words::names;

/// Writes the objects of one command.
pub(crate) struct Writer {
    out: String,
    /// Whether the header of the flows was written; it precedes the first flow of each family only.
    has_header: [bool; 2],
    /// `-v`: bursts as plain numbers.
    is_verbose: bool,
}

impl Writer {
    pub fn new(is_verbose: bool) -> Self {
        Writer {
            out: String::new(),
            has_header: [false; 2],
            is_verbose,
        }
    }

    /// Writes everything except the rules.
    pub fn objects(mut self, snapshot: &Snapshot) -> String {
        snapshot.pipes.iter().for_each(|pipe| self.pipe(pipe));
        let schedulers = snapshot.schedulers.iter();
        schedulers.for_each(|scheduler| self.scheduler_object(scheduler));
        snapshot.queues.iter().for_each(|queue| self.queue(queue));
        self.out
    }

    fn pipe(&mut self, pipe: &PipeState) {
        self.link(&pipe.link);
        self.flowset(&pipe.flowset, pipe.flowset.active);
        self.scheduler(&pipe.scheduler);
        self.flows(&pipe.flows);
    }

    fn scheduler_object(&mut self, scheduler: &SchedulerState) {
        self.link(&scheduler.link);
        if let Some(flowset) = &scheduler.flowset {
            self.flowset(flowset, flowset.active);
        }
        self.scheduler(&scheduler.scheduler);
        if !scheduler.children.is_empty() {
            self.out.push_str("   Children flowsets: ");
            for child in &scheduler.children {
                self.put(format_args!("{child} "));
            }
            self.out.push('\n');
        }
        self.flows(&scheduler.flows);
    }

    fn queue(&mut self, queue: &QueueState) {
        // Idle flows keep their rows, and dummynet counts rows.
        self.flowset(&queue.flowset, queue.flows.len());
        self.flows(&queue.flows);
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.out.write_fmt(text).expect("a string takes any text");
    }

    fn link(&mut self, link: &LinkState) {
        let burst = if self.is_verbose {
            link.burst_bytes.to_string()
        } else {
            humanised(link.burst_bytes)
        };
        self.put(format_args!(
            "{:05}: {} {:>4} ms burst {burst}\n",
            link.number,
            bandwidth(link.rate_bps),
            milliseconds(link.delay_ns),
        ));
        if let Some(profile) = &link.profile {
            self.put(format_args!(
                "\t profile: name \"{}\" loss {:.6} samples {}\n",
                profile.name, profile.loss_level, profile.samples
            ));
        }
        if !link.effects.is_empty() {
            self.put(format_args!("\t link: {}\n", link.effects.join(" ")));
        }
    }

    fn flowset(&mut self, flowset: &FlowsetState, flows: usize) {
        let size = match (flowset.limit_bytes, flowset.limit_packets) {
            (Some(bytes), _) if bytes >= 8192 => format!("{} KB", bytes / 1024),
            (Some(bytes), _) => format!("{bytes} B"),
            (None, slots) => format!("{:3} sl.", slots.unwrap_or(0)),
        };
        let loss: Vec<String> = flowset.loss.iter().map(|p| format!("{p:.6}")).collect();
        // dummynet writes no space in front of the loss.
        let loss = if loss.is_empty() {
            String::new()
        } else {
            format!("plr {}", loss.join(","))
        };
        self.put(format_args!(
            "q{:05} {size}{loss} {} flows ({} buckets) sched {} weight {} lmax {} pri {} {}\n",
            flowset.number,
            flows,
            flowset.buckets,
            flowset.scheduler,
            flowset.weight,
            flowset.max_len,
            flowset.priority,
            flowset.policy,
        ));
        self.mask(&flowset.mask_bits);
    }

    fn scheduler(&mut self, scheduler: &SchedulerLine) {
        let has_mask = !scheduler.mask_bits.is_empty();
        self.put(format_args!(
            " sched {} type {} flags 0x{:x} {} buckets {} active\n",
            scheduler.number,
            capital(scheduler.kind),
            u8::from(has_mask),
            scheduler.buckets,
            scheduler.active,
        ));
        if !scheduler.parameters.is_empty() {
            self.put(format_args!("{}\n", scheduler.parameters));
        }
        self.mask(&scheduler.mask_bits);
    }

    fn mask(&mut self, mask: &Mask) {
        if mask.is_empty() {
            return;
        }
        let queue = if mask.queue { "queue," } else { "" };
        if mask.is_v6_only() {
            let address = |len| Ipv6Addr::from_bits(v6_mask(len));
            self.put(format_args!(
                "\n        mask: {queue}proto: 0x{:02x}, flow_id: 0x{:08x},  {}/0x{:04x} -> {}/0x{:04x}\n",
                mask.proto,
                mask.flow_label,
                address(mask.src_v6_len),
                mask.src_port,
                address(mask.dst_v6_len),
                mask.dst_port,
            ));
        } else {
            self.put(format_args!(
                "    mask: {queue} 0x{:02x} 0x{:08x}/0x{:04x} -> 0x{:08x}/0x{:04x}\n",
                mask.proto, mask.src, mask.src_port, mask.dst, mask.dst_port,
            ));
        }
    }

    fn flows(&mut self, flows: &[FlowState]) {
        for flow in flows {
            let is_v6 = flow.src.is_ipv6();
            if !std::mem::replace(&mut self.has_header[usize::from(is_v6)], true) {
                self.out.push_str(if is_v6 { HEADER_V6 } else { HEADER });
            }
            self.flow(flow);
        }
    }

    fn flow(&mut self, flow: &FlowState) {
        let proto = match flow.proto {
            0 => "ip".to_string(),
            n => names::protocol_name(n).map_or_else(|| n.to_string(), str::to_string),
        };
        let extra = if flow.has_extra { '*' } else { ' ' };
        let ends = |width: usize| {
            let end = |address: IpAddr, port| format!("{:>width$}/{port:<5}", address.to_string());
            format!(
                "{} {}",
                end(flow.src, flow.src_port),
                end(flow.dst, flow.dst_port)
            )
        };
        if flow.src.is_ipv6() {
            self.put(format_args!(
                "{:3}{extra}{proto:<10} 0x{:07x} {}",
                flow.bucket,
                flow.flow_label,
                ends(39)
            ));
        } else {
            self.put(format_args!(
                "{:3}{extra}{proto:<4} {}",
                flow.bucket,
                ends(15)
            ));
        }
        self.put(format_args!(
            " {:4} {:8} {:2} {:4} {:3}\n",
            flow.counters.packets,
            flow.counters.bytes,
            flow.queued_packets,
            flow.queued_bytes,
            flow.counters.dropped,
        ));
    }
}

const HEADER: &str =
    "BKT Prot ___Source IP/port____ ____Dest. IP/port____ Tot_pkt/bytes Pkt/Byte Drp\n";
const HEADER_V6: &str = "BKT ___Prot___ _flow-id_ \
     ______________Source IPv6/port_______________ \
     _______________Dest. IPv6/port_______________ \
     Tot_pkt/bytes Pkt/Byte Drp\n";

/// Formats a bandwidth, 14 characters wide.
fn bandwidth(bps: u64) -> String {
    let (value, unit) = match bps {
        0 => return "unlimited     ".to_string(),
        1_000_000_000.. => (bps as f64 / 1e9, " Gbit/s"),
        1_000_000.. => (bps as f64 / 1e6, " Mbit/s"),
        1_000.. => (bps as f64 / 1e3, " Kbit/s"),
        _ => (bps as f64, " bit/s "),
    };
    format!("{value:7.3}{unit}")
}

/// Formats milliseconds: whole ones as in dummynet, others with decimals.
fn milliseconds(ns: u64) -> String {
    if ns.is_multiple_of(1_000_000) {
        (ns / 1_000_000).to_string()
    } else {
        let text = format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
        text.trim_end_matches('0').to_string()
    }
}

/// Formats a number followed by a space; from ten digits on it is divided by 1024 until it is
/// shorter.
fn humanised(n: u64) -> String {
    let (mut n, mut unit) = (n, 0);
    while n >= 1_000_000_000 {
        n /= 1024;
        unit += 1;
    }
    format!("{n} {}", ["", "K", "M", "G"][unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_fourteen_wide() {
        for (bps, text) in [
            (0, "unlimited     "),
            (10_000_000, " 10.000 Mbit/s"),
            (82_000_000, " 82.000 Mbit/s"),
            (64_000, " 64.000 Kbit/s"),
            (9, "  9.000 bit/s "),
            (2_500_000_000, "  2.500 Gbit/s"),
        ] {
            assert_eq!(bandwidth(bps), text);
            assert_eq!(text.len(), 14);
        }
    }

    #[test]
    fn bursts_and_delays_have_their_forms() {
        assert_eq!(humanised(0), "0 ");
        assert_eq!(humanised(999_999_999), "999999999 ");
        assert_eq!(humanised(10 << 30), "10485760 K");
        assert_eq!(milliseconds(20_000_000), "20");
        assert_eq!(milliseconds(1_500_000), "1.5");
        assert_eq!(milliseconds(1), "0.000001");
    }
}
