//! Clients that wait for samples.

use std::sync::Condvar;

use serde_json::value::RawValue;
use sluice_router::control::Refused;

use super::*;

/// Twice as many as there are places for other clients.
const WATCHERS: usize = 2 * SHORT.clients;

const SAMPLE: &str = "{\"stdout\":\"\",\"warnings\":[],\"sample\":7}\n";

/// A source of samples. A client that has sample 1 gets the next one at once; others get it when the test
/// says so.
#[derive(Default)]
struct Source {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    has_sample: bool,
}

impl Source {
    fn sample(&self, after: u64, patience: Duration) -> Result<Box<RawValue>, Refused> {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        let lacks = |state: &mut State| after != 1 && !state.has_sample;
        let waited = self.changed.wait_timeout_while(state, patience, lacks);
        let (mut state, waited) = waited.unwrap();
        state.waiting -= 1;
        match waited.timed_out() {
            true => Err(Refused::Late),
            false => Ok(RawValue::from_string("7".into()).unwrap()),
        }
    }

    /// Waits until as many clients wait.
    fn wait_for(&self, count: usize) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.state.lock().unwrap().waiting != count {
            assert!(Instant::now() < end, "{count} clients do not wait");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns a router for whose samples `WATCHERS` clients wait.
fn watched() -> (Served, Arc<Source>, Vec<UnixStream>) {
    let source = Arc::<Source>::default();
    let of_router = Arc::clone(&source);
    let sources = Sources {
        samples: Arc::new(move |after, patience| of_router.sample(after, patience)),
        before_status: Arc::new(|| {}),
    };
    let limits = Limits {
        // Threads may need some time to begin to wait on a busy machine.
        grace: Duration::from_secs(20),
        ..SHORT
    };
    let served = Served::watched(limits, Some(sources));
    let watchers = (0..WATCHERS).map(|_| watch(&served, 0)).collect();
    source.wait_for(WATCHERS);
    (served, source, watchers)
}

fn watch(served: &Served, after: u64) -> UnixStream {
    let mut stream = served.connect();
    writeln!(stream, "{{\"do\":\"watch\",\"after\":{after}}}").unwrap();
    stream
}

#[test]
fn clients_that_wait_for_samples_leave_the_places_to_others() {
    let (served, source, watchers) = watched();
    for _ in 0..3 * SHORT.clients {
        assert!(served.ask("pipe show").error.is_none());
    }
    // One more may not wait, but its connection goes on.
    let another = watch(&served, 0);
    let reply: Reply = serde_json::from_str(&line(&another)).unwrap();
    let failure = reply.error.unwrap();
    let expected = "the router is busy: 8 clients are waiting for samples; try again";
    assert_eq!(
        (failure.message.as_str(), failure.exit_code),
        (expected, 75)
    );
    assert_eq!(status_of(&another), STATUS);
    source.state.lock().unwrap().has_sample = true;
    source.changed.notify_all();
    for watcher in &watchers {
        assert_eq!(line(watcher), SAMPLE);
    }
    assert_eq!(served.turned_away.counts(), [("too_many".into(), 1)].into());
}

#[test]
fn a_client_that_hangs_up_does_not_wait_for_its_sample() {
    let (served, _source, watchers) = watched();
    let began = Instant::now();
    drop(watchers);
    while line(&watch(&served, 1)) != SAMPLE {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(began.elapsed() < SHORT.work);
}
