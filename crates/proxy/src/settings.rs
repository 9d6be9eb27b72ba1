//! The settings of the proxy, and their errors.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use sluice_core::Span;
use sluice_core::spelling::nearest;
use sluice_exec::CaptureError;
use sluice_exec::link::{LinkError, LinkWords};
use sluice_loader::Ending;
use sluice_scenario::Link;
use sluice_tcp::{Config, EcnMode, cc};

use crate::request::{Destination, Host};

/// The settings of a proxy.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The link.
    pub link: LinkWords,
    /// The congestion control of both ends of the link.
    pub congestion_control: &'static cc::Descriptor,
    /// The addresses for SOCKS5 and HTTP.
    pub listen: Vec<Listen>,
    /// The ports with a fixed destination.
    pub maps: Vec<Map>,
    /// The address of the control API.
    pub control: Option<Listen>,
    /// The token that clients on other machines must present, also to the control API.
    pub token: Option<String>,
    /// Whether the machine's loopback can be reached.
    pub has_host: bool,
    /// The permitted lateness of packets.
    pub max_late: Option<Span>,
    /// The file for a capture of the packets at the program's end of the link.
    pub capture: Option<PathBuf>,
    /// Receives the reason of an algorithm that ends the proxy.
    pub ending: Ending,
}

/// The reason why the proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The link.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A port cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is no address to listen on.
    #[error("nothing to do: give --listen PORT, or --map PORT:HOST:PORT")]
    Idle,
    /// Other machines can reach the address, but there is no token.
    #[error("{0} can be reached from other machines: that needs --token, or the address 127.0.0.1")]
    NoToken(SocketAddr),
    /// Other machines could reach the map.
    #[error("--map {0} cannot ask for a token: it listens on loopback addresses only")]
    OpenMap(SocketAddr),
    /// The token is so short that it can be guessed.
    #[error("the token has {0} characters; it needs at least {LEAST_TOKEN}")]
    ShortToken(usize),
    /// A host of a map has no address.
    #[error("cannot resolve `{name}` of --map: {source}")]
    Unresolved {
        /// The host's name.
        name: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// The capture.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The kernel refused a step.
    #[error("cannot {step}: {source}")]
    Kernel {
        /// Which step.
        step: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// The reason why a word of the command line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// The word is not a port or address.
    #[error(
        "write it as PORT or ADDRESS:PORT, such as 1080 or 127.0.0.1:1080, with a port up to 65535"
    )]
    Listen,
    /// The word is not a map.
    #[error(
        "write it as PORT:HOST:PORT or ADDRESS:PORT:HOST:PORT, such as 5433:db:5432, with ports up to 65535"
    )]
    Map,
    /// The word is not a congestion control of Sluice's TCP.
    #[error("no congestion control `{word}`{hint}; there are {known}", hint = hint(.near))]
    CongestionControl {
        /// The word.
        word: String,
        /// Similar names.
        near: Vec<String>,
        /// All names.
        known: String,
    },
}

fn hint(near: &[String]) -> String {
    match near.first() {
        Some(near) => format!(" (did you mean `{near}`?)"),
        None => String::new(),
    }
}

/// A port to listen on, of the loopback or of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address [default: both addresses of the loopback].
    pub address: Option<IpAddr>,
    /// The port; 0 for any that is free.
    pub port: u16,
}

impl Listen {
    /// Returns the addresses. The first is required; the second may be missing on the machine.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        match self.address {
            Some(address) => vec![SocketAddr::new(address, self.port)],
            None => loopback
                .map(|address: IpAddr| SocketAddr::new(address, self.port))
                .into(),
        }
    }

    /// Returns the address, if other machines can reach it.
    pub fn is_open(&self) -> Option<SocketAddr> {
        let address = self.address.filter(|address| !address.is_loopback())?;
        Some(SocketAddr::new(address, self.port))
    }
}

impl FromStr for Listen {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        if let Ok(port) = text.parse() {
            let address = None;
            return Ok(Listen { address, port });
        }
        let text = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        let address: SocketAddr = text.parse().map_err(|_| WordError::Listen)?;
        Ok(Listen {
            address: Some(address.ip()),
            port: address.port(),
        })
    }
}

/// A port with a fixed destination across the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The address and port to listen on.
    pub listen: Listen,
    /// The destination of its connections.
    pub destination: Destination,
}

