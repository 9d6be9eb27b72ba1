import shutil
shutil.copy('/tmp/errand.rs','crates/net/src/errand.rs')
p='crates/net/src/lib.rs'
s=open(p).read()
s=s.replace('pub mod cores;\n','pub mod cores;\nmod errand;\n',1)
open(p,'w').write(s)
p='crates/net/src/confine.rs'
s=open(p).read()
s=s.replace('''/// Runs `work` with the privileges that the process had''','''/// Lets the broker do a job and does not wait for it. Returns the job if there is no broker.
pub(crate) fn send_to_broker(job: sys::Job) -> Option<sys::Job> {
    let broker = BROKER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match broker {
        Some(broker) => broker.jobs.send(job).err().map(|refused| refused.0),
        None => Some(job),
    }
}

/// Runs `work` with the privileges that the process had''',1)
open(p,'w').write(s)
p='crates/net/src/port/trains.rs'
s=open(p).read()
s=s.replace('''    links: Links,
    settings: DeviceSettings,
    looked_ns: u64,
''','''    /// `None` while the helper has it.
    probe: Option<Probe>,
    asked: Option<Asked>,
    looked_ns: u64,
''')
s=s.replace('''impl Trains {
    /// Largest number of frames of a batch.''','''/// What it takes to ask for the properties of an interface. The kernel may take long to answer.
struct Probe {
    links: Links,
    settings: DeviceSettings,
}

/// A question about the interface that the helper has.
struct Asked {
    answer: Errand<(Probe, Option<Properties>)>,
    /// Frames that had been sent when it was asked.
    reported: u64,
}

/// The properties of an interface, and whether trains could be used on it.
type Properties = (Interface, bool);

impl Probe {
    fn ask(&mut self, interface: &str) -> Option<Properties> {
        let link = self.links.interface(interface).ok()?;
        let is_fit = is_fit(&link, &self.settings);
        Some((link, is_fit))
    }
}

impl Trains {
    /// Largest number of frames of a batch.''')
