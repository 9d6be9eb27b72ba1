//! Pages that a client fetches over short connections, at the times of a Poisson process.

use super::{Host, Kind, Source, check_tcp};
use crate::demand::{Demand, Outlook};
use crate::error::ConfigError;
use crate::ids::{FlowId, Side};
use crate::network::ConnectionId;
use crate::observe::{Completion, Observer, OpenPage};
use sluice_core::traffic::{ObjectSize, exponential};
use sluice_core::{Span, Time};
use sluice_ipfw::headers;
use sluice_tcp as tcp;
use std::collections::BTreeMap;

/// Pages fetched by a client at the times of a Poisson process.
#[derive(Clone, Debug)]
pub struct Web {
    /// Settings of both ends of each connection.
    pub config: tcp::Config,
    /// Mean time between pages.
    pub interval: Span,
    /// Connections opened at once for a page, each for one object.
    pub objects: u32,
    /// Size of an object.
    pub size: ObjectSize,
    /// Bytes of a request.
    pub request: u64,
}

impl Web {
    /// Pages of six objects of 4 kB to 2 MB every `interval` on average.
    pub fn new(interval: Span) -> Self {
        Web {
            config: tcp::Config::default(),
            interval,
            objects: 6,
            size: ObjectSize::Pareto {
                min: 4000,
                shape_milli: 1200,
                max: 2_000_000,
            },
            request: 350,
        }
    }
}

impl Kind for Web {
    type Source = WebSource;

    fn protocol(&self) -> u8 {
        headers::TCP
    }

    fn check(&self, flow: FlowId) -> Result<(), ConfigError> {
        let zero = |what| Err(ConfigError::Zero { flow, what });
        if self.interval == Span::ZERO {
            return zero("the mean interval between pages");
        }
        if self.objects == 0 {
            return zero("the number of objects");
        }
        check_tcp(flow, &self.config)
    }

    fn demand(&self, outlook: &Outlook<'_>) -> Demand {
        let objects = u64::from(self.objects);
        // The connections that are open at once if a page takes about a second.
        let open = Span::from_secs(1).as_ns() / self.interval.as_ns().max(1) + 1;
        Demand {
            // A handshake, a request, the close and the object are at least 20 packets.
            packets: outlook.count(self.interval).saturating_mul(objects * 20),
            connections: open.saturating_mul(objects),
            ..Demand::default()
        }
    }

    fn source(&self) -> WebSource {
        WebSource {
            web: Box::new(self.clone()),
            next_page: 0,
            pages: BTreeMap::new(),
            fetches: BTreeMap::new(),
        }
    }
}

/// A running flow.
pub(crate) struct WebSource {
    web: Box<Web>,
    next_page: u64,
    /// Pages that are not complete.
    pages: BTreeMap<u64, Page>,
    /// The purpose of each connection.
    fetches: BTreeMap<ConnectionId, Fetch>,
}

/// A page being fetched.
struct Page {
    start: Time,
    /// Objects that have not arrived.
    objects: u32,
    bytes: u64,
}

/// An object being fetched.
#[derive(Clone, Copy)]
struct Fetch {
    page: u64,
    size: u64,
}

impl Source for WebSource {
    fn start(&mut self, host: &mut Host<'_, impl Observer>) {
        self.await_page(host);
    }

    fn wake(&mut self, host: &mut Host<'_, impl Observer>) {
        self.await_page(host);
        let page = self.next_page;
        self.next_page += 1;
        self.pages.insert(
            page,
            Page {
                start: host.now(),
                objects: self.web.objects,
                bytes: 0,
            },
        );
        for _ in 0..self.web.objects {
            let size = self.web.size.draw(host.rng());
            // The server watches for the request, the client only for the end of the object.
            let id = host.connect(&self.web.config, Side::Server, [false, true]);
            self.fetches.insert(id, Fetch { page, size });
            host.connection(id)
                .end(Side::Client)
                .tcp
                .write(self.web.request);
            host.pump(id, Side::Client);
        }
    }

    /// The client gives up the pages that are not complete, as the live one does. Then only packets in
    /// flight remain in the queues, and resets that answer them.
    fn stop(&mut self, host: &mut Host<'_, impl Observer>) {
        if self.is_receiving() {
            host.report_received();
        }
        for id in std::mem::take(&mut self.fetches).into_keys() {
            if host.is_open(id) {
                host.connection(id).end(Side::Client).abort();
                host.pump(id, Side::Client);
            }
        }
    }

    fn on_segment(&mut self, id: ConnectionId, host: &mut Host<'_, impl Observer>) {
        let Some(&Fetch { page, size }) = self.fetches.get(&id) else {
            return;
        };
        let connection = host.connection(id);
        let server = connection.end(Side::Server);
        if !server.has_closed() && server.tcp.received() >= self.web.request {
            server.is_watching = false;
            server.tcp.write(size);
            server.close();
            host.pump(id, Side::Server);
            return;
        }
        let client = connection.end(Side::Client);
        if !client.has_closed() && client.tcp.is_received() {
            client.close();
            let bytes = client.tcp.received();
            self.fetches.remove(&id);
            self.finish_object(page, bytes, host);
            host.pump(id, Side::Client);
        }
    }

    fn is_receiving(&self) -> bool {
        !self.fetches.is_empty()
    }

    fn open_pages(&self) -> Vec<OpenPage> {
        let open = self.pages.iter().map(|(sequence, page)| OpenPage {
            sequence: *sequence,
            start: page.start,
            bytes: page.bytes,
        });
        open.collect()
    }
}

impl WebSource {
    fn await_page(&self, host: &mut Host<'_, impl Observer>) {
        let wait = exponential(host.rng(), self.web.interval);
        host.wake_at(host.now() + wait);
    }

    fn finish_object(&mut self, page: u64, bytes: u64, host: &mut Host<'_, impl Observer>) {
        let Some(entry) = self.pages.get_mut(&page) else {
            return;
        };
        entry.objects -= 1;
        entry.bytes += bytes;
        if entry.objects == 0 {
            let completion = Completion {
                sequence: page,
                start: entry.start,
                end: host.now(),
                bytes: entry.bytes,
            };
            self.pages.remove(&page);
            host.count_completion();
            host.report(&completion);
            host.report_received();
        }
    }
}