impl FromStr for Map {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let parts = parts(text).ok_or(WordError::Map)?;
        let (listen, host, port) = match parts.as_slice() {
            [listen, host, port] => ((*listen).to_owned(), host, port),
            [address, listen, host, port] => (format!("{address}:{listen}"), host, port),
            _ => return Err(WordError::Map),
        };
        let port: Option<u16> = port.parse().ok();
        Ok(Map {
            listen: listen.parse().map_err(|_| WordError::Map)?,
            destination: Destination {
                host: Host::parse(host).ok_or(WordError::Map)?,
                port: port.filter(|port| *port > 0).ok_or(WordError::Map)?,
            },
        })
    }
}

/// Splits at the colons outside of brackets.
fn parts(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut from, mut is_inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' if !is_inside => is_inside = true,
            ']' if is_inside => is_inside = false,
            '[' | ']' => return None,
            ':' if !is_inside => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    (!is_inside).then_some(parts)
}

/// Returns the names of the congestion controls of Sluice's TCP.
pub fn congestion_controls() -> impl Iterator<Item = &'static str> {
    cc::REGISTRY.iter().map(|entry| entry.name)
}

/// Returns a congestion control of Sluice's TCP. Without a name, it is the machine's default, or
/// CUBIC if Sluice does not implement the machine's default.
///
/// # Errors
/// [`WordError::CongestionControl`].
pub fn congestion_control(name: Option<&str>) -> Result<&'static cc::Descriptor, WordError> {
    let Some(word) = name else {
        let present = std::fs::read_to_string(PRESENT).unwrap_or_default();
        return Ok(cc::find(present.trim()).unwrap_or(&cc::CUBIC));
    };
    cc::find(word).ok_or_else(|| {
        let known: Vec<&str> = congestion_controls().collect();
        let near = nearest(word, known.iter().copied());
        WordError::CongestionControl {
            word: word.to_owned(),
            near: near.into_iter().map(Into::into).collect(),
            known: known.join(", "),
        }
    })
}

impl Settings {
    /// Checks the settings as far as possible without opening sockets.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn check(&self) -> Result<(), ProxyError> {
        if self.listen.is_empty() && self.maps.is_empty() {
            return Err(ProxyError::Idle);
        }
        if let Some(address) = self.maps.iter().find_map(|map| map.listen.is_open()) {
            return Err(ProxyError::OpenMap(address));
        }
        match &self.token {
            Some(token) if token.len() < LEAST_TOKEN => {
                return Err(ProxyError::ShortToken(token.chars().count()));
            }
            Some(_) => {}
            None => {
                let mut all = self.listen.iter().chain(&self.control);
                if let Some(address) = all.find_map(Listen::is_open) {
                    return Err(ProxyError::NoToken(address));
                }
            }
        }
        Ok(())
    }

    /// Returns the links, in the order of the path up.
    pub(crate) fn links(&self) -> Result<Vec<Link>, LinkError> {
        self.link.links()
    }

    /// Returns the configuration of both ends of the link, which matches that of the kernel under
    /// `sluice exec`.
    pub(crate) fn tcp(&self) -> Config {
        let control = self.congestion_control;
        Config {
            congestion_control: control,
            // Controls that interpret marks differently from losses do not work without ECN.
            ecn: match control.ecn {
                mode @ (EcnMode::Dctcp | EcnMode::Accurate) => mode,
                EcnMode::Off | EcnMode::Classic => EcnMode::Off,
            },
            receive_buffer: RECEIVE_BUFFER,
            // Bytes that are written together are sent together, as with the relay of
            // `sluice exec`.
            nagle: false,
            ..Config::default()
        }
    }
}

/// The least length of a token: 16 random letters and digits have 80 bits or more. (128 bits in
/// hexadecimal digits are 32 characters.)
const LEAST_TOKEN: usize = 16;
/// The largest receive window: the payload in the largest buffer of `sluice exec`. Linux offers the
/// share of the buffer that is payload, which is 1448 of 2304 bytes for full segments, or five eighths.
const RECEIVE_BUFFER: u64 = sluice_exec::LARGEST_BUFFER / 8 * 5;
/// The file with the machine's default congestion control.
const PRESENT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

