//! Asks every node repeatedly for the owners of hash slots: at one epoch all nodes must report the
//! same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;

use super::ledger::connect;

/// Time between two rounds over all nodes.
const LOOK: Duration = Duration::from_millis(10);

/// See the module.
pub(super) struct Watcher {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<usize, String>>,
}

impl Watcher {
    #[allow(clippy::disallowed_methods, reason = "beside the test")]
    pub(super) fn begin(ports: &[u16]) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let (ports, ends) = (ports.to_vec(), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || watch(&ports, &ends));
        Self { is_over, thread }
    }

    /// Returns the number of epochs seen.
    ///
    /// # Errors
    /// The different reports of two nodes at one epoch.
    pub(super) fn end(self) -> Result<usize, String> {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

fn watch(ports: &[u16], is_over: &AtomicBool) -> Result<usize, String> {
    let mut connections: Vec<Option<Client>> = ports.iter().map(|_| None).collect();
    let mut owners: BTreeMap<u64, (u16, String)> = BTreeMap::new();
    while !is_over.load(Ordering::Acquire) {
        for (at, &port) in ports.iter().enumerate() {
            let known = connections[at].take();
            let Some(mut client) = known.or_else(|| connect(port)) else {
                continue;
            };
            let Some((epoch, told)) = look(&mut client) else {
                continue;
            };
            connections[at] = Some(client);
            let (first, before) = owners.entry(epoch).or_insert_with(|| (port, told.clone()));
            if *before != told {
                return Err(format!(
                    "at epoch {epoch} {first} said\n{before}\nand {port}\n{told}"
                ));
            }
        }
        std::thread::sleep(LOOK);
    }
    Ok(owners.len())
}

/// Returns the epoch that a node knows, and the owners of slots at that epoch.
fn look(client: &mut Client) -> Option<(u64, String)> {
    let before = epoch(client)?;
    let Ok(Value::Bulk(nodes)) = client.command(&["CLUSTER", "NODES"]) else {
        return None;
    };
    if epoch(client)? != before {
        return None;
    }
    let nodes = String::from_utf8(nodes).unwrap();
    let of_one = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let slots = words.get(8..).filter(|slots| !slots.is_empty())?;
        // Moving slots are in brackets.
        let slots: Vec<&str> = slots
            .iter()
            .copied()
            .filter(|slot| !slot.starts_with('['))
            .collect();
        Some(format!("{} {}", words[0], slots.join(" ")))
    };
    let mut owners: Vec<String> = nodes.lines().filter_map(of_one).collect();
    owners.sort();
    Some((before, owners.join("\n")))
}

fn epoch(client: &mut Client) -> Option<u64> {
    let Ok(Value::Bulk(info)) = client.command(&["CLUSTER", "INFO"]) else {
        return None;
    };
    let info = String::from_utf8(info).unwrap();
    let mut lines = info.lines();
    let line = lines.find_map(|line| line.strip_prefix("cluster_current_epoch:"))?;
    line.parse().ok()
}
