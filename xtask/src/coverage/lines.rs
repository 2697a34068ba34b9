//! The lines of each file that ran, from a report in the format of lcov.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Files and directories that only tests use.
const OF_TESTS: [&str; 6] = [
    "/tests.rs",
    "/tests/",
    "/testing.rs",
    "/model.rs",
    "/figures.rs",
    "/naive.rs",
];

/// A file with the number of its lines with code, without tests.
pub(super) struct Covered {
    /// Path below the workspace's directory.
    pub(super) path: String,
    pub(super) lines: u32,
    pub(super) run: u32,
}

impl Covered {
    pub(super) fn missed(&self) -> u32 {
        self.lines - self.run
    }
}

/// Returns the files of the report that are below `root`.
pub(super) fn of_files(report: &str, root: &Path) -> Vec<Covered> {
    let mut files: BTreeMap<String, BTreeMap<usize, bool>> = BTreeMap::new();
    let mut current = None;
    for line in report.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            current = inside(Path::new(path), root);
        } else if let (Some(path), Some((number, count))) = (&current, line_count(line)) {
            let lines = files.entry(path.clone()).or_default();
            *lines.entry(number).or_default() |= count > 0;
        }
    }
    files
        .into_iter()
        .map(|(path, lines)| covered(path, &lines, root))
        .collect()
}

fn inside(path: &Path, root: &Path) -> Option<String> {
    let path = path.strip_prefix(root).ok()?.to_str()?;
    let is_test = OF_TESTS.iter().any(|part| path.contains(part));
    (!is_test).then(|| path.to_owned())
}

/// Parses `DA:LINE,COUNT`.
fn line_count(line: &str) -> Option<(usize, u64)> {
    let (number, count) = line.strip_prefix("DA:")?.split_once(',')?;
    Some((number.parse().ok()?, count.parse().ok()?))
}

fn covered(path: String, lines: &BTreeMap<usize, bool>, root: &Path) -> Covered {
    let text = fs::read_to_string(root.join(&path)).unwrap_or_default();
    let mut covered = Covered {
        path,
        lines: 0,
        run: 0,
    };
    for run in lines.range(..tests_begin(&text)).map(|(_, run)| *run) {
        covered.lines += 1;
        covered.run += u32::from(run);
    }
    covered
}

/// Returns the number of the line, from 1, where the unit tests at a file's end begin.
fn tests_begin(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .windows(2)
        .position(|pair| {
            let guarded = pair[0].starts_with("#[cfg(") && pair[0].contains("test");
            guarded && pair[1].starts_with("mod ") && pair[1].ends_with('{')
        })
        .map_or(usize::MAX, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_programs_are_one_and_tests_do_not_count() {
        let report = "SF:/w/crates/a/src/lib.rs\nDA:1,0\nDA:2,0\nend_of_record\n\
                      SF:/w/crates/a/src/lib.rs\nDA:1,7\nend_of_record\n\
                      SF:/w/crates/a/src/tests/deep.rs\nDA:1,7\nend_of_record\n\
                      SF:/elsewhere/lib.rs\nDA:1,7\nend_of_record\n";
        let files = of_files(report, Path::new("/w"));
        let found: Vec<_> = files
            .iter()
            .map(|file| (file.path.as_str(), file.lines, file.run, file.missed()))
            .collect();
        assert_eq!(found, [("crates/a/src/lib.rs", 2, 1, 1)]);
    }

    #[test]
    fn unit_tests_begin_at_their_attribute() {
        assert_eq!(
            tests_begin("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n"),
            3
        );
        assert_eq!(
            tests_begin("#[cfg(test)]\nmod tests;\nfn a() {}\n"),
            usize::MAX
        );
    }
}
