//! The primary is killed again and again: how long until another one takes writes, and what is lost of those acknowledged.
//!
//! `GROUP_KILLS` says how often; the times are printed, and are no matter for the outcome: a machine may be slow.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use protocol::Value;

use crate::{Node, has, three_with, wait_until, writes};

/// Acknowledged before each kill.
const WRITES: usize = 500;

/// What came of the kills.
#[derive(Default)]
struct Seen {
    /// Until another node took a write.
    times: Vec<Duration>,
    acknowledged: usize,
    /// Keys of acknowledged writes that the next primary does not have, with the place of the former one.
    lost: Vec<(usize, String)>,
}

/// The place of the primary among nodes, once one takes a write.
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
        // All at once: the last of them are acknowledged when they are about to leave.
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

/// The bytes of the files in directories of what a node gave up.
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
    // The last of them may not have left yet.
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