s=s.replace('''            links: namespace.links().ok()?,
            settings,
''','''            probe: Some(Probe {
                links: namespace.links().ok()?,
                settings,
            }),
            asked: None,
''')
s=s.replace('''        if sys::clock_ns(libc::CLOCK_MONOTONIC) >= self.looked_ns + LOOK_EVERY_NS {
            self.look(counters);
        }
''','''        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        if self.asked.is_some() || now_ns >= self.looked_ns + LOOK_EVERY_NS {
            self.look(counters);
        }
''')
a=s.index('    /// Checks whether the interface can still use trains, and how many'); b=s.index('    /// Sends the batch that was sorted last, and frees it.')
s=s[:a]+'''    /// Starts counting frames, for a port that has sent `counters.sent` of them.
    pub(super) fn begin(&mut self, counters: &Counters) {
        self.reported_before = counters.sent;
    }

    /// Lets the helper ask whether the interface can still use trains, and how many frames it has
    /// really sent, or judges its answer. For a single frame the kernel reports a drop; for a train it
    /// does not report the number of frames dropped. Frames that are missing in two consecutive answers
    /// are lost, because no frame is in transit to a neighbour for that long. Frames that are sent
    /// while the helper asks, and those that other programs send on the interface, can hide losses,
    /// but not add any.
    pub(super) fn look(&mut self, counters: &mut Counters) {
        if let Some(asked) = self.asked.take() {
            match asked.answer.poll() {
                Err(NotDone::Pending) => self.asked = Some(asked),
                Err(NotDone::Failed) => self.is_over = true,
                Ok((probe, answer)) => {
                    self.probe = Some(probe);
                    self.judge(answer, asked.reported, counters);
                }
            }
            return;
        }
        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        if now_ns < self.looked_ns + LEAST_APART_NS {
            return;
        }
        self.looked_ns = now_ns;
        let Some(mut probe) = self.probe.take() else {
            return;
        };
        let interface = self.interface.name.clone();
        self.asked = Some(Asked {
            answer: Errand::send(move || {
                let answer = probe.ask(&interface);
                (probe, answer)
            }),
            reported: self.reported(counters),
        });
    }

    /// Like [`Trains::look`] for the last time: waits for the answer.
    pub(super) fn conclude(&mut self, counters: &mut Counters) {
        let end_ns = sys::clock_ns(libc::CLOCK_MONOTONIC) + LOOK_EVERY_NS;
        while self.asked.is_some() && sys::clock_ns(libc::CLOCK_MONOTONIC) < end_ns {
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.look(counters);
        }
        if let Some(mut probe) = self.probe.take() {
            let answer = probe.ask(&self.interface.name);
            self.judge(answer, self.reported(counters), counters);
            self.probe = Some(probe);
        }
    }

    fn reported(&self, counters: &Counters) -> u64 {
        (counters.sent + self.lost).saturating_sub(self.reported_before)
    }

    fn judge(&mut self, answer: Option<Properties>, reported: u64, counters: &mut Counters) {
        // If the interface is gone, the next transmission reports it.
        let Some((link, is_fit)) = answer else {
            return;
        };
        if link.index != self.interface.index {
            self.is_over = true;
            return;
        }
        self.is_fit = is_fit;
        self.interface.mtu = link.mtu;
        let seen = link
            .traffic
            .sent
            .saturating_sub(self.interface.traffic.sent);
        let missing = reported.saturating_sub(seen);
        let lost = missing.min(self.missing).max(self.lost) - self.lost;
        counters.lose(Loss::Refused, lost);
        counters.sent -= lost;
        self.lost += lost;
        self.missing = missing;
    }

'''+s[b:]
s=s.replace('use super::messages::Messages;\n','use super::messages::Messages;\n',1)
s=s.replace('use crate::namespace::{DeviceSettings','use crate::errand::{Errand, NotDone};\nuse crate::namespace::{DeviceSettings',1)
open(p,'w').write(s)
p='crates/net/src/port/packet.rs'
s=open(p).read()
a=s.index('    /// Checks, ten times a second, whether an interface that was lost is back'); b=s.index('impl Port for PacketPort {')
s=s[:a]+'''    /// Lets the helper check, ten times a second, whether an interface that was lost is back under the
    /// same name, possibly with another index, and attach the socket to it.
    fn look_for_it(&mut self) {
        let Some(absence) = &mut self.absence else {
            return;
        };
        if let Some(search) = absence.search.take() {
            match search.poll() {
                Err(NotDone::Pending) => absence.search = Some(search),
                Err(NotDone::Failed) => {}
                Ok((links, found)) => {
                    absence.links = links;
                    if let Some(found) = found {
                        self.attach(found);
                    }
                }
            }
            return;
        }
        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        if now_ns < absence.next_look_ns {
            return;
        }
        absence.next_look_ns = now_ns + LOOK_EVERY_NS;
        let (Ok(namespace), Ok(socket)) = (self.namespace.try_clone(), self.socket.try_clone())
        else {
            return;
        };
        let search = Search {
            namespace,
            socket,
            interface: self.interface.clone(),
            index: self.index,
            protocol: self.protocol,
            sends_trains: self.sends_trains,
            is_promiscuous: self.promiscuity != Promiscuity::NotAsked,
        };
        let links = absence.links.take();
        absence.search = Some(Errand::send(move || {
            let mut links = links.or_else(|| search.namespace.links().ok());
            let found = links.as_mut().and_then(|links| search.run(links));
            (links, found)
        }));
    }

    fn attach(&mut self, found: Found) {
        let link = found.link;
        self.index = link.index;
        if let Some(promiscuity) = found.promiscuity {
            self.promiscuity = promiscuity;
        }
        self.capabilities.mtu = link.mtu;
        if link.is_up {
            self.absence = None;
            // Its offloads may differ now.
            self.trains = found.trains;
            if let Some(trains) = &mut self.trains {
                trains.begin(&self.counters);
            }
        }
    }
}

/// What the helper needs to find an interface and to attach the socket to it.
struct Search {
    namespace: Namespace,
    socket: Socket,
    interface: String,
    index: u32,
    protocol: libc::c_int,
    sends_trains: bool,
    is_promiscuous: bool,
}

/// An interface that is there, and attached.
struct Found {
    link: Interface,
    /// `None` if the socket was attached already.
    promiscuity: Option<Promiscuity>,
    /// `Some` if the interface is up and trains pay off.
    trains: Option<Trains>,
}

impl Search {
    fn run(&self, links: &mut Links) -> Option<Found> {
        let link = links.interface(&self.interface).ok()?;
        let mut promiscuity = None;
        // An interface that was moved away and back may keep its index, but the socket was detached
        // from it.
        if link.index != self.index || !is_bound(&self.socket, link.index) {
            bind(&self.socket, link.index, self.protocol).ok()?;
            let ask = || Promiscuity::ask(&self.socket, link.index);
            promiscuity = self.is_promiscuous.then(ask);
        }
        let trains = (self.sends_trains && link.is_up)
            .then(|| Trains::open(&self.namespace, &link, &Counters::default()))
            .flatten();
        Some(Found {
            link,
            promiscuity,
            trains,
        })
    }
}

'''+s[b:]
s=s.replace('''struct Absence {
    next_look_ns: u64,
    links: Option<Links>,
}''','''struct Absence {
    next_look_ns: u64,
    links: Option<Links>,
    /// Under way at the helper, which has the links meanwhile.
    search: Option<Errand<(Option<Links>, Option<Found>)>>,
}''')
s=s.replace('''    fn release(&mut self, pool: &mut Pool) {
        self.inward.release(pool);
''','''    fn release(&mut self, pool: &mut Pool) {
        if let Some(trains) = &mut self.trains {
            trains.conclude(&mut self.counters);
        }
        self.inward.release(pool);
''')
s=s.replace('''        let link = namespace.links()?.interface(interface)?;
        // With protocol 0''','''        keep_helper();
        let link = namespace.links()?.interface(interface)?;
        // With protocol 0''')
s=s.replace('use crate::namespace::{LinkError, Links,','use crate::errand::{Errand, NotDone, keep_helper};\nuse crate::namespace::{Interface, LinkError, Links,')
open(p,'w').write(s)
