//! Ports around other ports.

/// Defines the methods of [`Port`](sluice_net::port::Port) that a wrapper forwards to the port in
/// its field `$inner`: all except `receive` and `transmit`.
macro_rules! leave_to {
    ($inner:ident) => {
        fn name(&self) -> &str {
            self.$inner.name()
        }

        fn link(&self) -> sluice_wire::frame::Link {
            self.$inner.link()
        }

        fn capabilities(&self) -> sluice_net::port::Capabilities {
            self.$inner.capabilities()
        }

        fn has_waiting(&self) -> bool {
            self.$inner.has_waiting()
        }

        fn counters(&mut self) -> sluice_net::port::Counters {
            self.$inner.counters()
        }

        fn release(&mut self, pool: &mut sluice_net::port::Pool) {
            self.$inner.release(pool);
        }

        fn kept(&self) -> usize {
            self.$inner.kept()
        }

        fn looks_within(&self) -> Option<sluice_core::Span> {
            self.$inner.looks_within()
        }

        fn let_super_packets_in(&mut self, _whole: bool) {}

        fn promiscuity(&self) -> sluice_net::port::Promiscuity {
            self.$inner.promiscuity()
        }

        fn attach_error(&self) -> Option<String> {
            self.$inner.attach_error()
        }

        fn playback(&mut self) -> Option<&mut dyn sluice_net::port::registry::Playback> {
            self.$inner.playback()
        }
    };
}

pub(crate) use leave_to;
