//! `iolite cluster`: shows the control group of a running server as a table, or as JSON for
//! programs. In JSON a failure is an object, too, with `is_good` and `error`.

mod create;
#[cfg(feature = "cluster")]
mod recover;

use std::fmt::Write as _;
use std::io;
use std::net::ToSocketAddrs as _;
use std::path::Path;

use protocol::Value;
use tool::endpoint::Endpoint;

use crate::doctor::{command, connect, reply_bytes};

/// A requested operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Show the group, as a table or as JSON.
    Status,
    /// Make a node leave the group, lead nothing, or lead again.
    Order {
        /// The subcommand of REPLICATION.
        order: &'static str,
        /// Its name or its address: 40 digits, or `HOST:PORT`.
        node: String,
    },
    /// Make the target node hand over what it leads, because it is about to be restarted.
    LeaveForRestart,
    /// Make a cluster of nodes that are by themselves.
    Create {
        /// Addresses of the nodes: `HOST:PORT[@LINK_PORT]`.
        nodes: Vec<String>,
        /// Number of replicas of each primary.
        replicas: usize,
    },
}

/// The output, and the exit code.
pub struct Told {
    /// For standard output.
    pub text: String,
    /// 0 for success.
    pub code: u8,
}

/// The fields of INFO that are shown above the table.
const HEAD: [&str; 8] = [
    "control_leader",
    "control_term",
    "control_index",
    "control_nodes",
    "control_voters",
    "control_fault_tolerance",
    "control_log_status",
    "control_log_error",
];
const COLUMNS: [(&str, &str, usize); 7] = [
    ("NODE", "id", 40),
    ("ADDRESS", "addr", 22),
    ("ROLE", "role", 12),
    ("VOTES", "votes", 6),
    ("HEALTH", "health", 7),
    ("DRAIN", "drain", 7),
    ("NAME", "name", 0),
];

/// Why nothing was done, or not everything.
struct Failed {
    reason: String,
    code: u8,
}

/// Asks the server. Returns the result, as JSON if `is_json`.
#[must_use]
pub fn run(target: &Endpoint, wish: &Wish, is_json: bool) -> Told {
    let asked = |error: io::Error| Failed {
        reason: format!("{}: {error}", target.address),
        code: 2,
    };
    let told = match wish {
        Wish::Status => status(target, is_json)
            .map_err(asked)
            .and_then(|told| told.ok_or_else(no_group)),
        Wish::Order { order, node } => order_node(target, order, node, is_json).map_err(asked),
        Wish::LeaveForRestart => leave_for_restart(target, is_json).map_err(asked),
        Wish::Create { nodes, replicas } => create::create(target, nodes, *replicas, is_json)
            .map(|text| Told { text, code: 0 })
            .map_err(|reason| Failed { reason, code: 1 }),
    };
    finish(told, is_json)
}

/// Continues a group whose majority is lost with the node of directory `dir`. Without
/// `is_confirmed` it only shows what that would lose.
#[must_use]
pub fn run_recovery(dir: &Path, is_confirmed: bool, is_json: bool) -> Told {
    let told = recover(dir, is_confirmed, is_json).map_err(|error| Failed {
        reason: format!("{}: {error}", dir.display()),
        code: 2,
    });
    finish(told, is_json)
}

fn finish(told: Result<Told, Failed>, is_json: bool) -> Told {
    told.unwrap_or_else(|Failed { reason, code }| {
        let text = match is_json {
            true => format!("{}\n", failed_json(&reason)),
            false => format!("{reason}\n"),
        };
        Told { text, code }
    })
}

/// Returns why nothing was done, as JSON.
#[must_use]
pub fn failed_json(reason: &str) -> String {
    format!("{{\"is_good\":false,\"error\":{}}}", quoted(reason))
}

#[cfg(feature = "cluster")]
fn recover(dir: &Path, is_confirmed: bool, is_json: bool) -> io::Result<Told> {
    recover::recover(dir, is_confirmed, is_json)
}

