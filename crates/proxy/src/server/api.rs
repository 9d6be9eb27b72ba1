//! The server's side of the control API.

use rustix::event::epoll::EventFlags;
use serde_json::{Value, json};
use sluice_core::Time;

use super::Server;
use crate::control::{self, Call, Response};
use crate::engine::{Id, Side, Stage};
use crate::stream::Stream;

/// A connection to the control API.
pub struct Control {
    stream: Stream,
    input: Vec<u8>,
    output: Option<Vec<u8>>,
}

impl Control {
    pub fn new(stream: Stream) -> Control {
        Control {
            stream,
            input: Vec::new(),
            output: None,
        }
    }

    /// Records an event of the socket.
    pub fn note(&mut self, flags: EventFlags) {
        self.stream.note(flags);
    }
}

impl Server {
    /// Serves a connection to the control API as far as possible.
    pub(super) fn pump_control(&mut self, number: u64) {
        let Some(mut control) = self.controls.remove(&number) else {
            return;
        };
        while control.stream.can_read() {
            match control.stream.read(&mut self.hub.scratch) {
                Ok(Some(count)) if control.output.is_none() => {
                    control.input.extend(&self.hub.scratch[..count]);
                    // The limit covers the head, the body, and some more bytes.
                    if control.input.len() > MOST_INPUT {
                        break;
                    }
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
        if control.output.is_none() {
            let response = match control::parse(&control.input, self.hub.token.as_deref()) {
                Ok(Some(call)) => Some(self.answer(&call)),
                Ok(None) => None,
                Err(response) => Some(response),
            };
            control.output = response.map(|response| response.bytes());
        }
        if let Some(output) = &mut control.output {
            match control.stream.write(output, &[]) {
                Ok(count) => drop(output.drain(..count)),
                Err(_) => return,
            }
            if output.is_empty() && control.stream.shut().is_err() {
                return;
            }
        }
        let is_hopeless = control.stream.has_ended() && control.output.is_none();
        if !control.stream.is_over() && !is_hopeless {
            self.controls.insert(number, control);
        }
    }

    fn answer(&mut self, call: &Call) -> Response {
        match call {
            Call::Link => Response::ok(self.describe_link()),
            Call::Connections => {
                let clients: Vec<Value> = self
                    .clients
                    .keys()
                    .map(|number| self.describe_client(*number))
                    .collect();
                Response::ok(json!({ "connections": clients }))
            }
            Call::SetLink(keys) => {
                if let Some(why) = keys.iter().find_map(|(key, _)| not_of_a_link(key)) {
                    return Response::error(400, why);
                }
                let before = self.settings.link.clone();
                let words = &mut self.settings.link;
                for (key, _) in keys {
                    // Only the last value counts; without this, the list would grow with each
                    // request.
                    words.asked.retain(|(old, _)| old != key);
                }
                words.asked.extend(keys.iter().cloned());
                match self.settings.links() {
                    Ok(links) => {
                        self.hub.engine.set_links(&links);
                        Response::ok(self.describe_link())
                    }
                    Err(error) => {
                        self.settings.link = before;
                        Response::error(400, error.to_string())
                    }
                }
            }
            Call::Cut { to, is_cut } => {
                for to in to {
                    self.hub.engine.set_cut(*to, *is_cut);
                }
                Response::ok(self.describe_link())
            }
            Call::Reset(number) => {
                let numbers: Vec<u64> = match number {
                    Some(number) if !self.clients.contains_key(number) => {
                        let why = format!("there is no connection {number}");
                        return Response::error(404, why);
                    }
                    Some(number) => vec![*number],
                    None => self.clients.keys().copied().collect(),
                };
                for number in &numbers {
                    if let Some(client) = self.clients.remove(number) {
                        self.asking.remove(*number);
                        self.reset(client);
                    }
                }
                Response::ok(json!({ "reset": numbers.len() }))
            }
        }
    }

    /// Resets both ends of a connection at once. (A fault on the link would not reach both at the
    /// same time.)
    fn reset(&mut self, client: crate::client::Client) {
        let id = client.id();
        if let Some(id) = id {
            self.nears.remove(&id);
            self.hub.engine.reset(id, Side::Far);
        }
        client.reset(&mut self.hub);
    }

    fn describe_link(&self) -> Value {
        let elapsed = self.clock.now().since(Time::ZERO);
        let describe = |to: Side| {
            let engine = &self.hub.engine;
            let (pipe, counts, backlog) = (engine.pipe(to), engine.counts(to), engine.backlog(to));
            let rate = pipe.rate.at(elapsed);
            json!({
                "rate": rate.map_or_else(|| "0bit/s".to_owned(), |rate| rate.to_string()),
                "delay": pipe.delay.at(elapsed).to_string(),
                "queue": pipe.queue.to_string(),
                "effects": pipe.effects.to_string(),
                "cut": engine.is_cut(to),
                "packets": counts.packets,
                "bytes": counts.bytes,
                "dropped": counts.dropped,
                "backlog_packets": backlog.packets,
                "backlog_bytes": backlog.bytes,
                "latest_ms": self.lateness[to.index()].most().as_ms_f64(),
            })
        };
        json!({ "down": describe(Side::Near), "up": describe(Side::Far) })
    }

    fn describe_client(&self, number: u64) -> Value {
        let client = &self.clients[&number];
        let mut value = json!({
            "number": number,
            "to": client.destination().map(ToString::to_string),
            "age_ms": self.clock.now().since(client.since()).as_ms_f64(),
            "state": "asking",
        });
        if let Some(id) = client.id() {
            value["state"] = match self.hub.engine.stage(id, Side::Near) {
                Stage::Opening => "opening",
                Stage::Open => "open",
                Stage::Refused(_) => "refused",
                Stage::Reset => "reset",
            }
            .into();
            value["down"] = self.describe_sender(id, Side::Far);
            value["up"] = self.describe_sender(id, Side::Near);
        }
        value
    }

    fn describe_sender(&self, id: Id, side: Side) -> Value {
        let Some((snapshot, retransmits)) = self.hub.engine.snapshot(id, side) else {
            return Value::Null;
        };
        json!({
            "delivered_bytes": snapshot.delivered,
            "cwnd_bytes": snapshot.window.cwnd,
            "in_flight_bytes": snapshot.in_flight,
            "srtt_ms": snapshot.srtt.map(|srtt| srtt.as_ms_f64()),
            "retransmits": retransmits,
        })
    }
}

/// Returns why a key cannot be set while packets pass, if it belongs to the description of a link only.
fn not_of_a_link(key: &str) -> Option<String> {
    let (first, last) = (key.split('.').next(), key.rsplit('.').next());
    match (first, last) {
        (Some("seed" | "matrix"), _) => Some(format!(
            "`{key}` is not a key of the link: set `rate`, `rtt`, `queue` or another key of [link]"
        )),
        (_, Some("preset")) => Some(format!(
            "`{key}` cannot be set: --link names a link at the start; set its keys, such as `rate` and `rtt`"
        )),
        _ => None,
    }
}

const MOST_INPUT: usize = 256 << 10;
