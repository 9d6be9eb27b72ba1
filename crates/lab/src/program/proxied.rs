//! Records the connections of a proxy: the packets of both directions, and the samples of both
//! endpoints of every connection, in the form of a recorded program.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use sluice_core::{Ecn, Time};
use sluice_loader::Ending;
use sluice_proxy::{Observation as Seen, Observations, Proxy};
use sluice_recording::headers::HeaderCoder;
use sluice_recording::{Arrival, Environment, RecordError, Recording, Release, RunWriter};
use sluice_router::control::no_thread;
use sluice_scenario::{Backend, Direction, Scenario};

use super::connections::Connections;
use super::datagrams::Protocol;
use super::names::Names;
use super::{Written, describe, ended, store_figures, without_traffic, write_flows};
use crate::live::Observation;
use crate::run::write_observation;
use crate::segments::tcp_header;

/// The recording of a proxy in progress. A separate thread writes it until the proxy has ended.
pub struct ProxyRecorder {
    thread: JoinHandle<Result<Written, RecordError>>,
}

/// The reason why a proxy has no recording.
#[derive(Debug, thiserror::Error)]
pub enum ProxyRecordError {
    /// The recording could not be begun, written, or read back.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There is no thread.
    #[error("cannot start the thread that records: {}", no_thread(.0))]
    Thread(#[from] std::io::Error),
}

impl ProxyRecorder {
    /// Begins to record `proxy`, which has not run yet, in the folder `dir`. `scenario` has the
    /// proxy's links, and a title; its traffic is ignored.
    ///
    /// # Errors
    /// [`ProxyRecordError`].
    pub fn begin(
        proxy: &mut Proxy,
        scenario: &Scenario,
        name: &str,
        dir: &Path,
        started_at: String,
    ) -> Result<ProxyRecorder, ProxyRecordError> {
        let environment = Environment::here(Backend::Live, started_at);
        let variant = without_traffic(scenario, name);
        let writer = RunWriter::create(dir, &variant, &environment)?;
        let (sender, seen) = channel();
        let interval = scenario.measure.interval;
        let writing = Writing {
            writer,
            scenario: variant.scenario,
            congestion_control: proxy.settings().congestion_control.name,
            ending: proxy.settings().ending.clone(),
            connections: Connections::default(),
            headers: HeaderCoder::new(),
        };
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let thread = thread.spawn(move || writing.run(&seen))?;
        proxy.observe(Observations { sender, interval });
        Ok(ProxyRecorder { thread })
    }

    /// Completes the recording when the proxy has ended.
    ///
    /// # Errors
    /// [`ProxyRecordError`].
    pub fn finish(self) -> Result<Recording, ProxyRecordError> {
        let Written { writer, end, .. } = self.written()?;
        let recording = writer.finish(end)?;
        store_figures(&recording)?;
        Ok(recording)
    }

    /// Ends the recording when the proxy has ended because of an error, which the caller reports. The
    /// recording is partial, with this reason.
    pub fn cut_short(self, reason: String) {
        if let Ok(written) = self.written() {
            written.cut_short(reason);
        }
    }

    fn written(self) -> Result<Written, RecordError> {
        let written = self.thread.join();
        written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct Writing {
    writer: RunWriter,
    scenario: Scenario,
    congestion_control: &'static str,
    ending: Ending,
    connections: Connections,
    headers: HeaderCoder,
}

impl Writing {
    fn run(mut self, seen: &Receiver<Seen>) -> Result<Written, RecordError> {
        let mut end = Time::ZERO;
        for seen in seen {
            if let Seen::End(at) = seen {
                end = at;
            }
            self.take(seen)?;
        }
        let flows = self.connections.into_flows(&Names::default());
        let described = describe(&self.scenario, &flows, self.congestion_control, end);
        write_flows(&mut self.writer, &described, &flows)?;
        Ok(Written {
            writer: self.writer,
            end: ended(end, &self.ending),
            warning: None,
        })
    }

    fn take(&mut self, seen: Seen) -> Result<(), RecordError> {
        let mut observation = match seen {
            Seen::Flow(flow) => {
                let protocol = match flow.is_question {
                    true => Protocol::Udp,
                    false => Protocol::Tcp,
                };
                let connections = &mut self.connections;
                connections.opened(flow.hashes, protocol, flow.name, flow.is_v6);
                return Ok(());
            }
            Seen::Ends(ends) => {
                for end in &ends {
                    self.connections.sample_end(end);
                }
                return Ok(());
            }
            Seen::Segments(segments) => {
                return segments.iter().try_for_each(|sent| self.header(sent));
            }
            Seen::End(_) => return Ok(()),
            Seen::Packets(pipe, rows) => Observation::Packets(pipe, rows),
            Seen::Queue {
                pipe,
                at,
                backlog,
                state,
            } => Observation::Queue {
                pipe,
                at,
                backlog,
                state,
            },
            Seen::Arrivals(arrivals) => {
                Observation::Arrivals(arrivals.iter().map(arrival).collect())
            }
            Seen::Releases(releases) => {
                Observation::Releases(releases.iter().map(release).collect())
            }
        };
        self.connections.observe(&self.scenario, &mut observation);
        write_observation(&mut self.writer, &observation)
    }

    fn header(&mut self, sent: &sluice_proxy::Sent) -> Result<(), RecordError> {
        if sent.segment.ecn != Ecn::NotEct {
            self.connections.uses_ecn(sent.hash);
        }
        let flow = self.connections.flow_of(sent.hash);
        let header = tcp_header(&sent.segment, 1, |at| at, sent.at);
        let is_from_client = sent.direction == Direction::Up;
        let row = self
            .headers
            .encode(sent.packet, flow, is_from_client, &header);
        self.writer.header(row)
    }
}

fn arrival(seen: &sluice_proxy::Arrival) -> Arrival {
    Arrival {
        time: seen.at,
        pipe: seen.direction.into(),
        way: 0,
        len: seen.len,
        segments: 1,
        ecn: seen.ecn as u32,
        dscp: 0,
        hash: seen.hash,
        src: seen.hosts[0],
        dst: seen.hosts[1],
        tag: 0,
    }
}

fn release(seen: &sluice_proxy::Release) -> Release {
    Release {
        due: seen.due,
        pipe: seen.direction.into(),
        len: seen.len,
        late: seen.late,
    }
}