#[cfg(not(feature = "cluster"))]
fn recover(_: &Path, _: bool, _: bool) -> io::Result<Told> {
    Err(io::Error::other(
        "this binary was built without a control group",
    ))
}

/// Sends an order about a node, which is given by its name of 40 digits, its address or its
/// announced name.
fn order_node(target: &Endpoint, order: &str, node: &str, is_json: bool) -> io::Result<Told> {
    let mut stream = connect(target)?;
    let info = reply_bytes(command(&mut stream, &["INFO", "replication"])?);
    let info = String::from_utf8_lossy(&info);
    let fields: Vec<(&str, &str)> = info
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    let group = Group::of(&fields);
    let addresses = addresses_of(node);
    let is_it = |one: &&Vec<(&str, &str)>| {
        let addr = value_of(one, "addr");
        let is_there = addr == node || addresses.iter().any(|one| one == addr);
        is_there || value_of(one, "name") == node
    };
    let mut found = group.nodes.iter().filter(is_it);
    let id = match (found.next(), found.next()) {
        (Some(one), None) => value_of(one, "id"),
        (Some(_), Some(_)) => return Err(io::Error::other("several nodes are called so")),
        (None, _) if group.is_one(node) => node,
        (None, _) => {
            let reason =
                format!("no node of the group is {node}: iolite cluster status shows them");
            return Err(io::Error::other(reason));
        }
    };
    let about = format!(
        "\"order\":{},\"node\":{}",
        quoted(&order.to_lowercase()),
        quoted(id)
    );
    let reply = command(&mut stream, &["REPLICATION", order, id])?;
    Ok(told(reply, &about, is_json))
}

/// Returns a reply that is no error, for people or as JSON. `about` describes the order as JSON
/// fields.
fn told(reply: Value, about: &str, is_json: bool) -> Told {
    let reply = String::from_utf8_lossy(&reply_bytes(reply)).into_owned();
    let text = match is_json {
        true => format!(
            "{{\"is_good\":true,{about},\"reply\":{}}}\n",
            quoted(&reply)
        ),
        false => format!("{reply}\n"),
    };
    Told { text, code: 0 }
}

/// Makes the server hand over what it leads, and waits as long as that takes.
fn leave_for_restart(target: &Endpoint, is_json: bool) -> io::Result<Told> {
    let mut stream = connect(target)?;
    let unbounded = stream.set_patience(None);
    unbounded.map_err(|error| io::Error::other(error.to_string()))?;
    let reply = command(&mut stream, &["REPLICATION", "LEAVE", "FOR-RESTART"])?;
    Ok(told(reply, "\"order\":\"leave for restart\"", is_json))
}

/// Resolves `HOST:PORT`, whose HOST may be a name, to addresses as the group shows them.
fn addresses_of(node: &str) -> Vec<String> {
    if !node.contains(':') {
        return Vec::new();
    }
    let found = node.to_socket_addrs().map(|found| {
        let shown = found.map(|one| format!("{}:{}", one.ip(), one.port()));
        shown.collect()
    });
    found.unwrap_or_default()
}

fn no_group() -> Failed {
    let reason =
        "This server is in no control group: cluster-group yes begins one, join HOST joins one.";
    Failed {
        reason: reason.to_owned(),
        code: 1,
    }
}

/// Returns the server's view of the group, or `None` if it is in none.
fn status(target: &Endpoint, is_json: bool) -> io::Result<Option<Told>> {
    let mut stream = connect(target)?;
    let reply = reply_bytes(command(&mut stream, &["INFO", "replication"])?);
    let text = String::from_utf8_lossy(&reply);
    let fields: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    let group = Group::of(&fields);
    if group.head.is_empty() {
        return Ok(None);
    }
    let text = match is_json {
        true => group.json(),
        false => group.table(),
    };
    Ok(Some(Told { text, code: 0 }))
}

