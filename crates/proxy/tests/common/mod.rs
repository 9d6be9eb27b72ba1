//! Properties that hold for any bytes that a program sends to the proxy; the fuzz target `proxy`
//! checks them.

use sluice_proxy::parse::{self, Body, Kind, Socks, Step};

/// Gives input to each parser. The first byte determines whether there is a token, and where the
/// input is cut.
pub fn conversation(bytes: &[u8]) {
    let Some((how, input)) = bytes.split_first() else {
        return;
    };
    let token = (how & 1 == 1).then_some("0123456789abcdef");
    let cut = usize::from(how >> 1).min(input.len());
    socks(input, cut, token);
    http(input, cut, token);
    let whole = parse::control(input, token);
    if whole.is_ok() && matches!(parse::control(&input[..cut], token), Ok(Some(_))) {
        assert!(
            matches!(whole, Ok(Some(_))),
            "more bytes do not undo a request"
        );
    }
}

/// The answers do not depend on how the input is divided.
fn socks(input: &[u8], cut: usize, token: Option<&str>) {
    let talk = |stops: &[usize]| {
        let (mut socks, mut from, mut steps) = (Socks::new(), 0, Vec::new());
        for stop in stops {
            loop {
                let (used, step) = socks.next(&input[from..*stop], token);
                from += used;
                assert!(from <= *stop);
                match step {
                    Step::Incomplete => break,
                    Step::Answer(answer) => {
                        assert!(used > 0, "each answer uses a message");
                        steps.push(Step::Answer(answer));
                    }
                    end => {
                        steps.push(end);
                        return (steps, from);
                    }
                }
            }
        }
        (steps, from)
    };
    assert_eq!(talk(&[input.len()]), talk(&[cut, input.len()]));
}

fn http(input: &[u8], cut: usize, token: Option<&str>) {
    let Ok(Some((used, request))) = parse::http(input, token) else {
        return;
    };
    assert!(used <= input.len());
    if cut < used {
        assert!(matches!(parse::http(&input[..cut], token), Ok(None)));
    }
    let Kind::Plain { head, mut body, .. } = request.kind else {
        return;
    };
    // A server reads one request with one host, and no header meant for the proxy.
    let mut headers = [httparse::EMPTY_HEADER; 256];
    let mut passed = httparse::Request::new(&mut headers);
    let status = passed.parse(&head).expect("a forwarded head can be read");
    assert_eq!(status, httparse::Status::Complete(head.len()));
    let named = |name: &str| {
        let headers = passed.headers.iter();
        headers
            .filter(|header| header.name.eq_ignore_ascii_case(name))
            .count()
    };
    assert_eq!(named("host"), 1);
    assert_eq!(named("proxy-authorization"), 0);
    let rest = &input[used..];
    let at_once = pass(&mut body.clone(), rest, rest.len());
    assert_eq!(pass(&mut body, rest, cut.max(1)), at_once);
}

/// Returns the end of a body, if it is well formed, and whether the body is complete.
fn pass(body: &mut Body, input: &[u8], step: usize) -> Option<(usize, bool)> {
    let mut at = 0;
    while at < input.len() && !body.has_ended() {
        let to = (at + step.max(1)).min(input.len());
        let used = body.pass(&input[at..to]).ok()?;
        assert!(used <= to - at);
        at += used;
    }
    Some((at, body.has_ended()))
}
