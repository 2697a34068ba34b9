//! The primary is killed again and again: how long until another one takes writes, and what is lost of those acknowledged.
//!
//! `GROUP_KILLS` says how often; the times are printed, and are no matter for the outcome: a machine may be slow.

use std::time::{Duration, Instant};

use protocol::Value;

use crate::{Node, three, wait_until, writes};

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

#[test]
#[ignore = "minutes; the soak runs it"]
#[allow(
    clippy::disallowed_methods,
    reason = "the time it takes is what is measured"
)]
fn another_takes_over_however_often_the_primary_is_killed() {
    let kills = std::env::var("GROUP_KILLS").map_or(20, |text| text.parse().unwrap());
    let mut nodes = three();
    let mut times: Vec<Duration> = Vec::new();
    let (mut acknowledged, mut lost) = (0_u64, 0_u64);
    for kill in 0..kills {
        let primary = primary_of(&nodes, |_| true, "first");
        // Each of these was acknowledged, at the level `os`: the last ones may be lost with the primary.
        let mut client = nodes[primary].client();
        for write in 0..200 {
            let key = format!("kept:{kill}:{write}");
            let written = client.command(&["SET", &key, "1"]).unwrap();
            assert_eq!(written, Value::Simple(b"OK".to_vec()));
        }
        acknowledged += 200;
        nodes[primary].kill();
        let begin = Instant::now();
        let next = primary_of(&nodes, |at| at != primary, "next");
        times.push(begin.elapsed());
        for write in 0..200 {
            let kept = nodes[next].run(&["EXISTS", &format!("kept:{kill}:{write}")]);
            lost += u64::from(kept == Value::Integer(0));
        }
        nodes[primary].start();
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("both follow", &all, || {
            (0..3).all(|at| at == next || nodes[at].is_synced())
        });
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_millis();
    println!(
        "{kills} kills: until another took a write p50 {} ms, p90 {} ms, longest {} ms; {lost} of {acknowledged} \
         acknowledged writes lost",
        at(50),
        at(90),
        at(100)
    );
    assert!(lost < acknowledged / 2, "{lost} of {acknowledged}");
}
