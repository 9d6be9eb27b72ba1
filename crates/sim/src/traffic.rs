//! Kinds of traffic: what a flow sends, and the applications at its two ends.
//!
//! A kind is one file in `traffic/` and one line in `traffic!` below. The file holds a struct with
//! the settings, which implements `Kind`, and a struct with the state of a running flow, which
//! implements `Source` and acts on the network through a `Host`. No other file of this crate
//! distinguishes kinds.

use crate::demand::{Demand, Outlook};
use crate::error::ConfigError;
use crate::ids::{FlowId, Side};
use crate::network::{Connection, ConnectionId, Network};
use crate::observe::{Completion, Observer, OpenPage};
use crate::packets::{DatagramBody, Tag};
use sluice_core::{Ecn, Rng, Time};

/// The settings of a kind of traffic.
pub(crate) trait Kind {
    /// The state of a flow of this kind.
    type Source: Source;

    /// Protocol number that the rules of a router see.
    fn protocol(&self) -> u8;

    /// Whether `flow` can be simulated with these settings.
    fn check(&self, flow: FlowId) -> Result<(), ConfigError>;

    /// Upper bounds of what a flow costs, good to a small factor.
    fn demand(&self, outlook: &Outlook<'_>) -> Demand;

    /// The source of a flow that has not started.
    fn source(&self) -> Self::Source;
}

/// A running flow: the applications at both ends, and the clock of the sending one.
pub(crate) trait Source {
    /// The flow starts.
    fn start(&mut self, host: &mut Host<'_, impl Observer>);

    /// An instant given to [`Host::wake_at`] has been reached. This is not called after the flow
    /// has stopped.
    fn wake(&mut self, host: &mut Host<'_, impl Observer>);

    /// The flow stops. Packets in flight still arrive.
    fn stop(&mut self, host: &mut Host<'_, impl Observer>) {
        let _ = host;
    }

    /// A datagram of the flow has arrived at the end that `tag` names. Only called for kinds that
    /// send datagrams.
    fn on_datagram(
        &mut self,
        tag: &Tag,
        datagram: DatagramBody,
        host: &mut Host<'_, impl Observer>,
    ) {
        let _ = (tag, datagram, host);
    }

    /// A segment has arrived at an end that is watching, or whose peer has closed. Only called for
    /// kinds that open connections.
    fn on_segment(&mut self, id: ConnectionId, host: &mut Host<'_, impl Observer>) {
        let _ = (id, host);
    }

    /// Whether [`Observer::on_tcp`] reports an open connection of the flow.
    fn is_reported(&self, connection: &Connection) -> bool {
        let _ = connection;
        false
    }

    /// Whether [`Observer::on_received`] reports the payload of the flow at the same interval.
    fn is_receiving(&self) -> bool {
        false
    }

    /// Returns the pages that are not complete, or were not when the flow stopped.
    fn open_pages(&self) -> Vec<OpenPage> {
        Vec::new()
    }
}

/// The network as the source of one flow sees it.
pub(crate) struct Host<'a, O> {
    pub network: &'a mut Network,
    pub flow: u32,
    pub observer: &'a mut O,
}

impl<O: Observer> Host<'_, O> {
    pub fn now(&self) -> Time {
        self.network.now
    }

    /// The randomness of the flow.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.network.flows[self.flow as usize].rng
    }

    /// Schedules a call of [`Source::wake`] at `at`.
    pub fn wake_at(&mut self, at: Time) {
        self.network.schedule_source(at, self.flow);
    }

    /// Sends a datagram with `payload` bytes to the server or to the client.
    pub fn send_datagram(
        &mut self,
        to_server: bool,
        payload: u32,
        ecn: Ecn,
        datagram: DatagramBody,
    ) {
        let ip_len = payload + DATAGRAM_HEADERS;
        self.network
            .send_datagram(self.flow, to_server, ip_len, ecn, datagram, self.observer);
    }

    /// Bytes of payload in a datagram that has arrived.
    pub fn payload_of(&self, tag: &Tag) -> u32 {
        tag.len - self.network.frame_overhead - DATAGRAM_HEADERS
    }

    /// Opens a connection whose `sender` sends the data that the flow measures. `is_watching`
    /// selects the ends, client and server, for which [`Source::on_segment`] is called with every
    /// segment.
    pub fn connect(
        &mut self,
        config: &sluice_tcp::Config,
        sender: Side,
        is_watching: [bool; 2],
    ) -> ConnectionId {
        self.network.connect(self.flow, config, sender, is_watching)
    }

