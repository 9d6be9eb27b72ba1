//! Every AQM that can mark does so, and marks only what RFC 3168 section 5 allows.

use sluice_core::param::Kind;
use sluice_core::registry::{self, Form, Spec};
use sluice_core::{Cx, Discipline, DropReason, Ecn, Event, Packet, Rng, Sink, Span, Time};

/// The fate of packets of each codepoint.
#[derive(Default)]
struct Tally {
    marked: [u32; 4],
    dropped: [u32; 4],
}

/// Returns the codepoint of a packet, which its slot's low bits encode.
fn codepoint(packet: &Packet) -> usize {
    (packet.slot % 4) as usize
}

impl Sink for Tally {
    fn discard(&mut self, _now: Time, packet: Packet, reason: DropReason) {
        if reason == DropReason::Congestion {
            self.dropped[codepoint(&packet)] += 1;
        }
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, _now: Time, event: &Event<'_>) {
        if let Event::Mark { packet } = event {
            self.marked[codepoint(packet)] += 1;
        }
    }
}

/// Twenty seconds of 2 % overload on a link of 12 Mbit/s.
fn overload(mut queue: Box<dyn Discipline>) -> Tally {
    let (mut tally, mut rng) = (Tally::default(), Rng::from_seed(1));
    let mut slot = 0;
    for i in 0..20_000u64 {
        let now = Time::ZERO + Span::from_ms(i);
        for _ in 0..if i % 50 == 0 { 2 } else { 1 } {
            let mut packet = Packet::new(slot, 1500);
            packet.ecn = Ecn::from_bits(slot as u8);
            packet.arrival = now;
            // Not a multiple of the codepoints' period, so that no decision always meets the same
            // codepoint.
            slot += 1 + u32::from(i % 7 == 0);
            queue.enqueue(packet, &mut Cx::new(now, &mut rng, &mut tally));
        }
        while let Some(due) = queue.next_timer().filter(|due| *due <= now) {
            queue.on_timer(&mut Cx::new(due, &mut rng, &mut tally));
        }
        let _ = queue.dequeue(&mut Cx::new(now, &mut rng, &mut tally));
    }
    tally
}

#[test]
fn aqms_mark_capable_packets_only_and_drop_the_others() {
    let mut marking = Vec::new();
    for algorithm in registry::algorithms().filter(|a| a.form == Form::Aqm) {
        let has_ecn = algorithm
            .params()
            .any(|decl| decl.name == "ecn" && decl.kind == Kind::Flag);
        let words = match algorithm.name {
            // With a limit of a thousand packets this load would overflow late.
            "blue" => "blue limit 40 freeze_time 10ms ecn".to_string(),
            name if has_ecn => format!("{name} ecn"),
            name => name.to_string(),
        };
        let queue = Spec::parse(&words).expect("the words are right").build();
        let tally = overload(queue.expect("a parsed queue is built"));
        let [not_ect, capable @ ..] = tally.marked;
        assert_eq!(
            not_ect, 0,
            "`{words}` marks packets that must not be marked"
        );
        if has_ecn || algorithm.name == "step" {
            assert!(capable.iter().all(|n| *n > 0), "`{words}`: {capable:?}");
            marking.push(algorithm.name);
        }
        if has_ecn {
            assert!(tally.dropped[0] > 0, "`{words}` spares what it cannot mark");
        } else {
            assert_eq!(tally.dropped, [0; 4], "`{words}` drops nothing by itself");
        }
    }
    assert!(marking.len() >= 8, "only {marking:?} can mark");
}
