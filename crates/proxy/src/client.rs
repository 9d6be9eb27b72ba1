//! The near end of a connection: a program's request, and its bytes.

use std::io;
use std::net::SocketAddr;

use rustix::event::epoll::EventFlags;
use sluice_core::Time;

use crate::engine::{Id, Refusal, Side, Stage};
use crate::hub::{DestinationKind, Hub};
use crate::names::Answer;
use crate::request::Destination;
use crate::request::answers::{self, Answers};
use crate::request::body::Body;
use crate::request::http::{self, Kind, Problem};
use crate::request::socks::{self, Socks, Step};
use crate::stream::Stream;

/// A program's connection to the proxy.
pub struct Client {
    number: u64,
    stream: Stream,
    /// Answers of the proxy itself that are still to be written to the program.
    output: Vec<u8>,
    /// Bytes from the program that the proxy has not processed.
    input: Vec<u8>,
    protocol: Protocol,
    progress: Progress,
    destination: Option<Destination>,
    since: Time,
    /// Whether the program has closed both directions.
    is_gone: bool,
}

/// The form of the program's request.
enum Protocol {
    /// No request yet.
    Unknown,
    Socks(Socks),
    /// CONNECT.
    Tunnel,
    /// HTTP requests, one after the other.
    Plain {
        /// The head of a request that waits for its connection.
        head: Vec<u8>,
        /// The part of the current request that is still to be sent.
        body: Body,
        /// The answers of the server.
        answers: Answers,
    },
    /// A map.
    Fixed,
}

/// The stage of the connection.
enum Progress {
    /// The program is negotiating with the proxy.
    Asking,
    /// A name is being resolved.
    Resolving(Id),
    /// The handshake crosses the link.
    Opening(Id),
    /// Bytes flow.
    Carrying(Id),
    /// The last answer is being sent.
    Ending,
}

/// The result of [`Client::pump`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing to do until the next event.
    Wait,
    /// More could be done at once, but other connections should have their turn first.
    More,
    /// The connection has ended.
    Over,
    /// The connection must be reset.
    Reset,
}

/// The result of [`Client::pass_request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requests {
    /// All bytes are sent that can be.
    Sent,
    /// The next request waits for answers to the ones before.
    Waiting,
    /// The client has left the connection across the link.
    Left,
}

impl Client {
    /// Creates the client of a program's connection; `fixed` is the destination of a map.
    pub fn new(
        number: u64,
        stream: Stream,
        fixed: Option<Destination>,
        hub: &mut Hub,
        now: Time,
    ) -> Client {
        let mut client = Client {
            number,
            stream,
            output: Vec::new(),
            input: Vec::new(),
            protocol: Protocol::Unknown,
            progress: Progress::Asking,
            destination: None,
            since: now,
            is_gone: false,
        };
        if let Some(destination) = fixed {
            client.protocol = Protocol::Fixed;
            client.connect(destination, hub, now);
        }
        client
    }

    /// Records an event of the socket.
    pub fn note(&mut self, flags: EventFlags) {
        self.stream.note(flags);
        self.is_gone |= flags.intersects(EventFlags::HUP | EventFlags::ERR);
    }

    /// Returns the connection across the link, if there is one.
    pub fn id(&self) -> Option<Id> {
        match &self.progress {
            Progress::Opening(id) | Progress::Carrying(id) => Some(*id),
            _ => None,
        }
    }

    /// Returns whether a request of the program was accepted, or it needs none. A request without the
    /// token is not accepted.
    pub fn has_asked(&self) -> bool {
        self.destination.is_some()
    }

    /// Returns the destination of the program.
    pub fn destination(&self) -> Option<&Destination> {
        self.destination.as_ref()
    }

    /// Returns the time at which the program connected.
    pub fn since(&self) -> Time {
        self.since
    }

    /// Returns whether bytes of the program wait in the proxy for the link.
    pub fn is_sending(&self) -> bool {
        !self.input.is_empty() && !matches!(self.progress, Progress::Ending)
    }

    /// Ends the connection with a reset at both ends.
    pub fn reset(self, hub: &mut Hub) {
        if let Progress::Resolving(question) = self.progress {
            hub.forget(question);
        }
        if let Some(id) = self.id() {
            hub.targets.remove(&id);
            hub.engine.reset(id, Side::Near);
            hub.engine.leave(id, Side::Near);
        }
        self.stream.reset();
    }