    pub fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.network.connection(id)
    }

    /// Returns whether `id` is still a connection of this flow.
    pub fn is_open(&self, id: ConnectionId) -> bool {
        self.network.flows[self.flow as usize].open.contains(&id)
    }

    /// Sends all segments that an end of a connection may send.
    pub fn pump(&mut self, id: ConnectionId, side: Side) {
        self.network.pump(id, side == Side::Server, self.observer);
    }

    /// Counts a payload that has arrived in datagrams.
    pub fn count_received(&mut self, bytes: u32) {
        self.network.flows[self.flow as usize].totals.bytes_received += u64::from(bytes);
    }

    /// Counts a completed transfer. Returns the number of transfers completed before it.
    pub fn count_completion(&mut self) -> u64 {
        let completions = &mut self.network.flows[self.flow as usize].totals.completions;
        *completions += 1;
        *completions - 1
    }

    /// Reports the payload of the flow that has arrived.
    pub fn report_received(&mut self) {
        let flow = self.flow as usize;
        let bytes = self.network.totals(flow).bytes_received;
        self.observer.on_received(flow, self.network.now, bytes);
    }

    /// Reports a transfer, a page or an exchange that is complete.
    pub fn report(&mut self, completion: &Completion) {
        self.observer.on_complete(self.flow as usize, completion);
    }
}

/// Bytes of an IPv4 and a UDP header, and of an IPv4 and an ICMP header.
const DATAGRAM_HEADERS: u32 = 28;
/// Most payload of a datagram, so that it fits an IP packet with its headers.
const MAX_PAYLOAD: u32 = 65_000;

fn check_payload(flow: FlowId, payload: u32) -> Result<(), ConfigError> {
    if payload > MAX_PAYLOAD {
        return Err(ConfigError::Payload { flow, payload });
    }
    Ok(())
}

fn check_tcp(flow: FlowId, config: &sluice_tcp::Config) -> Result<(), ConfigError> {
    config
        .validate()
        .map_err(|error| ConfigError::Tcp { flow, error })
}

/// Declares the modules of all kinds, what a flow sends, and the source of a running flow.
macro_rules! traffic {
    ($($module:ident::$name:ident,)+) => {
        $(mod $module; pub use $module::$name;)+

        /// The traffic of a flow.
        #[derive(Clone, Debug)]
        pub enum Traffic {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name(Box<$name>),)+
        }

        $(impl From<$name> for Traffic {
            fn from(kind: $name) -> Traffic {
                Traffic::$name(Box::new(kind))
            }
        })+

        impl Traffic {
            pub(crate) fn protocol(&self) -> u8 {
                match self { $(Traffic::$name(kind) => kind.protocol(),)+ }
            }

            pub(crate) fn check(&self, flow: FlowId) -> Result<(), ConfigError> {
                match self { $(Traffic::$name(kind) => kind.check(flow),)+ }
            }

            pub(crate) fn demand(&self, outlook: &Outlook<'_>) -> Demand {
                match self { $(Traffic::$name(kind) => kind.demand(outlook),)+ }
            }

            pub(crate) fn source(&self) -> AnySource {
                match self { $(Traffic::$name(kind) => AnySource::$name(kind.source()),)+ }
            }
        }

        /// The source of a flow of any kind.
        pub(crate) enum AnySource {
            $($name(<$name as Kind>::Source),)+
        }

        impl Source for AnySource {
            fn start(&mut self, host: &mut Host<'_, impl Observer>) {
                match self { $(AnySource::$name(source) => source.start(host),)+ }
            }

            fn wake(&mut self, host: &mut Host<'_, impl Observer>) {
                match self { $(AnySource::$name(source) => source.wake(host),)+ }
            }

            fn stop(&mut self, host: &mut Host<'_, impl Observer>) {
                match self { $(AnySource::$name(source) => source.stop(host),)+ }
            }

            fn on_datagram(
                &mut self,
                tag: &Tag,
                datagram: DatagramBody,
                host: &mut Host<'_, impl Observer>,
            ) {
                match self {
                    $(AnySource::$name(source) => source.on_datagram(tag, datagram, host),)+
                }
            }

            fn on_segment(&mut self, id: ConnectionId, host: &mut Host<'_, impl Observer>) {
                match self { $(AnySource::$name(source) => source.on_segment(id, host),)+ }
            }

            fn is_reported(&self, connection: &Connection) -> bool {
                match self { $(AnySource::$name(source) => source.is_reported(connection),)+ }
            }

            fn is_receiving(&self) -> bool {
                match self { $(AnySource::$name(source) => source.is_receiving(),)+ }
            }

            fn open_pages(&self) -> Vec<OpenPage> {
                match self { $(AnySource::$name(source) => source.open_pages(),)+ }
            }
        }
    };
}

traffic! {
    tcp::Tcp,
    udp::Udp,
    listed::Listed,
    ping::Ping,
    rr::Rr,
    web::Web,
}

pub use listed::ListedDatagram;
