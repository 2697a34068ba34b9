//! `iolite doctor`: examines a running server and its machine, and reports what is wrong, why, and
//! what to do.
//!
//! A rule is one row: it gets the values of INFO and CONFIG GET, and returns a reason or nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use protocol::Value;
use tool::endpoint::{Endpoint, Session};
use tool::error::BenchError;

use crate::cluster_tool::quoted;
use crate::system_check;

/// Maximum time for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Remaining lifetime of a certificate, in seconds, below which it is reported.
const CERTIFICATE_S: f64 = 14.0 * 86_400.0;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// Worth knowing.
    Note,
    /// Will cause harm.
    Warning,
    /// Causes harm now, or loses data.
    Critical,
}

/// Known facts about the server.
#[derive(Default)]
struct Facts {
    info: BTreeMap<String, String>,
    config: BTreeMap<String, String>,
}

impl Facts {
    fn number(&self, name: &str) -> f64 {
        let text = self.info.get(name);
        text.and_then(|text| text.trim_end_matches('%').parse().ok())
            .unwrap_or(0.0)
    }

    fn text(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    fn directive(&self, name: &str) -> &str {
        self.config.get(name).map_or("", String::as_str)
    }
}

/// A check.
struct Rule {
    name: &'static str,
    severity: Severity,
    find: fn(&Facts) -> Option<String>,
    remedy: &'static str,
}

#[rustfmt::skip] // One row, one rule.
const RULES: &[Rule] = &[
    Rule { name: "log-faulty", severity: Severity::Critical, remedy: "Make room on the device of dir, or replace it; the server log names the reason.",
        find: |f| (f.text("aof_last_write_status") == "err").then(|| "the log cannot be written: writes are refused".to_owned()) },
    Rule { name: "checkpoint-failed", severity: Severity::Critical, remedy: "Read the server log, make room, and run BGSAVE.",
        find: |f| (f.text("rdb_last_bgsave_status") == "err").then(|| "the last checkpoint failed".to_owned()) },
    Rule { name: "primary-lost", severity: Severity::Critical, remedy: "Look at the primary and at the network between; master_link_refused_reason says what it was told.",
        find: |f| (f.text("master_link_status") == "down").then(|| format!("the link to the primary {} is down", f.text("master_host"))) },
    Rule { name: "open-to-all", severity: Severity::Critical, remedy: "Set requirepass or ACL users, or bind to addresses of this machine.",
        find: |f| {
            let is_wide = f.directive("bind").split(' ').any(|word| matches!(word.trim_start_matches('-'), "*" | "0.0.0.0" | "::" | "::*"));
            let is_open = f.directive("requirepass").is_empty() && f.directive("protected-mode") == "no" && f.directive("aclfile").is_empty();
            (is_wide && is_open).then(|| "everybody who reaches the port may run every command: no password, protected-mode no".to_owned())
        } },
    Rule { name: "nothing-kept", severity: Severity::Note, remedy: "Set durability to checkpoint, everysec or always, unless this is a cache.",
        find: |f| (f.directive("durability") == "none").then(|| "nothing is kept when the process ends (durability none)".to_owned()) },
    Rule { name: "memory-unlimited", severity: Severity::Warning, remedy: "Set maxmemory below what the machine or its control group allows.",
        find: |f| (f.directive("maxmemory") == "0").then(|| "maxmemory is 0: the kernel ends the process where memory ends".to_owned()) },
    Rule { name: "memory-near-limit", severity: Severity::Warning, remedy: "Raise maxmemory, give keys deadlines, or choose a policy that evicts.",
        find: |f| (f.number("maxmemory") > 0.0 && f.number("used_memory") > 0.9 * f.number("maxmemory"))
            .then(|| format!("{:.0} % of maxmemory is in use", f.number("used_memory") * 100.0 / f.number("maxmemory"))) },
    Rule { name: "fragmentation", severity: Severity::Note, remedy: "CONFIG SET activedefrag yes, or MEMORY PURGE once.",
        find: |f| (f.number("mem_fragmentation_ratio") > 1.5 && f.number("mem_fragmentation_bytes") > 256e6)
            .then(|| format!("the process holds {:.2} times what is in use", f.number("mem_fragmentation_ratio"))) },
    Rule { name: "clients-near-limit", severity: Severity::Warning, remedy: "Raise maxclients, or find the pool that grows in CLIENT LIST.",
        find: |f| (f.number("connected_clients") > 0.9 * f.number("maxclients") && f.number("maxclients") > 0.0)
            .then(|| format!("{} of {} clients are connected", f.text("connected_clients"), f.text("maxclients"))) },
    Rule { name: "connections-rejected", severity: Severity::Warning, remedy: "Raise maxclients and ulimit -n.",
        find: |f| (f.number("rejected_connections") > 0.0).then(|| format!("{} connections were turned away", f.text("rejected_connections"))) },
    Rule { name: "certificate-ends", severity: Severity::Warning, remedy: "Replace the files of tls-cert-file and tls-key-file; they are read again by themselves.",
        find: |f| (f.text("tls_server_cert_serial") != "none" && f.info.contains_key("tls_server_cert_serial") && f.number("tls_server_cert_expires_in_seconds") < CERTIFICATE_S)
            .then(|| format!("the server's certificate ends in {:.0} days", f.number("tls_server_cert_expires_in_seconds") / 86_400.0)) },
    Rule { name: "logins-fail", severity: Severity::Note, remedy: "ACL LOG names user and client.",
        find: |f| (f.number("acl_access_denied_auth") > 100.0).then(|| format!("{} logins failed", f.text("acl_access_denied_auth"))) },
    Rule { name: "clients-closed-for-output", severity: Severity::Warning, remedy: "Have the client read faster, or raise client-output-buffer-limit.",
        find: |f| (f.number("client_output_buffer_limit_disconnections") > 0.0)
            .then(|| format!("{} clients were closed because they did not read", f.text("client_output_buffer_limit_disconnections"))) },
];

/// Report of the findings, and the exit code for the worst one.
pub struct Findings {
    /// For people.
    pub text: String,
    /// 0 for nothing worse than notes, 1 for warnings, 2 for critical findings.
    pub code: u8,
}

/// Examines the server and the machine. Returns a report for people, or one JSON object.
#[must_use]
pub fn examine(target: &Endpoint, is_json: bool) -> Findings {
    let found = match ask(target) {
        Ok(facts) => judge(&facts),
        Err(error) => vec![Found {
            name: "server",
            severity: Severity::Critical,
            reason: format!("{} cannot be asked: {error}", target.address),
            remedy: "Start it, or name its address, port and password, and --tls where it wants that.",
        }],
    };
    let machine = system_check::report();
    let code = code(&found).max(u8::from(!machine.is_good));
    let text = match is_json {
        true => json(&found, &machine, code),
        false => format!("{}\nThis machine:\n{}", text(&found), machine.text),
    };
    Findings { text, code }
}

/// A finding.
struct Found {
    name: &'static str,
    severity: Severity,
    reason: String,
    remedy: &'static str,
}

/// Returns the findings of the rules, the worst first.
fn judge(facts: &Facts) -> Vec<Found> {
    let found = RULES.iter().filter_map(|rule| {
        Some(Found {
            name: rule.name,
            severity: rule.severity,
            reason: (rule.find)(facts)?,
            remedy: rule.remedy,
        })
    });
    let mut found: Vec<Found> = found.collect();
    found.sort_by_key(|found| std::cmp::Reverse(found.severity));
    found
}

fn code(found: &[Found]) -> u8 {
    match found.first().map(|found| found.severity) {
        Some(Severity::Critical) => 2,
        Some(Severity::Warning) => 1,
        Some(Severity::Note) | None => 0,
    }
}

fn text(found: &[Found]) -> String {
    let mut text = String::new();
    for one in found {
        let word = match one.severity {
            Severity::Note => "note",
            Severity::Warning => "WARNING",
            Severity::Critical => "CRITICAL",
        };
        let _infallible = writeln!(
            text,
            "{word} {}: {}\n    {}",
            one.name, one.reason, one.remedy
        );
    }
    let (looked, wrong) = (RULES.len(), found.len());
    let _infallible = writeln!(text, "{looked} rules, {wrong} with something to say");
    text
}

fn json(found: &[Found], machine: &system_check::Report, code: u8) -> String {
    let findings = found.iter().map(|one| {
        let severity = match one.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        };
        format!(
            "{{\"rule\":{},\"severity\":\"{severity}\",\"reason\":{},\"remedy\":{}}}",
            quoted(one.name),
            quoted(&one.reason),
            quoted(one.remedy)
        )
    });
    format!(
        "{{\"code\":{code},\"rules\":{},\"findings\":[{}],\"machine\":{{\"is_good\":{},\"text\":{}}}}}\n",
        RULES.len(),
        findings.collect::<Vec<_>>().join(","),
        machine.is_good,
        quoted(&machine.text)
    )
}

