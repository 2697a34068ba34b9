//! `--check-system`: finds properties of this machine that would slow the server down or limit it.

use std::fmt::Write as _;
use std::fs;

/// Connections of the default `maxclients`, plus the server's other files.
const OPEN_FILES_WANTED: u64 = 10_032;
/// Default of `tcp-backlog`.
const BACKLOG_WANTED: u64 = 511;

/// Outcome of all checks.
pub(crate) struct Report {
    /// One line per check, and a sentence for each that failed.
    pub(crate) text: String,
    /// Whether no check failed.
    pub(crate) is_good: bool,
}

/// Runs all checks. Skips checks that the system does not permit.
pub(crate) fn report() -> Report {
    let read = |path: &str| fs::read_to_string(path).ok();
    let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let limits = read("/proc/self/limits");
    let backlog = read("/proc/sys/net/core/somaxconn");
    let checks = [
        ("slow-clocksource", clock.as_deref().map(check_clock)),
        ("open-files", limits.as_deref().map(check_open_files)),
        ("tcp-backlog", backlog.as_deref().map(check_backlog)),
    ];
    summarise(&checks)
}

fn summarise(checks: &[(&str, Option<Result<(), String>>)]) -> Report {
    let mut report = Report {
        text: String::new(),
        is_good: true,
    };
    for (name, outcome) in checks {
        let outcome = match outcome {
            None => "skipped".to_owned(),
            Some(Ok(())) => "OK".to_owned(),
            Some(Err(sentence)) => {
                report.is_good = false;
                format!("WARNING:\n{sentence}")
            }
        };
        let _infallible = writeln!(report.text, "[{name}]...{outcome}");
    }
    report
}

fn check_clock(source: &str) -> Result<(), String> {
    match source.trim() {
        source @ ("hpet" | "acpi_pm" | "jiffies") => Err(format!(
            "The clock source '{source}' makes every look at the time a slow call into the \
             kernel. Use 'tsc' or 'kvm-clock' where the machine has one."
        )),
        _ => Ok(()),
    }
}

fn check_open_files(limits: &str) -> Result<(), String> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let hard = line
        .and_then(|line| line.split_whitespace().nth(1))
        .unwrap_or_default();
    match hard.parse::<u64>() {
        Ok(limit) if limit < OPEN_FILES_WANTED => Err(format!(
            "At most {limit} files may be open; 10000 clients need {OPEN_FILES_WANTED}. Raise it \
             with 'ulimit -n' or LimitNOFILE."
        )),
        _ => Ok(()),
    }
}

fn check_backlog(somaxconn: &str) -> Result<(), String> {
    match somaxconn.trim().parse::<u64>() {
        Ok(limit) if limit < BACKLOG_WANTED => Err(format!(
            "The kernel keeps at most {limit} connections waiting, less than the {BACKLOG_WANTED} \
             of tcp-backlog. Raise net.core.somaxconn."
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_tell_good_from_bad() {
        assert!(check_clock("tsc\n").is_ok());
        assert!(check_clock("hpet\n").is_err());
        let limits =
            |hard: &str| format!("Limit Soft Hard Units\nMax open files  1024  {hard}  files\n");
        assert!(check_open_files(&limits("4096")).is_err());
        assert!(check_open_files(&limits("20000")).is_ok());
        assert!(check_open_files(&limits("unlimited")).is_ok());
        assert!(check_backlog("128\n").is_err());
        assert!(check_backlog("4096\n").is_ok());
    }

    #[test]
    fn one_warning_spoils_the_report() {
        let report = summarise(&[
            ("a", Some(Ok(()))),
            ("b", None),
            ("c", Some(Err("No.".into()))),
        ]);
        assert_eq!(
            report.text,
            "[a]...OK\n[b]...skipped\n[c]...WARNING:\nNo.\n"
        );
        assert!(!report.is_good);
    }
}
