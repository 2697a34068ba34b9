//! Killing what a command started: cargo leaves its tests alone when it is killed, and tests their servers.

use std::collections::HashMap;
use std::process::Command;

/// Kills a process and all that descend from it, by the table of processes as it stands in `/proc`.
pub(crate) fn kill_tree(root: u32) {
    let mut doomed = vec![root];
    let parents = parents();
    let mut at = 0;
    while let Some(&parent) = doomed.get(at) {
        let children = parents.iter().filter(|&(_, of)| *of == parent);
        doomed.extend(children.map(|(&process, _)| process));
        at += 1;
    }
    let mut kill = Command::new("kill");
    kill.arg("-KILL").args(doomed.iter().map(u32::to_string));
    // Fails when one of them ended in between: nothing is left to be done about it.
    drop(kill.status());
}

/// The parent of each process.
fn parents() -> HashMap<u32, u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((process, parent_of(&stat)?))
        })
        .collect()
}

/// The parent in a line of `/proc/PID/stat` (proc(5)): `PID (NAME) STATE PARENT …`. A name may have blanks and
/// parentheses of its own, so that the last one counts.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_stands_after_any_name() {
        assert_eq!(parent_of("12 (cargo) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (a) b) (c) R 8 12"), Some(8));
        assert_eq!(parent_of("12 (cut"), None);
    }
}
