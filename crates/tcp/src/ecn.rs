//! The modes of explicit congestion notification.

/// The use of explicit congestion notification by an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EcnMode {
    /// Segments are sent as Not-ECT.
    #[default]
    Off,
    /// RFC 3168: ECT(0), one reaction per window, ECE until CWR.
    Classic,
    /// RFC 8257: ECT(0), ECE that follows each change of CE (§3.2).
    Dctcp,
    /// RFC 9768 feedback with ECT(1) on every segment, as L4S needs it (RFC 9331 §4).
    Accurate,
}
