//! Requests and responses over one connection, each request after the response before.

use crate::config::Traffic;
use crate::connection::App;
use crate::observe::{Completion, Observer};
use crate::simulation::{Simulation, kind};
use sluice_core::{Span, Time};

/// Where the applications of a connection are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exchange {
    /// When the present request was written.
    start: Time,
    /// Requests written, requests answered, responses that have arrived.
    asked: u64,
    answered: u64,
    received: u64,
}

impl Simulation {
    /// Opens the connection; the first request waits for the handshake, as it does in netperf.
    pub(crate) fn open_exchange(&mut self, flow: u32, observer: &mut impl Observer) {
        let Traffic::Exchange(exchange) = &self.flows[flow as usize].config.traffic else {
            return;
        };
        let config = exchange.config.clone();
        let id = self.connect(flow, &config, App::Exchange(Exchange::default()));
        self.flows[flow as usize].source.connection = Some(id);
        self.pump(id, false, observer);
    }

    /// The client has thought.
    pub(crate) fn ask_again(&mut self, flow: u32, observer: &mut impl Observer) {
        if let Some(id) = self.flows[flow as usize].source.connection {
            self.ask(id);
            self.pump(id, false, observer);
        }
    }

    fn ask(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        let config = &self.flows[connection.flow as usize].config;
        if let (Traffic::Exchange(exchange), App::Exchange(state)) =
            (&config.traffic, &mut connection.app)
            && !connection.client.has_closed
        {
            state.asked += 1;
            state.start = self.now;
            connection.client.tcp.write(exchange.request);
        }
    }

    /// What the applications do when a segment has arrived at either end.
    pub(crate) fn run_exchange(&mut self, id: u32, observer: &mut impl Observer) {
        let connection = &mut self.connections[id as usize];
        let flow = connection.flow;
        let state = &mut self.flows[flow as usize];
        let (Traffic::Exchange(exchange), App::Exchange(app)) =
            (&state.config.traffic, &mut connection.app)
        else {
            return;
        };
        let (client, server) = (&mut connection.client, &mut connection.server);
        let mut server_wrote = false;
        while server.tcp.received() >= exchange.request * (app.answered + 1) {
            app.answered += 1;
            server.tcp.write(exchange.response);
            server_wrote = true;
        }
        if server.tcp.is_received() && !server.has_closed {
            server.has_closed = true;
            server.tcp.close();
            server_wrote = true;
        }
        let is_first = app.asked == 0 && client.tcp.is_established();
        let is_answered = client.tcp.received() >= exchange.response * (app.received + 1);
        let think = exchange.think;
        if is_answered {
            app.received += 1;
            state.totals.completions += 1;
            let done = Completion {
                sequence: app.received - 1,
                start: app.start,
                end: self.now,
                bytes: exchange.response,
            };
            observer.on_complete(flow as usize, &done);
        }
        if is_answered && think > Span::ZERO {
            let at = self.now + think;
            self.schedule(at, kind::SOURCE, flow);
        } else if is_first || is_answered {
            self.ask(id);
            self.pump(id, false, observer);
        }
        if server_wrote {
            self.pump(id, true, observer);
        }
    }
}
