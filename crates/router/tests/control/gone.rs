//! Clients that have gone before the router begins their requests.

use super::*;

/// A router that was stopped finds requests whose clients have given up.
#[test]
fn a_request_is_not_executed_once_its_client_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let turned_away = Arc::clone(orders.turned_away());
    let limits = Limits {
        grace: Duration::from_secs(20),
        ..SHORT
    };
    let _listener = Listener::open(&path, orders, limits).unwrap();
    let connect = |request: &[u8]| {
        let stream = UnixStream::connect(&path).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        (&stream).write_all(request).unwrap();
        stream
    };
    let status = |_| connect(b"{\"do\":\"status\"}\n");
    let clients: Vec<UnixStream> = (0..SHORT.clients).map(status).collect();
    let mut held = Vec::new();
    let end = Instant::now() + Duration::from_secs(20);
    while held.len() < clients.len() {
        held.extend(inbox.take());
        assert!(Instant::now() < end, "{} requests", held.len());
        thread::sleep(Duration::from_millis(1));
    }
    // All places are taken, so that nobody reads the request of this client before it has gone.
    drop(connect(
        b"{\"do\":\"commands\",\"commands\":\"pipe 1 config bw 1Mbit/s\"}\n",
    ));
    for order in held {
        order.answer.send(Answered::Status(Box::new(7)));
    }
    for client in &clients {
        assert_eq!(line(client), STATUS);
    }
    drop(clients);
    while turned_away.counts().get("gone") != Some(&1) {
        assert!(inbox.take().is_none(), "its client has gone");
        assert!(Instant::now() < end, "{:?}", turned_away.counts());
        thread::sleep(Duration::from_millis(1));
    }
    assert!(inbox.take().is_none(), "its client has gone");
    assert_eq!(turned_away.counts(), [("gone".into(), 1)].into());
}

/// `nc -N` ends its direction behind the request, and reads the reply.
#[test]
fn a_client_that_sends_nothing_more_gets_its_reply() {
    let served = Served::start();
    let mut stream = served.connect();
    stream.write_all(b"{\"do\":\"status\"}\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(line(&stream), STATUS);
}
