//! Limits of the control groups (cgroups) of this process, which containers and services use.
//!
//! ```text
//!   /proc/self/cgroup     0::/a/b          version 2     /sys/fs/cgroup/a/b/memory.max
//!                         4:memory:/a/b    version 1     /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes
//! ```
//!
//! The groups above count, too. A container sees its own group as the root, and may get a path that
//! starts elsewhere: a path that does not exist has no limit.

use std::fs;
use std::path::{Component, Path};

/// File that lists the groups of the process.
pub const GROUPS: &str = "/proc/self/cgroup";
/// Usual mount point of groups.
pub const MOUNTED: &str = "/sys/fs/cgroup";

/// Returns the memory limit, in bytes, of a process in the `groups` that a file like [`GROUPS`]
/// lists, with limits in a directory like [`MOUNTED`]. Returns `None` if there is no limit, or none
/// that can be read. Reads one file per group, from that of the process up.
#[must_use]
pub fn memory_limit_bytes(groups: &Path, mounted: &Path) -> Option<u64> {
    let listed = fs::read_to_string(groups).ok()?;
    let limits = listed.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.is_empty() {
            limit_along(mounted, path, "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            limit_along(&mounted.join("memory"), path, "memory.limit_in_bytes")
        } else {
            None
        }
    });
    limits.min()
}

/// Returns the least number in the files called `name`, in a group's directory and all above it.
fn limit_along(root: &Path, path: &str, name: &str) -> Option<u64> {
    let path = Path::new(path.trim_start_matches('/'));
    let is_below = |part| matches!(part, Component::Normal(_));
    // A group that is seen from a place beside or below it has no directory here.
    let path = match path.components().all(is_below) {
        true => path,
        false => Path::new(""),
    };
    let limits = path.ancestors().filter_map(|group| {
        let text = fs::read_to_string(root.join(group).join(name)).ok()?;
        // `max`, or a number beyond all memory, means no limit. With 0 this process could not run.
        text.trim().parse().ok().filter(|bytes| *bytes > 0)
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// The file that lists groups, and their mount point, in a directory of the test.
    struct Groups(TempDir);

    impl Groups {
        fn new(listed: &str, limits: &[(&str, &str)]) -> Self {
            let place = TempDir::new().unwrap();
            let directory = place.path();
            fs::write(directory.join("listed"), listed).unwrap();
            for (path, text) in limits {
                let path = directory.join("mounted").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(place)
        }

        fn limit_bytes(&self) -> Option<u64> {
            let place = self.0.path();
            memory_limit_bytes(&place.join("listed"), &place.join("mounted"))
        }
    }

    fn limit_of(listed: &str, limits: &[(&str, &str)]) -> Option<u64> {
        Groups::new(listed, limits).limit_bytes()
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let limits = [
            ("a/b/c/memory.max", "max\n"),
            ("a/b/memory.max", "1073741824\n"),
            ("a/memory.max", "536870912\n"),
            ("memory.max", "2147483648\n"),
            ("x/memory.max", "1\n"),
        ];
        assert_eq!(limit_of("0::/a/b/c\n", &limits), Some(512 << 20));
        assert_eq!(limit_of("0::/x\n", &limits), Some(1));
        assert_eq!(limit_of("0::/a/b/c\n", &limits[..1]), None);
    }

    #[test]
    fn the_first_version_names_its_controller() {
        let listed = "12:cpu,cpuacct:/a\n4:memory:/a/b:c\n1:name=systemd:/a\n0::/a\n";
        let limits = [
            ("memory/a/b:c/memory.limit_in_bytes", "268435456\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cpu/a/memory.limit_in_bytes", "1\n"),
            ("memory/other/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(limit_of(listed, &limits), Some(256 << 20));
        // If both versions have a limit, as while a system migrates to the second version.
        let both = [limits[0], ("a/memory.max", "1048576\n")];
        assert_eq!(limit_of(listed, &both), Some(1 << 20));
        let mounted_with = "4:hugetlb,memory:/a/b:c\n";
        assert_eq!(limit_of(mounted_with, &limits), Some(256 << 20));
    }

    /// As in containers whose group is mounted as the root, and which see the path that it has
    /// outside.
    #[test]
    fn a_path_that_leads_nowhere_ends_at_the_uppermost_group() {
        let limits = [
            ("memory.max", "1048576\n"),
            ("b/memory.max", "1\n"),
            ("../memory.max", "1\n"),
        ];
        assert_eq!(limit_of("0::/docker/1\n", &limits), Some(1 << 20));
        assert_eq!(limit_of("0::/../b\n", &limits), Some(1 << 20));
        assert_eq!(limit_of("0::/\n", &limits), Some(1 << 20));
        let first = [("memory/memory.limit_in_bytes", "4096")];
        assert_eq!(limit_of("3:memory:/x/y\n", &first), Some(4096));
    }

    #[test]
    fn what_cannot_be_read_limits_nothing() {
        let bad = ["", "-1\n", "12 kB\n", "0\n", "99999999999999999999999\n"];
        for text in bad {
            let limits = [("a/memory.max", text)];
            assert_eq!(limit_of("0::/a\n", &limits), None, "{text:?}");
        }
        for listed in ["", "0\n", "0:\n", "::\n:\n", "nonsense", "0::/a/../..\n"] {
            assert_eq!(limit_of(listed, &[]), None, "{listed:?}");
        }
        let nowhere = std::env::temp_dir().join("iolite-cgroup-nowhere");
        assert_eq!(memory_limit_bytes(&nowhere, &nowhere), None);
    }
}