    /// Handles the answer to a question about a name.
    pub fn resolved(&mut self, question: Id, answer: Answer, hub: &mut Hub) {
        if !matches!(&self.progress, Progress::Resolving(own) if *own == question) {
            return;
        }
        match answer {
            Ok(addresses) => self.open(addresses, hub),
            Err(why) => {
                let destination = self.destination.as_ref();
                let answer = match (&self.protocol, destination) {
                    (Protocol::Socks(_), _) => socks::reply(Err(Refusal::Host)),
                    (Protocol::Tunnel | Protocol::Plain { .. }, Some(destination)) => {
                        http::unresolved(destination, &why)
                    }
                    _ => Vec::new(),
                };
                self.end_with(&answer);
            }
        }
    }

    /// Continues as far as possible. Returns the client unless it has ended, and whether more could
    /// be done at once.
    pub fn pump(mut self, hub: &mut Hub, now: Time) -> Option<(Client, bool)> {
        match self.turn(hub, now) {
            Ok(Turn::Wait) => Some((self, false)),
            Ok(Turn::More) => Some((self, true)),
            Ok(Turn::Over) => {
                if let Some(id) = self.id() {
                    hub.targets.remove(&id);
                    hub.engine.leave(id, Side::Near);
                }
                None
            }
            Ok(Turn::Reset) | Err(_) => {
                self.reset(hub);
                None
            }
        }
    }

    fn turn(&mut self, hub: &mut Hub, now: Time) -> io::Result<Turn> {
        loop {
            let sent = self.stream.write(&self.output, &[])?;
            self.output.drain(..sent);
            match &self.progress {
                Progress::Asking => {
                    self.read_input(hub)?;
                    if !self.ask(hub, now) {
                        let is_over = self.stream.has_ended() && self.output.is_empty();
                        return Ok(if is_over { Turn::Over } else { Turn::Wait });
                    }
                }
                Progress::Resolving(_) => return Ok(self.wait()),
                Progress::Opening(id) => {
                    let id = *id;
                    match hub.engine.stage(id, Side::Near) {
                        Stage::Opening => return Ok(self.wait()),
                        Stage::Open => self.grant(id, hub),
                        Stage::Refused(refusal) => self.give_up(id, refusal, hub),
                        Stage::Reset => self.give_up(id, Refusal::Silence, hub),
                    }
                }
                Progress::Carrying(id) => {
                    let id = *id;
                    if hub.engine.stage(id, Side::Near) == Stage::Reset {
                        return Ok(Turn::Reset);
                    }
                    if !self.output.is_empty() {
                        // The proxy's own answer comes first.
                        return Ok(Turn::Wait);
                    }
                    self.pass_answers(id, hub)?;
                    let has_more = match self.protocol {
                        Protocol::Plain { .. } => self.pass_requests(id, hub, now)?,
                        _ => {
                            self.pass_input(id, hub);
                            if self.stream.has_ended() {
                                // The end may have come with the request: then nothing is left to
                                // read.
                                hub.engine.close(id, Side::Near);
                            }
                            self.stream.pass_in(
                                &mut hub.engine,
                                id,
                                Side::Near,
                                &mut hub.scratch,
                            )?
                        }
                    };
                    if !matches!(self.progress, Progress::Carrying(same) if same == id) {
                        continue;
                    }
                    return Ok(match has_more {
                        _ if self.stream.is_over() => Turn::Over,
                        true => Turn::More,
                        false => Turn::Wait,
                    });
                }
                Progress::Ending => {
                    if !self.output.is_empty() {
                        return Ok(Turn::Wait);
                    }
                    if matches!(self.protocol, Protocol::Fixed) {
                        return Ok(Turn::Reset);
                    }
                    self.stream.shut()?;
                    // Read the rest of the program's bytes. Otherwise closing the socket would
                    // cause a reset, which could destroy the answer.
                    while self.stream.can_read() {
                        self.stream.read(&mut hub.scratch)?;
                    }
                    return Ok(if self.stream.is_over() {
                        Turn::Over
                    } else {
                        Turn::Wait
                    });
                }
            }
        }
    }