#[cfg(test)]
mod tests {
    use sluice_scenario::{Direction, Preset};

    use super::*;

    #[test]
    fn a_port_is_the_loopback_s_unless_an_address_is_given() {
        let listen: Listen = "1080".parse().unwrap();
        assert_eq!(listen.is_open(), None);
        let addresses: Vec<String> = listen.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1:1080", "[::1]:1080"]);
        for (text, is_open) in [
            ("127.0.0.1:1", false),
            ("localhost:1", false),
            ("[::1]:1", false),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
            ("192.0.2.1:1", true),
        ] {
            let listen: Listen = text.parse().unwrap();
            assert_eq!(listen.is_open().is_some(), is_open, "{text}");
        }
        for text in ["", "x", "65536", "-1", "1:2", "example.org:1"] {
            assert_eq!(text.parse::<Listen>(), Err(WordError::Listen), "{text}");
        }
    }

    #[test]
    fn a_map_has_a_port_and_a_place() {
        let map = |text: &str| text.parse::<Map>().map(|map| map.destination.to_string());
        assert_eq!(map("5433:db:5432").as_deref(), Ok("db:5432"));
        assert_eq!(map("127.0.0.1:1:a:2").as_deref(), Ok("a:2"));
        assert_eq!(
            map("[::1]:1:[2001:db8::1]:2").as_deref(),
            Ok("[2001:db8::1]:2")
        );
        for text in [
            "",
            "1",
            "1:a",
            "1:a:0",
            "1:a:b",
            "x:a:1",
            "1::2",
            "1:2:3:4:5",
            "1:[a:2",
        ] {
            assert_eq!(map(text), Err(WordError::Map), "{text}");
        }
    }

    fn settings(listen: &[&str], token: Option<&str>) -> Settings {
        Settings {
            link: LinkWords::default(),
            congestion_control: &cc::CUBIC,
            listen: listen.iter().map(|text| text.parse().unwrap()).collect(),
            maps: Vec::new(),
            control: None,
            token: token.map(str::to_owned),
            has_host: true,
            max_late: None,
            capture: None,
            ending: Ending::new(),
        }
    }

    #[test]
    fn the_receive_window_holds_twice_what_a_named_link_holds() {
        // When slow start has filled the link and its queue, the sender learns of the first loss one
        // round trip later, and has doubled its window by then.
        let mut largest = 0;
        for preset in Preset::all() {
            for direction in [Direction::Down, Direction::Up] {
                let bytes = |span: Span| {
                    u128::from(preset.rate(direction).as_bps()) * u128::from(span.as_ns())
                        / 8_000_000_000
                };
                let held = bytes(preset.rtt()) + bytes(preset.queue());
                largest = largest.max(held);
            }
        }
        // The largest is `geo`: 100 Mbit/s x (600 + 500) ms / 8 = 13.75 MB.
        assert_eq!(largest, 13_750_000);
        let config = settings(&["1080"], None).tcp();
        assert!(u128::from(config.receive_buffer) >= 2 * largest);
    }

    #[test]
    fn what_others_can_reach_needs_a_token_of_some_length() {
        assert!(settings(&["1080"], None).check().is_ok());
        let error = |settings: Settings| settings.check().unwrap_err().to_string();
        assert!(error(settings(&["0.0.0.0:1080"], None)).contains("needs --token"));
        assert!(error(settings(&["1080"], Some("short"))).contains("5 characters"));
        assert!(
            settings(&["0.0.0.0:1080"], Some("0123456789abcdef"))
                .check()
                .is_ok()
        );
        let mut control = settings(&["1080"], None);
        control.control = Some("0.0.0.0:1".parse().unwrap());
        assert!(error(control).contains("needs --token"));
        let mut map = settings(&[], Some("0123456789abcdef"));
        assert!(error(map.clone()).contains("nothing to do"));
        map.maps = vec!["0.0.0.0:1:db:2".parse().unwrap()];
        assert!(error(map).contains("loopback"));
    }

    #[test]
    fn an_unknown_congestion_control_gets_the_nearest_name() {
        let error = congestion_control(Some("cubik")).unwrap_err().to_string();
        assert!(error.contains("did you mean `cubic`?"), "{error}");
        assert_eq!(congestion_control(Some("bbr")).unwrap().name, "bbr");
    }
}
