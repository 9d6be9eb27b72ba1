//! `--flow-log` and `--flow-export`: a record for each flow through a pipe, when it ends and at
//! intervals, as a line of JSON and as IPFIX.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sluice_core::Span;
use sluice_router::process::append_privately;
use sluice_router::process::watch::{
    FlowExport, FlowFile, FlowRecord, FlowTimeouts, Ipfix, Message, Watcher,
};

/// Where records of flows go, and when.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("flow_records").multiple(true).args(["flow_log", "flow_export"]))]
pub struct FlowArgs {
    /// Append a line of JSON for each flow through a pipe to this file, or write it to standard
    /// output (`-`): bytes, packets, drops, marks and sojourn times (docs/watching.md)
    #[arg(long, value_name = "FILE|-")]
    flow_log: Option<PathBuf>,
    /// Send an IPFIX record (RFC 7011) of each flow through a pipe to this collector, by UDP: bytes,
    /// packets and drops (docs/watching.md)
    #[arg(long, value_name = "HOST:PORT")]
    flow_export: Option<String>,
    /// A flow without packets for this time has ended
    #[arg(long, value_name = "TIME", value_parser = Span::parse, default_value = "15s",
          requires = "flow_records")]
    flow_idle: Span,
    /// A flow that lasts gets a record each time this has passed
    #[arg(long, value_name = "TIME", value_parser = Span::parse, default_value = "60s",
          requires = "flow_records")]
    flow_active: Span,
    /// Send the templates of IPFIX again each time this has passed
    #[arg(long, value_name = "TIME", value_parser = Span::parse, default_value = "60s",
          requires = "flow_export")]
    flow_template_refresh: Span,
}

/// Records of flows have nowhere to go.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("cannot append to {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// There is no such collector.
    #[error(
        "--flow-export {collector}: {source}; a host with its port is needed, such as 192.0.2.7:4739, \
         [2001:db8::7]:4739 or collector.example:4739"
    )]
    Collector {
        /// The address as it was given.
        collector: String,
        /// The reason.
        source: io::Error,
    },
}

/// The outputs, opened before the router gives up its privileges.
pub struct Opened {
    log: Option<Log>,
    export: Option<Export>,
    timeouts: FlowTimeouts,
}

/// A file of lines of JSON.
struct Log {
    /// Without a buffer, which would keep records that may be lost.
    to: Box<dyn Write + Send>,
    /// Whether the last line lacks its end.
    is_cut: bool,
    counts: FlowFile,
}

/// Messages to a collector.
struct Export {
    socket: UdpSocket,
    encoder: Ipfix,
    refresh: Duration,
    /// The last message with templates.
    refreshed: Option<Instant>,
    /// Records in the last message, which the collector's host may still refuse.
    pending: u64,
    counts: FlowExport,
}

/// Opens the outputs.
pub fn open(args: &FlowArgs) -> Result<Option<Opened>, Error> {
    let log = args.flow_log.as_deref().map(Log::open).transpose()?;
    let refresh = Duration::from_nanos(args.flow_template_refresh.as_ns());
    let export = args.flow_export.as_deref();
    let export = export.map(|collector| Export::open(collector, refresh));
    let export = export.transpose()?;
    if log.is_none() && export.is_none() {
        return Ok(None);
    }
    Ok(Some(Opened {
        log,
        export,
        timeouts: FlowTimeouts {
            idle: Duration::from_nanos(args.flow_idle.as_ns()),
            active: Duration::from_nanos(args.flow_active.as_ns()),
        },
    }))
}

impl FlowArgs {
    /// Returns whether standard output has the records, so that nothing else may write there.
    pub fn is_stdout(&self) -> bool {
        self.flow_log.as_deref() == Some(Path::new("-"))
    }
}

