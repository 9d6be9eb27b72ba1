//! The memory of packets on their way between two workers: it comes back, and its counters are right.

use super::{model, way};
use loom::thread;

/// A frame's memory, of which only the size matters.
#[derive(Default)]
struct Memory(usize);

impl way::Memory for Memory {
    fn capacity(&self) -> usize {
        self.0
    }
}

/// Sends packets of these sizes while the other worker looks as often for one. Then that worker receives the rest,
/// and the sender collects.
fn exchange(room: usize, most_bytes: usize, sizes: &'static [usize]) {
    model(move || {
        let (mut outgoing, mut incoming) = way::way::<usize, Memory>(room, most_bytes);
        let receiver = thread::spawn(move || {
            let mut received = Vec::new();
            for _ in sizes {
                incoming.receive(|number, frame| received.push((number, frame.0)));
            }
            (incoming, received)
        });
        let mut sent = Vec::new();
        for (number, size) in sizes.iter().enumerate() {
            // Memory grows, as that of a vector.
            let mut memory = 0;
            let is_sent = outgoing.send(number, |frame: &mut Memory| {
                frame.0 = frame.0.max(*size);
                memory = frame.0;
            });
            let (_, lent, kept, _) = outgoing.books();
            let largest = sizes.iter().max().unwrap();
            assert!(lent < most_bytes + largest, "{lent} bytes are on their way");
            assert!(kept < most_bytes + largest, "{kept} bytes are kept");
            assert_eq!(outgoing.take_news(), is_sent);
            if is_sent {
                sent.push((number, memory));
            }
        }
        let (mut incoming, mut received) = receiver.join().unwrap();
        while incoming.receive(|number, frame| received.push((number, frame.0))) {}

        // Each packet arrives once, in order, in the memory that it was sent in.
        assert_eq!(received, sent);
        outgoing.collect();
        let (_, lent, kept, spare) = outgoing.books();
        assert_eq!(lent, 0, "all memory is back");
        assert_eq!(kept, spare.iter().sum::<usize>());
        // In the queue, with the receiver, and the one that is being sent.
        assert!(spare.len() <= room + 2);
    });
}

/// The queue of packets is full: what is refused keeps its memory, and each return finds room.
#[test]
fn memory_comes_back_through_a_queue_that_is_full() {
    exchange(1, 100, &[1, 2, 3]);
}

/// The bytes on their way are limited.
#[test]
fn no_more_memory_is_lent_than_the_limit_and_a_frame() {
    exchange(3, 2, &[1, 2, 1]);
}
