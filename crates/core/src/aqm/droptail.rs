//! `droptail`: signals nothing; a full queue refuses the arriving packet.
//!
//! The baseline of every comparison, and the behaviour of a queue without an AQM. It has no
//! deviations and no parameters of its own.

use super::{Aqm, AqmAlgorithm};
use crate::param::NoParams;

/// Never signals; a full queue refuses arrivals.
#[derive(Clone, Debug, Default)]
pub struct DropTail;

impl Aqm for DropTail {}

impl AqmAlgorithm for DropTail {
    type Params = NoParams;
    const DOC: &'static str = "no signal; a full queue refuses the arriving packet";

    fn new(_params: &NoParams) -> Self {
        DropTail
    }
}