/// Connects to a server, as the given user.
pub(crate) fn connect(target: &Endpoint) -> io::Result<Session> {
    let mut session = target.connect().map_err(reason)?;
    session.set_patience(Some(PATIENCE)).map_err(reason)?;
    Ok(session)
}

/// Returns the reason without the server, which the caller names.
fn reason(error: BenchError) -> io::Error {
    match error {
        BenchError::Connection(_, error) => error,
        BenchError::Refused { reply, .. } => io::Error::other(reply),
        other => io::Error::other(other.to_string()),
    }
}

fn ask(target: &Endpoint) -> io::Result<Facts> {
    let mut stream = connect(target)?;
    let mut facts = Facts::default();
    for section in ["all", "tls"] {
        let reply = command(&mut stream, &["INFO", section])?;
        let text = String::from_utf8_lossy(&reply_bytes(reply)).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        facts
            .info
            .extend(lines.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    if let Value::Array(words) = command(&mut stream, &["CONFIG", "GET", "*"])? {
        let words = words
            .into_iter()
            .map(|word| String::from_utf8_lossy(&reply_bytes(word)).into_owned());
        let words: Vec<String> = words.collect();
        let pairs = words.chunks_exact(2);
        facts
            .config
            .extend(pairs.map(|pair| (pair[0].clone(), pair[1].clone())));
    }
    Ok(facts)
}

/// Returns the bytes of a text reply.
pub(crate) fn reply_bytes(value: Value) -> Vec<u8> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) | Value::Verbatim { text: bytes, .. } => bytes,
        _ => Vec::new(),
    }
}

