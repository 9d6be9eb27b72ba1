//! The numbers of links and flows, and the two ends of a flow.

/// Number of a link in [`crate::Config::links`], or of a router: routers are numbered after the links.
pub type LinkId = usize;
/// Number of a flow in [`crate::Config::flows`].
pub type FlowId = usize;

/// One of the two ends of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The end that opens connections, or sends requests.
    #[default]
    Client,
    /// The end that answers.
    Server,
}

impl Side {
    /// The peer.
    pub const fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}
