//! Kills all processes that a command started. If cargo is killed, its tests keep running; if tests
//! are killed, so do their servers.

use std::collections::HashMap;
use std::process::Command;

/// Kills a process and all its descendants, according to the table of processes in `/proc`.
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
    // This fails if one of them ended in the meantime. Nothing else needs to be done then.
    drop(kill.status());
}

/// Returns the parent of each process.
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

/// Returns the parent from a line of `/proc/PID/stat` (proc(5)): `PID (NAME) STATE PARENT …`. A
/// name may contain blanks and parentheses, so the last parenthesis counts.
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