    /// Returns what to do while the connection is being established. If the program has closed its
    /// connection, the client ends.
    fn wait(&self) -> Turn {
        if self.is_gone {
            Turn::Reset
        } else {
            Turn::Wait
        }
    }

    fn read_input(&mut self, hub: &mut Hub) -> io::Result<()> {
        while self.stream.can_read() && self.input.len() < http::LONGEST_HEAD {
            let room = http::LONGEST_HEAD - self.input.len();
            let scratch = &mut hub.scratch[..room.min(READ)];
            if let Some(count) = self.stream.read(scratch)? {
                self.input.extend(&scratch[..count]);
            }
        }
        Ok(())
    }

    /// Reads the program's request. Returns whether there were any bytes.
    fn ask(&mut self, hub: &mut Hub, now: Time) -> bool {
        let Some(first) = self.input.first() else {
            return false;
        };
        if matches!(self.protocol, Protocol::Unknown) && *first == socks::VERSION {
            self.protocol = Protocol::Socks(Socks::new());
        }
        if let Protocol::Socks(socks) = &mut self.protocol {
            let (used, step) = socks.next(&self.input, hub.token.as_deref());
            self.input.drain(..used);
            match step {
                Step::Incomplete => return false,
                Step::Answer(answer) => self.output.extend(answer),
                Step::Connect(destination) => self.connect(destination, hub, now),
                Step::Refuse(answer) => self.end_with(&answer),
            }
            return true;
        }
        if !first.is_ascii_uppercase() {
            // Neither HTTP nor SOCKS5, but for example TLS or SOCKS4.
            self.end_with(&[]);
            return true;
        }
        match http::parse(&self.input, hub.token.as_deref()) {
            Ok(None) => return false,
            Ok(Some((used, request))) => {
                self.input.drain(..used);
                self.protocol = request.kind.into();
                self.connect(request.destination, hub, now);
            }
            Err(problem) => self.end_with(&problem.response()),
        }
        true
    }

    fn connect(&mut self, destination: Destination, hub: &mut Hub, now: Time) {
        let way = hub.kind(&destination);
        self.destination = Some(destination);
        match way {
            DestinationKind::Known(addresses) => self.open(addresses, hub),
            DestinationKind::Prohibited => self.refuse(Refusal::Prohibited),
            DestinationKind::Name => {
                if let Some(destination) = &self.destination {
                    let question = hub.ask(self.number, destination, now);
                    self.progress = Progress::Resolving(question);
                }
            }
        }
    }

    /// Opens a connection to the first of the addresses that answers.
    fn open(&mut self, addresses: Vec<SocketAddr>, hub: &mut Hub) {
        let destination = self.destination.as_ref();
        let name = destination.map(ToString::to_string).unwrap_or_default();
        self.progress = Progress::Opening(hub.open(&name, addresses));
    }

    /// Ends a connection that was refused.
    fn give_up(&mut self, id: Id, refusal: Refusal, hub: &mut Hub) {
        hub.targets.remove(&id);
        hub.engine.leave(id, Side::Near);
        self.refuse(refusal);
    }

    /// Informs the program that its connection is established.
    fn grant(&mut self, id: Id, hub: &mut Hub) {
        match &mut self.protocol {
            Protocol::Socks(_) => self.output.extend(socks::reply(Ok(()))),
            Protocol::Tunnel => self.output.extend(http::granted()),
            Protocol::Plain { head, .. } => {
                hub.engine.write(id, Side::Near, &std::mem::take(head));
            }
            Protocol::Fixed | Protocol::Unknown => {}
        }
        self.progress = Progress::Carrying(id);
    }

    fn refuse(&mut self, refusal: Refusal) {
        let answer = match (&self.protocol, &self.destination) {
            (Protocol::Socks(_), _) => socks::reply(Err(refusal)),
            (Protocol::Tunnel | Protocol::Plain { .. }, Some(destination)) => {
                http::refused(destination, refusal)
            }
            _ => Vec::new(),
        };
        self.end_with(&answer);
    }

    fn end_with(&mut self, answer: &[u8]) {
        self.output.extend(answer);
        self.input.clear();
        self.progress = Progress::Ending;
    }

    /// Sends the bytes that came with the request.
    fn pass_input(&mut self, id: Id, hub: &mut Hub) {
        if !self.input.is_empty() {
            let input = std::mem::take(&mut self.input);
            hub.engine.write(id, Side::Near, &input);
        }
    }

