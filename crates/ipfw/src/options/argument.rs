//! The argument of an option: its canonical text, and the resolution of names in it.

use std::fmt::{self, Display as _};

use crate::matching::{Hosts, Interfaces, LookupTest, Names, PortRanges};
use crate::words::address::{Address, Ranges};
use crate::words::argument::{
    Bits, Codepoints, EtherTypes, FragmentTest, IcmpTypes, InterfaceTest, Lookup, Nothing, Ports,
    Protocol,
};

/// An argument as text. `Display` writes the argument alone.
pub(crate) trait Written: fmt::Display {
    /// The suffix that the argument adds to the option's word: `6` in `src-ip6`.
    fn suffix(&self) -> &'static str {
        ""
    }

    /// Whether the option's word stands alone.
    fn is_empty(&self) -> bool {
        false
    }

    /// Writes the argument, with names of services for numbers of ports if `has_names` (`-N`).
    fn write(&self, f: &mut fmt::Formatter<'_>, has_names: bool) -> fmt::Result {
        let _ = has_names;
        self.fmt(f)
    }
}

/// The argument of an option.
pub(crate) trait Argument: Written {
    /// The argument as packets are tested against it.
    type Ready: Clone + fmt::Debug;

    /// Resolves the names of tables and interfaces.
    fn ready(&self, names: &mut Names<'_>) -> Self::Ready;
}

/// Arguments without names are tested as they are written.
macro_rules! without_names {
    ($($Type:ty),+ $(,)?) => { $(
        impl Argument for $Type {
            type Ready = $Type;

            fn ready(&self, _: &mut Names<'_>) -> $Type {
                self.clone()
            }
        }
    )+ };
}

without_names!(
    u8,
    Bits,
    Codepoints,
    EtherTypes,
    FragmentTest,
    IcmpTypes,
    Nothing,
    Protocol,
    Ranges
);

impl Written for u8 {}
impl Written for Bits {}
impl Written for Codepoints {}
impl Written for IcmpTypes {}
impl Written for InterfaceTest {}
impl Written for Lookup {}
impl Written for Protocol {}
impl Written for Ranges {}

impl Written for Nothing {
    fn is_empty(&self) -> bool {
        true
    }
}

impl Written for FragmentTest {
    fn is_empty(&self) -> bool {
        self.flags.is_none()
    }
}

impl Written for Address {
    fn suffix(&self) -> &'static str {
        if self.is_ipv6() { "6" } else { "" }
    }
}

impl Written for Ports {
    fn write(&self, f: &mut fmt::Formatter<'_>, has_names: bool) -> fmt::Result {
        if has_names {
            self.write_names(f)
        } else {
            self.fmt(f)
        }
    }
}

impl Written for EtherTypes {
    fn write(&self, f: &mut fmt::Formatter<'_>, has_names: bool) -> fmt::Result {
        if has_names {
            self.write_names(f)
        } else {
            self.fmt(f)
        }
    }
}

impl Argument for Address {
    type Ready = Hosts;

    fn ready(&self, names: &mut Names<'_>) -> Hosts {
        Hosts::new(self, names)
    }
}

impl Argument for Ports {
    type Ready = PortRanges;

    fn ready(&self, _: &mut Names<'_>) -> PortRanges {
        PortRanges::new(self)
    }
}

impl Argument for InterfaceTest {
    type Ready = Interfaces;

    fn ready(&self, names: &mut Names<'_>) -> Interfaces {
        Interfaces::new(self, names)
    }
}

impl Argument for Lookup {
    type Ready = LookupTest;

    fn ready(&self, names: &mut Names<'_>) -> LookupTest {
        LookupTest::new(self, names)
    }
}