/// Runs a command on the server and returns its reply.
pub(crate) fn command(session: &mut Session, words: &[&str]) -> io::Result<Value> {
    match session.ask(words).map_err(reason)? {
        Value::Error(text) => Err(io::Error::other(
            String::from_utf8_lossy(&text).into_owned(),
        )),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(facts: &Facts) -> Findings {
        let found = judge(facts);
        Findings {
            text: text(&found),
            code: code(&found),
        }
    }

    /// Planted values, and whether each belongs to CONFIG.
    type Planted<'a> = &'a [(&'a str, &'a str, bool)];

    fn facts(planted: Planted<'_>) -> Facts {
        let mut facts = Facts::default();
        for (name, value, is_directive) in planted {
            let of = if *is_directive {
                &mut facts.config
            } else {
                &mut facts.info
            };
            of.insert((*name).to_owned(), (*value).to_owned());
        }
        facts
    }

    const FAULTS: [(&str, Planted<'_>); 13] = [
        ("log-faulty", &[("aof_last_write_status", "err", false)]),
        (
            "checkpoint-failed",
            &[("rdb_last_bgsave_status", "err", false)],
        ),
        ("primary-lost", &[("master_link_status", "down", false)]),
        (
            "open-to-all",
            &[("bind", "* -::*", true), ("protected-mode", "no", true)],
        ),
        ("nothing-kept", &[("durability", "none", true)]),
        ("memory-unlimited", &[("maxmemory", "0", true)]),
        (
            "memory-near-limit",
            &[("maxmemory", "100", false), ("used_memory", "95", false)],
        ),
        (
            "fragmentation",
            &[
                ("mem_fragmentation_ratio", "2.00", false),
                ("mem_fragmentation_bytes", "1000000000", false),
            ],
        ),
        (
            "clients-near-limit",
            &[
                ("connected_clients", "95", false),
                ("maxclients", "100", false),
            ],
        ),
        (
            "connections-rejected",
            &[("rejected_connections", "1", false)],
        ),
        (
            "certificate-ends",
            &[
                ("tls_server_cert_serial", "01", false),
                ("tls_server_cert_expires_in_seconds", "5", false),
            ],
        ),
        ("logins-fail", &[("acl_access_denied_auth", "500", false)]),
        (
            "clients-closed-for-output",
            &[("client_output_buffer_limit_disconnections", "2", false)],
        ),
    ];

    /// Every rule finds its planted fault, and nothing on a healthy server.
    #[test]
    fn each_rule_finds_its_fault() {
        assert_eq!(FAULTS.len(), RULES.len());
        for (name, planted) in FAULTS {
            let found = judged(&facts(planted));
            assert!(
                found.text.contains(&format!(" {name}: ")),
                "{name}: {}",
                found.text
            );
            assert!(
                found.text.contains(", 1 with something to say"),
                "{name}: {}",
                found.text
            );
        }
        let well = [
            ("maxmemory", "1000", true),
            ("durability", "everysec", true),
            ("bind", "127.0.0.1", true),
            ("tls_server_cert_serial", "none", false),
        ];
        let found = judged(&facts(&well));
        assert!(
            found.text.contains(", 0 with something to say") && found.code == 0,
            "{}",
            found.text
        );
    }

    #[test]
    fn the_worst_comes_first_and_is_the_code() {
        let found = judged(&facts(&[
            ("maxmemory", "0", true),
            ("aof_last_write_status", "err", false),
        ]));
        assert!(
            found.text.starts_with("CRITICAL log-faulty"),
            "{}",
            found.text
        );
        assert_eq!(found.code, 2);
    }

    #[test]
    fn programs_are_told_as_json() {
        let found = judge(&facts(&[("aof_last_write_status", "err", false)]));
        let machine = system_check::Report {
            text: "[a]...\"b\"\n".to_owned(),
            is_good: true,
        };
        let text = json(&found, &machine, 2);
        assert!(text.starts_with("{\"code\":2,\"rules\":"), "{text}");
        assert!(
            text.contains("\"rule\":\"log-faulty\",\"severity\":\"critical\""),
            "{text}"
        );
        assert!(text.contains(r#""text":"[a]...\"b\"\u000a""#), "{text}");
    }
}
