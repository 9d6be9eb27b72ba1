//! `headdrop`: signals nothing; a full queue drops its oldest packet to make room for the new one.
//!
//! The sender sees the gap as soon as the next packet is delivered, earlier by the delay of a full
//! queue than with tail drop (Kundel et al., "User Space Packet Schedulers", NetSys 2021). It has
//! no parameters of its own.

use super::{Aqm, AqmAlgorithm, Overflow};
use crate::param::NoParams;

/// Never signals; a full queue drops its head.
#[derive(Clone, Debug, Default)]
pub struct HeadDrop;

impl Aqm for HeadDrop {
    fn overflow(&self) -> Overflow {
        Overflow::Head
    }
}

impl AqmAlgorithm for HeadDrop {
    type Params = NoParams;
    const DOC: &'static str = "no signal; a full queue drops its oldest packet";

    fn new(_params: &NoParams) -> Self {
        HeadDrop
    }
}
