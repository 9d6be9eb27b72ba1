//! Changed replies of rtnetlink are read or refused.

use super::{RouteNetlinkMessage, read_interface, replies};
use crate::mutate;

/// The corpus is what a kernel answers about a pair, a bridge, addresses and routes.
#[test]
fn changed_replies_are_read_or_refused() {
    let corpus = mutate::corpus("fuzz/corpus/netlink", "");
    let names = mutate::check("netlink", &corpus, Vec::new, |names, input| {
        let refused = replies(input, 1, &mut |reply| {
            if let RouteNetlinkMessage::NewLink(link) = reply {
                names.push(read_interface(link).name);
            }
        })
        .err();
        assert!(refused.is_none_or(|error| !error.to_string().is_empty()));
        names.truncate(16);
    });
    let names = names.concat();
    assert!(names.contains(&"left".to_owned()), "{names:?}");
}