    /// Writes the bytes of the server to the program, and follows the answers of HTTP.
    fn pass_answers(&mut self, id: Id, hub: &mut Hub) -> io::Result<()> {
        let (stream, engine) = (&mut self.stream, &mut hub.engine);
        let Protocol::Plain { body, answers, .. } = &mut self.protocol else {
            return stream.pass_out(engine, id, Side::Near, |_| {});
        };
        let passed = stream.pass_out(engine, id, Side::Near, |bytes| answers.pass(bytes));
        if answers.is_tunnel() {
            *body = Body::Endless;
        }
        passed
    }

    /// Sends HTTP requests, each with the head for the server. Returns whether more could be read
    /// at once.
    fn pass_requests(&mut self, id: Id, hub: &mut Hub, now: Time) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            let requests = self.pass_request(id, hub, now);
            if requests == Requests::Left {
                return Ok(false);
            }
            if requests == Requests::Waiting && hub.engine.has_ended(id, Side::Near) {
                // No answer can follow.
                self.input.clear();
            } else if self.stream.has_ended() && requests == Requests::Sent {
                hub.engine.close(id, Side::Near);
            }
            let room = hub.engine.room(id, Side::Near).min(READ);
            if !self.stream.can_read() || room == 0 || self.input.len() >= http::LONGEST_HEAD {
                return Ok(false);
            }
            if let Some(count) = self.stream.read(&mut hub.scratch[..room])? {
                self.input.extend(&hub.scratch[..count]);
            }
        }
        Ok(true)
    }

    /// Sends the available part of requests.
    fn pass_request(&mut self, id: Id, hub: &mut Hub, now: Time) -> Requests {
        loop {
            let Protocol::Plain { body, answers, .. } = &mut self.protocol else {
                return Requests::Left;
            };
            if self.input.is_empty() {
                return Requests::Sent;
            }
            if !body.has_ended() {
                let Ok(used) = body.pass(&self.input) else {
                    let problem = Problem::Malformed("the chunks of the body cannot be read");
                    let response = match answers.is_unanswered() {
                        true => problem.response(),
                        false => Vec::new(),
                    };
                    self.leave(id, hub);
                    self.end_with(&response);
                    return Requests::Left;
                };
                hub.engine.write(id, Side::Near, &self.input[..used]);
                self.input.drain(..used);
                continue;
            }
            if !answers.has_room() {
                return Requests::Waiting;
            }
            let Some(parsed) = http::parse(&self.input, hub.token.as_deref()).transpose() else {
                return Requests::Sent;
            };
            let (used, request) = match (parsed, answers.turn()) {
                (Ok((used, request)), _)
                    if self.destination.as_ref() == Some(&request.destination)
                        && request.kind != Kind::Tunnel =>
                {
                    (used, request)
                }
                (_, answers::Turn::Busy) => return Requests::Waiting,
                (parsed, turn) => {
                    self.leave(id, hub);
                    match parsed {
                        _ if turn == answers::Turn::Never => self.end_with(&[]),
                        Err(problem) => self.end_with(&problem.response()),
                        Ok((used, request)) => {
                            // Another server, or a tunnel, needs another connection.
                            self.input.drain(..used);
                            self.protocol = request.kind.into();
                            self.connect(request.destination, hub, now);
                        }
                    }
                    return Requests::Left;
                }
            };
            self.input.drain(..used);
            if let Kind::Plain {
                head,
                body: next,
                asked,
            } = request.kind
            {
                *body = next;
                answers.expect(asked);
                hub.engine.write(id, Side::Near, &head);
            }
        }
    }

    /// Closes the connection across the link.
    fn leave(&mut self, id: Id, hub: &mut Hub) {
        hub.targets.remove(&id);
        hub.engine.close(id, Side::Near);
        hub.engine.leave(id, Side::Near);
    }
}

impl From<Kind> for Protocol {
    fn from(kind: Kind) -> Protocol {
        match kind {
            Kind::Tunnel => Protocol::Tunnel,
            Kind::Plain { head, body, asked } => Protocol::Plain {
                head,
                body,
                answers: Answers::to(asked),
            },
        }
    }
}

/// The number of bytes that are read at once.
const READ: usize = 64 << 10;
/// The number of reads before other connections have their turn.
const ROUNDS: usize = 8;
