//! The words of a command: how a line is split, and how numbers, names, addresses and other
//! arguments are read and written back.

pub(crate) mod address;
pub(crate) mod argument;
pub(crate) mod error;
pub(crate) mod names;
pub(crate) mod parser;
pub(crate) mod quantity;
mod shell;
pub(crate) mod token;
