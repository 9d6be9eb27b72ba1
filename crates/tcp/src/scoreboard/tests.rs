use super::*;
use alloc::vec::Vec;

fn board(segments: u64) -> Scoreboard {
    let mut board = Scoreboard::new(1000, 100);
    for i in 0..segments {
        board.push(100, false, Time::from_ns(i), TxState::default());
    }
    board
}

fn sack(board: &mut Scoreboard, start: u64, end: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    board.sack(start, end, |_, after| seen.push(after));
    seen
}

fn next_lost(board: &mut Scoreboard) -> u64 {
    let id = board.next_lost().unwrap();
    board.seq(id)
}

#[test]
fn repeated_and_growing_blocks_report_each_segment_once() {
    let mut board = board(100);
    assert_eq!(sack(&mut board, 1200, 1400), [1300, 1400]);
    assert_eq!(sack(&mut board, 1200, 1500), [1500]);
    assert_eq!(sack(&mut board, 1200, 1500), []);
    assert_eq!(sack(&mut board, 1700, 1800), [1800]);
    assert_eq!(sack(&mut board, 1200, 1800), [1600, 1700]);
    assert_eq!(board.sacked_bytes, 600);
    assert_eq!(board.in_flight(), 10_000 - 600);
}

#[test]
fn a_block_that_cuts_segments_marks_only_whole_ones() {
    let mut board = board(10);
    assert_eq!(sack(&mut board, 1250, 1650), [1400, 1500, 1600]);
}

#[test]
fn the_latest_overtaken_segment_is_neither_sacked_nor_later() {
    let mut board = Scoreboard::new(0, 100);
    for i in 1..=5 {
        board.push(100, false, Time::from_ns(i), TxState::default());
    }
    // The fourth segment has arrived. It has overtaken the first three, but not the fifth.
    let is_overtaken = |sent_at: Time, end: u64| (sent_at, end) < (Time::from_ns(4), 400);
    board.sack(300, 400, |_, _| {});
    assert_eq!(board.latest_overtaken(is_overtaken), Time::from_ns(3));
    board.sack(200, 300, |_, _| {});
    assert_eq!(board.latest_overtaken(is_overtaken), Time::from_ns(2));
}

#[test]
fn the_third_sacked_segment_above_makes_a_loss() {
    let mut board = board(10);
    sack(&mut board, 1100, 1300);
    assert_eq!(board.mark_lost_by_dup_thresh(), 0);
    sack(&mut board, 1400, 1500);
    // 1000..1100 has three SACKed above it, 1300..1400 one.
    assert_eq!(board.mark_lost_by_dup_thresh(), 100);
    // RFC 6675 pipe: 1000 sent - 300 SACKed - 100 lost
    assert_eq!(board.in_flight(), 600);
    let id = board.next_lost().unwrap();
    assert_eq!(board.seq(id), 1000);
    board.on_retransmit(id, Time::from_ns(50), TxState::default());
    assert_eq!(board.in_flight(), 700);
    assert_eq!(board.next_lost(), None);
}

#[test]
fn a_lost_retransmission_is_queued_again_before_later_losses() {
    let mut board = board(10);
    sack(&mut board, 1300, 1600);
    assert_eq!(board.mark_lost_by_dup_thresh(), 300);
    let id = board.next_lost().unwrap();
    board.on_retransmit(id, Time::from_ns(50), TxState::default());
    assert_eq!(next_lost(&mut board), 1100);
    // First transmissions are not lost, the retransmission is.
    let marked = board.mark_lost_while(|entry, _| entry.was_retransmitted());
    assert_eq!(marked, 100);
    assert_eq!(next_lost(&mut board), 1000);
    // 1000 sent - 300 SACKed - 300 lost
    assert_eq!(board.in_flight(), 400);
}

#[test]
fn short_segments_are_found_too() {
    let mut board = Scoreboard::new(0, 100);
    for len in [100, 7, 100, 100, 1, 1, 100] {
        board.push(len, false, Time::ZERO, TxState::default());
    }
    assert_eq!(sack(&mut board, 307, 308), [308]);
    assert_eq!(sack(&mut board, 100, 107), [107]);
}

#[test]
fn the_ring_grows_and_ids_wrap() {
    let mut board = board(0);
    board.head = u32::MAX - 5;
    board.tail = board.head;
    board.cursor = board.head;
    for i in 0..1000 {
        board.push(100, false, Time::from_ns(i), TxState::default());
    }
    assert_eq!(
        sack(&mut board, 1000 + 500 * 100, 1000 + 503 * 100).len(),
        3
    );
    assert_eq!(board.mark_lost_by_dup_thresh(), 500 * 100);
    let mut popped = 0;
    while board.pop_acked(1000 + 600 * 100).is_some() {
        popped += 1;
    }
    assert_eq!(popped, 600);
    assert_eq!(board.in_flight(), 400 * 100);
}