/// Writes records until it is finished.
pub struct FlowLog {
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FlowLog {
    /// Starts to write records of what `watcher` sees. While it runs, the router is watched all the
    /// time.
    pub fn start(opened: Opened, watcher: Watcher) -> io::Result<FlowLog> {
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&is_ending);
        watcher.record_flows(opened.timeouts);
        let thread = thread::Builder::new().name("flow-log".into());
        let thread = thread.spawn(move || write(opened, &watcher, &ending))?;
        Ok(FlowLog {
            is_ending,
            thread: Some(thread),
        })
    }

    /// Writes records of all flows, up to a last sample, and ends. Takes up to two seconds.
    pub fn finish(mut self) {
        self.is_ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write(opened: Opened, watcher: &Watcher, is_ending: &AtomicBool) {
    let Opened {
        mut log,
        mut export,
        ..
    } = opened;
    let mut after = 0;
    loop {
        // The last sample must begin after the last packet.
        let is_last = is_ending.load(Ordering::Acquire);
        match watcher.sample(after, SAMPLE) {
            Ok(sample) => after = sample.number,
            Err(_) if is_last => {}
            Err(_) => thread::sleep(PAUSE),
        }
        let (records, more) = watcher.take_flows(is_last);
        if let Some(export) = &mut export {
            export.send(&records, more);
            watcher.note_export(export.counts.clone());
        }
        let has_reader = log.as_mut().is_some_and(|log| {
            let has_reader = log.write(&records, more);
            watcher.note_file(log.counts.clone());
            has_reader
        });
        log = log.filter(|_| has_reader);
        if is_last || (log.is_none() && export.is_none()) {
            break;
        }
    }
    if let Some(Log { counts, .. }) = log {
        let FlowFile { file, lost, .. } = &counts;
        if *lost > 0 {
            eprintln!("sluice: warning: {file} lacks {lost} records: it was written too slowly");
        }
        let failed = counts.not_written - lost;
        if failed > 0 {
            eprintln!("sluice: warning: {file} lacks {failed} records: they could not be written");
        }
    }
    if let Some(export) = export.filter(|export| export.counts.not_sent > 0) {
        let FlowExport {
            collector,
            not_sent,
            ..
        } = export.counts;
        eprintln!("sluice: warning: {not_sent} records of flows did not reach {collector}");
    }
}

impl Log {
    fn open(path: &Path) -> Result<Log, Error> {
        let opened = match path == Path::new("-") {
            true => io::stdout().as_fd().try_clone_to_owned().map(File::from),
            false => append_privately(path),
        };
        let to = opened.map_err(|source| Error::File {
            path: path.to_owned(),
            source,
        })?;
        Ok(Log::new(Box::new(to), path.display().to_string()))
    }

    fn new(to: Box<dyn Write + Send>, file: String) -> Log {
        Log {
            to,
            is_cut: false,
            counts: FlowFile {
                file,
                ..FlowFile::default()
            },
        }
    }

    /// Writes records. Those that cannot be written are lost; the next ones are tried again. `lost`
    /// records found no room before. Returns false if nobody reads the output any more.
    fn write(&mut self, records: &[FlowRecord], lost: u64) -> bool {
        self.counts.lost += lost;
        self.counts.not_written += lost;
        if records.is_empty() {
            return true;
        }
        let begin = if self.is_cut { "\n" } else { "" };
        let text = begin.to_owned() + &lines(records);
        let (length, error) = write_some(&mut self.to, text.as_bytes());
        let done = &text.as_bytes()[..length];
        if let Some(last) = done.last() {
            self.is_cut = *last != b'\n';
        }
        let ends = done.iter().skip(begin.len()).filter(|byte| **byte == b'\n');
        let written = ends.count() as u64;
        self.counts.written += written;
        self.counts.not_written += records.len() as u64 - written;
        error.is_none_or(|error| self.note(&error))
    }

    /// Notes an error, and prints the first one. Returns whether the output can be tried again.
    fn note(&mut self, error: &io::Error) -> bool {
        let name = &self.counts.file;
        let has_reader = error.kind() != io::ErrorKind::BrokenPipe;
        if !has_reader {
            eprintln!("sluice: warning: cannot write to {name}: {error}; no more flows are logged");
        } else if self.counts.error.is_none() {
            eprintln!(
                "sluice: warning: cannot write to {name}: {error}; it is tried again with the next \
                 records, and `sluice router status` shows how many are missing"
            );
        }
        self.counts.error = Some(error.to_string());
        has_reader
    }
}

/// Writes bytes up to an error. Returns how many are written.
pub(super) fn write_some(to: &mut impl Write, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut done = 0;
    while done < bytes.len() {
        match to.write(&bytes[done..]) {
            Ok(0) => return (done, Some(io::ErrorKind::WriteZero.into())),
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

fn lines(records: &[FlowRecord]) -> String {
    let line = |record| serde_json::to_string(record).expect("a record is plain values") + "\n";
    records.iter().map(line).collect()
}

impl Export {
    fn open(collector: &str, refresh: Duration) -> Result<Export, Error> {
        let connect = || -> io::Result<(UdpSocket, SocketAddr)> {
            let mut addresses = collector.to_socket_addrs()?;
            let address = addresses.next();
            let address = address.ok_or_else(|| io::Error::other("it has no address"))?;
            let own: SocketAddr = match address {
                SocketAddr::V4(_) => ([0; 4], 0).into(),
                SocketAddr::V6(_) => ([0; 16], 0).into(),
            };
            let socket = UdpSocket::bind(own)?;
            socket.connect(address)?;
            // A full buffer must not delay the records of the log.
            socket.set_nonblocking(true)?;
            Ok((socket, address))
        };
        let (socket, address) = connect().map_err(|source| Error::Collector {
            collector: collector.to_owned(),
            source,
        })?;
        let headers = match address {
            SocketAddr::V4(_) => 20 + 8,
            SocketAddr::V6(_) => 40 + 8,
        };
        Ok(Export {
            socket,
            encoder: Ipfix::new(MOST_PACKET - headers),
            refresh,
            refreshed: None,
            pending: 0,
            counts: FlowExport {
                collector: collector.to_owned(),
                ..FlowExport::default()
            },
        })
    }

    /// Sends records, after the templates if these are due. `lost` records found no room before.
    fn send(&mut self, records: &[FlowRecord], lost: u64) {
        self.counts.not_sent += lost;
        self.counts.lost += lost;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_s = unix.map_or(0, |unix| unix.as_secs() as u32);
        let is_due = |at: Instant| at.elapsed() >= self.refresh;
        if self.refreshed.is_none_or(is_due) {
            // Before the first record, several copies help that one arrives (RFC 7011 section 8.4).
            let copies = if self.refreshed.is_none() { 2 } else { 1 };
            for _ in 0..copies {
                self.send_message(&self.encoder.templates(unix_s));
            }
            self.refreshed = Some(Instant::now());
        }
        for message in self.encoder.messages(records, unix_s) {
            self.send_message(&message);
        }
    }

    /// Sends a message. A refusal is about the message before: the collector's host has answered that
    /// nobody listens.
    fn send_message(&mut self, message: &Message) {
        let mut sent = self.socket.send(&message.bytes);
        if let Err(error) = &sent
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            self.note(error.to_string());
            self.counts.sent -= self.pending;
            self.counts.not_sent += self.pending;
            self.counts.refused += self.pending;
            sent = self.socket.send(&message.bytes);
        }
        self.pending = 0;
        match sent {
            Ok(_) => {
                self.counts.sent += message.records;
                self.pending = message.records;
            }
            Err(error) => {
                self.counts.not_sent += message.records;
                self.note(error.to_string());
            }
        }
    }

    /// Notes an error, and prints the first one.
    fn note(&mut self, error: String) {
        if self.counts.error.is_none() {
            let collector = &self.counts.collector;
            eprintln!(
                "sluice: warning: cannot send records of flows to {collector}: {error}; \
                 `sluice router status` shows how many were not sent"
            );
        }
        self.counts.error = Some(error);
    }
}

/// The largest packet where the path's MTU is not known (RFC 7011 section 10.3.3).
const MOST_PACKET: usize = 512;
/// A sample comes within this time.
const SAMPLE: Duration = Duration::from_secs(3);
/// The pause after a sample that did not come.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use sluice_router::process::watch::FlowEnd;

    use super::*;

    /// A disk with the bytes that are free, and those that are written.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            let (free, written) = &mut *disk;
            if *free == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let length = bytes.len().min(*free);
            *free -= length;
            written.extend(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record() -> FlowRecord {
        FlowRecord {
            first_unix_ms: 1000,
            last_unix_ms: 2000,
            reason: FlowEnd::IdleTimeout,
            object: "pipe 1".to_owned(),
            place: None,
            src: None,
            src_port: 7,
            dst: None,
            dst_port: 9,
            proto: 17,
            arrived_packets: 1,
            arrived_bytes: 100,
            packets: 1,
            bytes: 100,
            marked: 0,
            dropped: std::collections::BTreeMap::new(),
            dropped_bytes: 0,
            sojourn: None,
        }
    }

    #[test]
    fn a_log_goes_on_after_a_disk_was_full_and_counts_what_is_missing() {
        let disk = Disk::default();
        let mut log = Log::new(Box::new(disk.clone()), "flows.json".to_owned());
        let line = lines(&[record()]);
        // Room for one of three records and the beginning of the next one.
        disk.0.lock().unwrap().0 = line.len() + 10;
        assert!(log.write(&[record(), record(), record()], 0));
        assert_eq!((log.counts.written, log.counts.not_written), (1, 2));
        assert!(log.write(&[record()], 0));
        assert!(log.counts.error.is_some());
        disk.0.lock().unwrap().0 = usize::MAX;
        // Four more found no room before.
        assert!(log.write(&[record(), record()], 4));
        assert_eq!((log.counts.written, log.counts.not_written), (3, 7));
        assert_eq!(log.counts.lost, 4);
        let written = String::from_utf8(disk.0.lock().unwrap().1.clone()).unwrap();
        let expected = format!("{line}{}\n{line}{line}", &line[..10]);
        assert_eq!(written, expected);
    }

    #[test]
    fn a_log_without_a_reader_ends() {
        let (reader, writer) = io::pipe().unwrap();
        let mut log = Log::new(Box::new(writer), "-".to_owned());
        assert!(log.write(&[record()], 0));
        drop(reader);
        assert!(!log.write(&[record()], 0));
    }

    #[test]
    fn templates_come_first_and_again_after_the_interval() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let patience = Some(Duration::from_secs(10));
        collector.set_read_timeout(patience).unwrap();
        let address = collector.local_addr().unwrap().to_string();
        let mut export = Export::open(&address, Duration::from_secs(600)).unwrap();
        let sets = |count: usize| -> Vec<u16> {
            let mut bytes = [0; 1500];
            let set = |_| {
                let length = collector.recv(&mut bytes).unwrap();
                assert!(length <= MOST_PACKET - 28, "{length}");
                u16::from_be_bytes([bytes[16], bytes[17]])
            };
            (0..count).map(set).collect()
        };
        export.send(&[], 0);
        assert_eq!(sets(2), [2, 2]);
        export.send(&[], 0);
        export.refresh = Duration::ZERO;
        export.send(&[], 0);
        // The second call sent nothing.
        assert_eq!(sets(1), [2]);
        assert_eq!(export.counts.not_sent, 0);
        drop(collector);
        // The kernel answers that nobody listens; records that found no room count as well.
        export.send(&[], 3);
        export.send(&[], 0);
        assert_eq!((export.counts.not_sent, export.counts.lost), (3, 3));
        assert!(export.counts.error.is_some());
    }

    #[test]
    fn an_unfit_collector_is_refused_with_what_is_right() {
        for wrong in ["192.0.2.7", "192.0.2.7:x"] {
            let error = Export::open(wrong, Duration::ZERO).err().unwrap();
            let text = error.to_string();
            assert!(
                text.contains(wrong) && text.contains("192.0.2.7:4739"),
                "{text}"
            );
        }
    }
}
