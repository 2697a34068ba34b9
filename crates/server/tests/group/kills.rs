//! Kills the primary again and again. Measures the time until another node takes writes, and the
//! acknowledged writes that are lost.
//!
//! `GROUP_KILLS` sets the number of kills. The times are printed and do not affect the result,
//! because a machine may be slow.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use protocol::Value;

use crate::{Node, has, three_with, wait_until, writes};

/// Number of writes acknowledged before each kill.
const WRITES: usize = 500;

/// The results of the kills.
#[derive(Default)]
struct Seen {
    /// The times until another node took a write.
    times: Vec<Duration>,
    acknowledged: usize,
    /// The keys of acknowledged writes that the next primary does not have, with the index of the
    /// former primary.
    lost: Vec<(usize, String)>,
}

/// Waits until a node takes a write, and returns its index.
fn primary_of(nodes: &[Node], alive: impl Fn(usize) -> bool, key: &str) -> usize {
    let all: Vec<&Node> = nodes.iter().collect();
    let mut found = None;
    wait_until("a primary", &all, || {
        found = (0..nodes.len()).find(|&at| alive(at) && writes(&nodes[at], key));
        found.is_some()
    });
    found.unwrap()
}

#[allow(
    clippy::disallowed_methods,
    reason = "the time it takes is what is measured"
)]
fn kill_again_and_again(nodes: &mut [Node; 3]) -> Seen {
    let kills = std::env::var("GROUP_KILLS").map_or(20, |text| text.parse().unwrap());
    let mut seen = Seen::default();
    for kill in 0..kills {
        let primary = primary_of(nodes, |_| true, "first");
        let mut client = nodes[primary].client();
        let keys: Vec<String> = (0..WRITES).map(|at| format!("kept:{kill}:{at}:")).collect();
        // All writes are sent at once: the last ones are acknowledged shortly before they would be
        // sent to the replicas.
        for key in &keys {
            client.send(&["SET", key, "1"]).unwrap();
        }
        for _ in &keys {
            let written = client.receive().unwrap();
            assert_eq!(written, Some(Value::Simple(b"OK".to_vec())));
        }
        seen.acknowledged += keys.len();
        nodes[primary].kill();
        let begin = Instant::now();
        let next = primary_of(nodes, |at| at != primary, "next");
        seen.times.push(begin.elapsed());
        let lost = keys.into_iter().filter(|key| !has(&nodes[next], key));
        seen.lost.extend(lost.map(|key| (primary, key)));
        nodes[primary].start();
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("both follow", &all, || {
            (0..3).all(|at| at == next || nodes[at].is_synced())
        });
    }
    seen
}

impl Seen {
    fn told(&mut self, level: &str) -> String {
        self.times.sort_unstable();
        let at = |percent: usize| self.times[(self.times.len() - 1) * percent / 100].as_millis();
        format!(
            "{} kills at level {level}: until another took a write p50 {} ms, p90 {} ms, longest {} ms; {} of {} \
             acknowledged writes lost",
            self.times.len(),
            at(50),
            at(90),
            at(100),
            self.lost.len(),
            self.acknowledged
        )
    }
}

/// Returns the bytes of the files in the directories of what a node discarded.
pub(crate) fn given_up(node: &Node) -> Vec<u8> {
    let is_kept = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("rewound-")
    };
    let below = |path: PathBuf| {
        std::fs::read_dir(path)
            .unwrap()
            .map(|one| one.unwrap().path())
    };
    let kept = below(node.directory.join("iolite-data")).filter(|path| is_kept(path));
    let files = kept.flat_map(below);
    files
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect()
}

#[test]
#[ignore = "minutes; the soak runs it"]
fn another_takes_over_however_often_the_primary_is_killed_and_what_is_lost_is_kept_where_it_was() {
    let mut nodes = three_with(&[]);
    let mut seen = kill_again_and_again(&mut nodes);
    println!("{}", seen.told("os"));
    // The last writes may not have been sent to the replicas yet.
    assert!(seen.lost.len() < seen.acknowledged / 2);
    let given_up = nodes.each_ref().map(given_up);
    for (former, key) in &seen.lost {
        let mut windows = given_up[*former].windows(key.len());
        assert!(
            windows.any(|bytes| bytes == key.as_bytes()),
            "{key} is lost, and not kept by who had it\n{}",
            nodes[*former].log()
        );
    }
}

#[test]
#[ignore = "minutes; the soak runs it"]
fn at_quorum_nothing_is_lost_however_often_the_primary_is_killed() {
    let mut nodes = three_with(&["--durability", "quorum"]);
    let mut seen = kill_again_and_again(&mut nodes);
    println!("{}", seen.told("quorum"));
    assert_eq!(seen.lost, []);
}
