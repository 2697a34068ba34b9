//! Tests of a primary at level quorum whose log cannot be written because its file system is full.
//! If other nodes have everything that was acknowledged, one of them takes over. Otherwise the
//! primary stays, and continues when there is space.
//!
//! The tests need root, to mount a file system for the log's files alone: the control log is kept
//! elsewhere.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use protocol::Value;
use testkit::patience::Patience;

use crate::{Node, WAIT, joined_by_two, sets, wait_until};

/// Size of the file system in MiB.
const SIZE_MIB: usize = 96;
const VALUE_BYTES: usize = 200_000;

/// A file system of its own, mounted until it is dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a file system at a new directory, or returns why that is impossible here.
    pub(crate) fn at(path: PathBuf) -> Result<Self, String> {
        fs::create_dir_all(&path).unwrap();
        let size = format!("size={SIZE_MIB}m");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "log"])
            .arg(&path)
            .output();
        let mount = mount.map_err(|error| error.to_string())?;
        match mount.status.success() {
            true => Ok(Self(path)),
            false => Err(String::from_utf8_lossy(&mount.stderr).into_owned()),
        }
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Uses up all space that is left.
    pub(crate) fn fill(&self) {
        let mut filler = File::options()
            .create(true)
            .append(true)
            .open(self.filler())
            .unwrap();
        loop {
            match filler.write_all(&[1; 4096]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn empty(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The server may still have open files there.
        let _unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Starts three nodes at level quorum, the first of which is the primary and has its log on a file
/// system of its own. Returns `None` if that is impossible here.
#[allow(clippy::print_stdout, reason = "for who reads the run")]
fn three_with_a_log_elsewhere() -> Option<([Node; 3], Mounted)> {
    let level = ["--durability", "quorum"];
    let mut first = Node::to_be_started(&[], &["--cluster-group", "yes", level[0], level[1]]);
    let mounted = match Mounted::at(first.directory.join("iolite-data/log")) {
        Ok(mounted) => mounted,
        Err(reason) => {
            println!("skipped: a full disk needs root ({reason})");
            return None;
        }
    };
    first.start();
    let nodes = joined_by_two(first, &level);
    Some((nodes, mounted))
}

fn is_taken(node: &Node, key: &str, bytes: usize) -> bool {
    sets(node, key, &"x".repeat(bytes))
}

/// Writes keys of its own until the log has no space. Returns the number of acknowledged writes.
fn write_until_refused(node: &Node, mounted: &Mounted) -> usize {
    let patience = Patience::of(WAIT);
    let mut count = 0;
    // The leader of a group of three may just have changed, so the first key may be refused.
    while count == 0 || is_taken(node, &format!("key:{count}"), VALUE_BYTES) {
        count += usize::from(count > 0 || is_taken(node, "key:0", VALUE_BYTES));
        mounted.fill();
        assert!(patience.lasts(), "{count} keys\n{}", node.log());
    }
    wait_until("its log has no room", &[node], || {
        node.log().contains("The log cannot be written")
    });
    count
}

#[test]
fn a_primary_whose_log_has_no_room_gives_way_to_a_copy_that_has_all() {
    let Some((nodes, mounted)) = three_with_a_log_elsewhere() else {
        return;
    };
    let [first, second, third] = &nodes;
    let all = [first, second, third];
    let count = write_until_refused(first, &mounted);
    let mut primary = None;
    wait_until("another primary", &all, || {
        let mut others = [second, third].into_iter();
        primary = others.find(|node| node.is_primary() && is_taken(node, "after", 1));
        primary.is_some()
    });
    let primary = primary.unwrap();
    for number in 0..count {
        let length = primary.run(&["STRLEN", &format!("key:{number}")]);
        assert_eq!(length, Value::Integer(200_000), "{number} of {count}");
    }
    assert!(!first.is_primary());
    mounted.empty();
    wait_until("the former primary follows", &all, || {
        first.is_synced() && first.run(&["EXISTS", "after"]) == Value::Integer(1)
    });
}

#[test]
fn a_primary_whose_log_has_no_room_stays_where_no_majority_is_left_without_it() {
    let Some((mut nodes, mounted)) = three_with_a_log_elsewhere() else {
        return;
    };
    nodes[2].kill();
    let [first, second, _] = &nodes;
    let all = [first, second];
    let count = write_until_refused(first, &mounted);
    std::thread::sleep(Duration::from_secs(4));
    assert!(first.is_primary(), "{}", first.log());
    assert!(!is_taken(first, "never", 1));
    mounted.empty();
    wait_until("written again", &all, || is_taken(first, "after", 1));
    for number in 0..count {
        let length = first.run(&["STRLEN", &format!("key:{number}")]);
        assert_eq!(length, Value::Integer(200_000), "{number} of {count}");
    }
}
