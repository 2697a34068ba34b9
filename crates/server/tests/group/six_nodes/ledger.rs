//! Counters, each incremented by one client, and what that client knows of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use base::random::Prng;
use protocol::Value;
use testkit::client::Client;

use crate::histories::{self, is_refusal};
use crate::{Node, wait_until};

const WRITERS: u64 = 4;
/// Number of counters per client.
const COUNTERS: u64 = 200;
/// Maximum time that a writer waits for a node.
const REPLY_TIME: Duration = Duration::from_millis(700);
/// Time between two refused requests.
const REFUSED_TIME: Duration = Duration::from_millis(2);

/// A counter, as its writer knows it.
#[derive(Clone, Debug)]
struct Counter {
    key: String,
    /// The value in the last reply.
    acknowledged: i64,
    /// Number of increments that were done or may have been done.
    asked: i64,
    /// Whether a reply was lower than an earlier one.
    is_lost: bool,
}

/// The state that the writers share.
struct Shared {
    ports: Vec<u16>,
    /// Held by writers during a request.
    asking: RwLock<()>,
    is_over: AtomicBool,
    counters: Mutex<Vec<Vec<Counter>>>,
    wrong: Mutex<Option<String>>,
}

/// The writers that increment counters.
pub(super) struct Load {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
}

impl Load {
    #[allow(clippy::disallowed_methods, reason = "writers beside the test")]
    pub(super) fn begin(ports: &[u16], seed: u64) -> Self {
        let of_one = |writer: u64| {
            (0..COUNTERS).map(move |number| Counter {
                key: format!("counter:{seed}:{writer}:{number}:"),
                acknowledged: 0,
                asked: 0,
                is_lost: false,
            })
        };
        let counters = (0..WRITERS).map(|writer| of_one(writer).collect());
        let shared = Arc::new(Shared {
            ports: ports.to_vec(),
            asking: RwLock::default(),
            is_over: AtomicBool::new(false),
            counters: Mutex::new(counters.collect()),
            wrong: Mutex::default(),
        });
        let writers = (0..WRITERS).map(|writer| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || write(&shared, writer, seed))
        });
        Self {
            writers: writers.collect(),
            shared,
        }
    }

    /// Returns a guard that stops all writes while it is held.
    pub(super) fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared.asking.write().unwrap()
    }

    fn counters(&self) -> Vec<Counter> {
        self.shared.counters.lock().unwrap().concat()
    }

    /// Compares the stored counters with what the writers know. Returns the keys of counters that
    /// lost increments.
    ///
    /// # Errors
    /// Anything that must not happen.
    pub(super) fn compare(&self, nodes: &[&Node], is_quorum: bool) -> Result<Vec<String>, String> {
        if let Some(wrong) = &*self.shared.wrong.lock().unwrap() {
            return Err(wrong.clone());
        }
        let mut lost = Vec::new();
        for counter in self.counters() {
            let value = value_of(nodes, &counter.key);
            if value > counter.asked {
                return Err(format!("{counter:?} is {value}"));
            }
            if value < counter.acknowledged || counter.is_lost {
                if is_quorum {
                    return Err(format!("at quorum {counter:?} is {value}"));
                }
                lost.push(counter.key);
            }
        }
        Ok(lost)
    }

    /// Returns the number of stored counters.
    pub(super) fn counters_there(&self, nodes: &[&Node]) -> i64 {
        let there = self.counters().into_iter();
        let there = there.filter(|counter| value_of(nodes, &counter.key) > 0);
        i64::try_from(there.count()).unwrap()
    }

    /// Ends the writers. Returns a summary of their work.
    pub(super) fn end(self) -> String {
        self.shared.is_over.store(true, Ordering::Release);
        for writer in self.writers {
            writer.join().unwrap();
        }
        let counters = self.shared.counters.lock().unwrap().concat();
        let (asked, told) = counters.iter().fold((0, 0), |(asked, told), counter| {
            (asked + counter.asked, told + counter.acknowledged)
        });
        let lost = counters.iter().filter(|counter| counter.is_lost).count();
        format!("{asked} writes, {told} counted, {lost} counters were told less than before")
    }
}

/// Returns the value of a counter at the node that serves its slot.
fn value_of(nodes: &[&Node], key: &str) -> i64 {
    let mut value = None;
    wait_until("a counter is read", nodes, || {
        value = nodes.iter().find_map(|node| match node.run(&["GET", key]) {
            Value::Bulk(text) => Some(String::from_utf8(text).unwrap().parse().unwrap()),
            Value::Null => Some(0),
            _ => None,
        });
        value.is_some()
    });
    value.unwrap()
}

/// The result of a request.
enum Ended {
    Told(i64),
    /// The request was not done. The node may have named the owner of the slot.
    Refused(Option<u16>),
    Unknown,
}

fn write(shared: &Shared, writer: u64, seed: u64) {
    let place = usize::try_from(writer).unwrap();
    let mut random = Prng::seeded(seed * 10 + writer);
    let mut connections: Vec<Option<Client>> = shared.ports.iter().map(|_| None).collect();
    while !shared.is_over.load(Ordering::Acquire) {
        let number = random.index(usize::try_from(COUNTERS).unwrap());
        let mut counter = shared.counters.lock().unwrap()[place][number].clone();
        let mut at = random.index(shared.ports.len());
        counter.asked += 1;
        while !shared.is_over.load(Ordering::Acquire) {
            let one = shared.asking.read().unwrap();
            let ended = ask(&mut connections, &shared.ports, at, &counter.key);
            match ended {
                Ended::Told(told) => {
                    if told > counter.asked {
                        let mut wrong = shared.wrong.lock().unwrap();
                        wrong.get_or_insert(format!("{counter:?} was counted up to {told}"));
                    }
                    counter.is_lost |= told <= counter.acknowledged;
                    counter.acknowledged = told;
                }
                Ended::Refused(to) => {
                    drop(one);
                    let named = to.and_then(|to| shared.ports.iter().position(|port| *port == to));
                    if named.is_none() {
                        std::thread::sleep(REFUSED_TIME);
                    }
                    at = named.unwrap_or((at + 1) % shared.ports.len());
                    continue;
                }
                Ended::Unknown => {}
            }
            // The comparing thread sees it from now on.
            shared.counters.lock().unwrap()[place][number] = counter;
            drop(one);
            break;
        }
    }
}

fn ask(connections: &mut [Option<Client>], ports: &[u16], at: usize, key: &str) -> Ended {
    let known = connections[at].take();
    let Some(mut client) = known.or_else(|| connect(ports[at])) else {
        return Ended::Refused(None);
    };
    let Ok(told) = client.command(&["INCR", key]) else {
        return Ended::Unknown;
    };
    connections[at] = Some(client);
    match told {
        Value::Integer(number) => Ended::Told(number),
        Value::Error(text) => judge(&String::from_utf8_lossy(&text)),
        other => panic!("INCR: {other:?}"),
    }
}

pub(super) fn connect(port: u16) -> Option<Client> {
    histories::connect(port, REPLY_TIME, &[])
}

/// Classifies a request by its error.
fn judge(text: &str) -> Ended {
    if let Some(moved) = text.strip_prefix("MOVED ") {
        let port = moved.rsplit(':').next();
        return Ended::Refused(port.and_then(|port| port.parse().ok()));
    }
    match is_refusal(text) {
        true => Ended::Refused(None),
        false => Ended::Unknown,
    }
}