/// A control group, parsed from INFO.
struct Group<'t> {
    head: Vec<(&'t str, &'t str)>,
    nodes: Vec<Vec<(&'t str, &'t str)>>,
}

impl<'t> Group<'t> {
    fn of(fields: &[(&'t str, &'t str)]) -> Self {
        let head = fields.iter().filter(|(name, _)| HEAD.contains(name));
        let nodes = fields.iter().filter_map(|(name, value)| {
            let number = name.strip_prefix("control_node")?;
            number.parse::<usize>().ok()?;
            Some(
                value
                    .split(',')
                    .filter_map(|pair| pair.split_once('='))
                    .collect(),
            )
        });
        Self {
            head: head.copied().collect(),
            nodes: nodes.collect(),
        }
    }

    /// Whether a node has this name of 40 digits. If the server shows no group, its own reply says
    /// so.
    fn is_one(&self, id: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|node| value_of(node, "id") == id)
    }

    fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for (name, value) in &self.head {
            let name = name.trim_start_matches("control_").replace('_', " ");
            let _written = writeln!(text, "{name:<16} {value}");
        }
        text.push('\n');
        let mut line = |cells: [&str; COLUMNS.len()]| {
            let mut one = String::new();
            for (cell, (_, _, width)) in cells.iter().zip(COLUMNS) {
                let _written = write!(one, "{cell:<width$} ");
            }
            let _written = writeln!(text, "{}", one.trim_end());
        };
        line(COLUMNS.map(|(title, ..)| title));
        for node in &self.nodes {
            line(COLUMNS.map(|(_, name, _)| value_of(node, name)));
        }
        text
    }

    fn json(&self) -> String {
        let object = |pairs: &[(&str, &str)]| {
            let members = pairs.iter().map(|(name, value)| {
                let name = name.trim_start_matches("control_");
                let is_number =
                    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                match is_number && name != "id" && name != "leader" {
                    true => format!("{}:{value}", quoted(name)),
                    false => format!("{}:{}", quoted(name), quoted(value)),
                }
            });
            members.collect::<Vec<_>>().join(",")
        };
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("{{{}}}", object(node)))
            .collect();
        let head: Vec<(&str, &str)> = self
            .head
            .iter()
            .copied()
            .filter(|(name, _)| *name != "control_nodes")
            .collect();
        format!("{{{},\"nodes\":[{}]}}\n", object(&head), nodes.join(","))
    }
}

fn value_of<'t>(node: &[(&'t str, &'t str)], name: &str) -> &'t str {
    let found = node.iter().find(|(known, _)| *known == name);
    found.map_or("", |(_, value)| value)
}

/// Returns a text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _written = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [(&str, &str); 5] = [
        ("role", "master"),
        ("control_leader", "0101"),
        ("control_term", "3"),
        ("control_nodes", "1"),
        (
            "control_node0",
            "id=0101,addr=db1:6379,role=primary,votes=yes,health=ok,drain=no,name=a\"b",
        ),
    ];

    #[test]
    fn a_group_is_shown_as_a_table() {
        let text = Group::of(&FIELDS).table();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["leader", "0101"]);
        assert_eq!(
            lines[4],
            [
                "NODE", "ADDRESS", "ROLE", "VOTES", "HEALTH", "DRAIN", "NAME"
            ]
        );
        assert_eq!(
            lines[5],
            ["0101", "db1:6379", "primary", "yes", "ok", "no", "a\"b"]
        );
    }

    #[test]
    fn a_group_is_told_to_programs_as_json() {
        let expected = concat!(
            r#"{"leader":"0101","term":3,"nodes":[{"id":"0101","addr":"db1:6379","#,
            r#""role":"primary","votes":"yes","health":"ok","drain":"no","name":"a\"b"}]}"#,
            "\n"
        );
        assert_eq!(Group::of(&FIELDS).json(), expected);
    }
}
