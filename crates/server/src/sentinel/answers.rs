//! The answers of the port for Sentinel's clients: pure functions of the view of the control group.
//!
//! The shapes are those of Redis 7.2's Sentinel: for each instance a list of names and values, in
//! RESP3 a map. Fields about how a Sentinel pings its instances say that all is well. Fields that
//! clients read (`flags`, `ip`, `port`, the numbers of replicas and Sentinels) come from the group.

use cluster::state::{CopyKind, Node};
use cluster::{NodeId, Shard};
use protocol::{Reply, Request, Resp};

use crate::group::view::{SHARD, Seen};

/// Address of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Input for answers.
pub(crate) struct Answers<'a> {
    pub(crate) seen: &'a Seen,
    /// `sentinel-master-name`.
    pub(crate) name: &'a str,
    /// The port on which the question came. The other nodes use the same.
    pub(crate) port: u16,
}

const NO_MASTER: &str = "ERR No such master with that name";

fn place_of(node: &Node) -> Place {
    Place {
        host: node.record.host.clone(),
        port: node.record.client_port,
    }
}

impl Answers<'_> {
    fn shard(&self) -> Option<&Shard> {
        self.seen.state.shards.get(&SHARD)
    }

    /// The primary, or `None` if there is none yet.
    pub(crate) fn primary(&self) -> Option<Place> {
        self.primary_node().map(|(_, node)| place_of(node))
    }

    fn primary_node(&self) -> Option<(NodeId, &Node)> {
        let primary = self.shard()?.primary;
        Some((primary, self.seen.state.nodes.get(&primary)?))
    }

    fn replicas(&self) -> Vec<(NodeId, &Node)> {
        let Some(shard) = self.shard() else {
            return Vec::new();
        };
        let data = shard
            .members
            .iter()
            .filter(|(_, kind)| **kind == CopyKind::Data);
        let others = data.filter(|(id, _)| **id != shard.primary);
        let nodes = others.map(|(id, _)| (*id, self.seen.state.nodes.get(id)));
        nodes.filter_map(|(id, node)| Some((id, node?))).collect()
    }

    /// The voters on other machines. The port of a voter on this machine is not known.
    fn other_voters(&self) -> Vec<(NodeId, &Node)> {
        let nodes = &self.seen.state.nodes;
        let own_host = nodes.get(&self.seen.own).map(|node| &node.record.host);
        let is_other = |(_, node): &(&NodeId, &Node)| {
            self.seen.membership.voters.contains(&node.raft_id)
                && Some(&node.record.host) != own_host
        };
        let others = nodes.iter().filter(is_other);
        others.map(|(id, node)| (*id, node)).collect()
    }

    fn voters_count(&self) -> usize {
        self.seen.membership.voters.len()
    }

    fn quorum(&self) -> usize {
        self.voters_count() / 2 + 1
    }

    fn live_voters_count(&self) -> usize {
        let nodes = self.seen.state.nodes.values();
        let is_live =
            |node: &&Node| self.seen.membership.voters.contains(&node.raft_id) && !node.is_failed;
        nodes.filter(is_live).count()
    }

    /// SENTINEL.
    pub(crate) fn sentinel(&self, request: &Request<'_>, reply: &mut Reply<'_>) {
        let word = request.arg(1).unwrap_or_default().to_ascii_lowercase();
        let is_known = request
            .arg(2)
            .is_some_and(|name| name == self.name.as_bytes());
        match (word.as_slice(), request.len()) {
            (b"get-master-addr-by-name", 3) => self.address(is_known, reply),
            (b"masters" | b"primaries", 2) => {
                reply.array(usize::from(self.primary().is_some()));
                self.master(reply);
            }
            (b"myid", 2) => reply.bulk_str(&self.seen.own.to_string()),
            (
                b"master" | b"primary" | b"replicas" | b"slaves" | b"sentinels" | b"ckquorum"
                | b"failover" | b"is-master-down-by-addr" | b"reset" | b"flushconfig",
                _,
            ) if request.len() >= 3 && !is_known => reply.error(NO_MASTER),
            (b"master" | b"primary", 3) => self.master(reply),
            (b"replicas" | b"slaves", 3) => self.each(&self.replicas(), "slave", reply),
            (b"sentinels", 3) => self.each(&self.other_voters(), "sentinel", reply),
            (b"ckquorum", 3) => self.check_quorum(reply),
            (b"failover", 3) => reply.error(
                "ERR FAILOVER of a control group is asked for at the primary: FAILOVER TO host port",
            ),
            (b"monitor" | b"remove" | b"set" | b"reset" | b"config", _) => reply.error(
                "ERR a control group decides who is watched: there is nothing to configure here",
            ),
            _ => reply.error(&format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try SENTINEL HELP.",
                String::from_utf8_lossy(&word)
            )),
        }
    }

    fn address(&self, is_known: bool, reply: &mut Reply<'_>) {
        match self.primary().filter(|_| is_known) {
            Some(place) => {
                reply.array(2);
                reply.bulk_str(&place.host);
                reply.bulk_str(&place.port.to_string());
            }
            None => reply.null_array(),
        }
    }

    fn check_quorum(&self, reply: &mut Reply<'_>) {
        let (live, all) = (self.live_voters_count(), self.voters_count());
        if live >= self.quorum() {
            reply.simple(&format!(
                "OK {live} usable Sentinels. Quorum and failover authorization can be reached"
            ));
        } else {
            reply.error(&format!(
                "NOQUORUM {live} usable Sentinels of {all}. Not enough available Sentinels to reach the majority and authorize a failover"
            ));
        }
    }

    fn each(&self, nodes: &[(NodeId, &Node)], kind: &str, reply: &mut Reply<'_>) {
        reply.array(nodes.len());
        for (id, node) in nodes {
            let mut fields = self.common(*id, node, kind);
            if kind == "slave" {
                let (host, port) = self
                    .primary()
                    .map_or_else(Default::default, |it| (it.host, it.port));
                let link = if node.is_failed { "err" } else { "ok" };
                fields.extend([
                    ("master-link-down-time", "0".to_owned()),
                    ("master-link-status", link.to_owned()),
                    ("master-host", host),
                    ("master-port", port.to_string()),
                    ("slave-priority", "100".to_owned()),
                    ("slave-repl-offset", "0".to_owned()),
                    ("replica-announced", "1".to_owned()),
                ]);
            }
            write(&fields, reply);
        }
    }

    fn master(&self, reply: &mut Reply<'_>) {
        let Some((id, node)) = self.primary_node() else {
            return;
        };
        let mut fields = self.common(id, node, "master");
        let epoch = self.shard().map_or(0, |shard| shard.term);
        // Including this machine's voters: clients ask how many there are, not where.
        let others = self.voters_count().saturating_sub(1);
        fields.extend([
            ("config-epoch", epoch.to_string()),
            ("num-slaves", self.replicas().len().to_string()),
            ("num-other-sentinels", others.to_string()),
            ("quorum", self.quorum().to_string()),
            ("failover-timeout", "180000".to_owned()),
            ("parallel-syncs", "1".to_owned()),
        ]);
        write(&fields, reply);
    }

    fn common(&self, id: NodeId, node: &Node, kind: &str) -> Vec<(&'static str, String)> {
        let place = place_of(node);
        let port = if kind == "sentinel" {
            self.port
        } else {
            place.port
        };
        let name = match kind {
            "master" => self.name.to_owned(),
            "sentinel" => id.to_string(),
            _ => format!("{}:{port}", place.host),
        };
        let flags = match (node.is_failed, kind) {
            (false, kind) => kind.to_owned(),
            (true, "master") => "s_down,o_down,master".to_owned(),
            (true, kind) => format!("s_down,{kind},disconnected"),
        };
        let role = if kind == "master" { "master" } else { "slave" };
        vec![
            ("name", name),
            ("ip", place.host),
            ("port", port.to_string()),
            ("runid", id.to_string()),
            ("flags", flags),
            ("link-pending-commands", "0".to_owned()),
            ("link-refcount", "1".to_owned()),
            ("last-ping-sent", "0".to_owned()),
            ("last-ok-ping-reply", "0".to_owned()),
            ("last-ping-reply", "0".to_owned()),
            ("down-after-milliseconds", "30000".to_owned()),
            ("info-refresh", "0".to_owned()),
            ("role-reported", role.to_owned()),
            ("role-reported-time", "0".to_owned()),
        ]
    }

    /// The section Sentinel of INFO.
    pub(crate) fn info(&self) -> String {
        let is_there = usize::from(self.primary().is_some());
        let mut text = format!(
            "# Sentinel\r\nsentinel_masters:{is_there}\r\nsentinel_tilt:0\r\nsentinel_tilt_since_seconds:-1\r\n\
             sentinel_running_scripts:0\r\nsentinel_scripts_queue_length:0\r\nsentinel_simulate_failure_flags:0\r\n"
        );
        if let Some((_, node)) = self.primary_node() {
            let place = place_of(node);
            let status = if node.is_failed { "odown" } else { "ok" };
            text += &format!(
                "master0:name={},status={status},address={}:{},slaves={},sentinels={}\r\n",
                self.name,
                place.host,
                place.port,
                self.replicas().len(),
                self.voters_count()
            );
        }
        text
    }

    /// ROLE.
    pub(crate) fn role(&self, reply: &mut Reply<'_>) {
        reply.array(2);
        reply.bulk_str("sentinel");
        reply.array(usize::from(self.primary().is_some()));
        if self.primary().is_some() {
            reply.bulk_str(self.name);
        }
    }
}

fn write(fields: &[(&'static str, String)], reply: &mut Reply<'_>) {
    match reply.version() {
        Resp::V3 => reply.map(fields.len()),
        Resp::V2 => reply.array(2 * fields.len()),
    }
    for (name, value) in fields {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::sync::Arc;

    use cluster::state::{NodeRecord, roles};
    use cluster::{ControlState, Membership};
    use protocol::{OwnedRequest, ReplyBuffer};

    use super::*;

    fn seen(is_failed: bool) -> Seen {
        let mut state = ControlState::default();
        for byte in 1..=3_u8 {
            let record = NodeRecord {
                host: format!("10.0.0.{byte}"),
                client_port: 6379,
                roles: roles::DATA,
                ..NodeRecord::default()
            };
            let node = Node {
                raft_id: byte.into(),
                is_failed: is_failed && byte == 1,
                record,
                ..Node::default()
            };
            state.nodes.insert(NodeId([byte; 20]), node);
        }
        let members = (1..=3_u8).map(|byte| (NodeId([byte; 20]), CopyKind::Data));
        let shard = Shard {
            term: 4,
            primary: NodeId([1; 20]),
            members: members.collect(),
            ..Shard::default()
        };
        state.shards.insert(SHARD, shard);
        Seen {
            own: NodeId([2; 20]),
            state: Arc::new(state),
            membership: Membership {
                voters: [1, 2, 3].into(),
                ..Membership::default()
            },
            ..Seen::default()
        }
    }

    fn ask(seen: &Seen, words: &[&str]) -> String {
        let answers = Answers {
            seen,
            name: "mymaster",
            port: 26379,
        };
        let mut buffer = ReplyBuffer::with_capacity(0);
        let request = OwnedRequest::new(words);
        answers.sentinel(&request.request(), &mut Reply::new(&mut buffer, Resp::V2));
        String::from_utf8(buffer.as_slice().to_vec()).unwrap()
    }

    #[test]
    fn clients_are_told_where_the_primary_is() {
        let seen = seen(false);
        let known = ask(&seen, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]);
        assert_eq!(known, "*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n");
        let other = ask(&seen, &["SENTINEL", "get-master-addr-by-name", "other"]);
        assert_eq!(other, "*-1\r\n");
        let unknown = ask(&seen, &["SENTINEL", "replicas", "other"]);
        assert_eq!(unknown, format!("-{NO_MASTER}\r\n"));
        let none = ask(&Seen::default(), &["SENTINEL", "masters"]);
        assert_eq!(none, "*0\r\n");
    }

    #[test]
    fn replicas_and_sentinels_are_those_of_the_group() {
        let seen = seen(false);
        let replicas = ask(&seen, &["SENTINEL", "replicas", "mymaster"]);
        assert!(replicas.starts_with("*2\r\n") && replicas.contains("10.0.0.3:6379"));
        let sentinels = ask(&seen, &["SENTINEL", "sentinels", "mymaster"]);
        assert!(
            sentinels.starts_with("*2\r\n") && sentinels.contains("26379"),
            "{sentinels}"
        );
        let master = ask(&seen, &["SENTINEL", "master", "mymaster"]);
        assert!(
            master.contains("num-other-sentinels\r\n$1\r\n2\r\n"),
            "{master}"
        );
    }

    #[test]
    fn a_primary_that_is_not_heard_is_down() {
        let seen = seen(true);
        let master = ask(&seen, &["SENTINEL", "master", "mymaster"]);
        assert!(master.contains("s_down,o_down,master"), "{master}");
        let checked = ask(&seen, &["SENTINEL", "ckquorum", "mymaster"]);
        assert!(checked.starts_with("+OK 2 usable"), "{checked}");
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let seen = seen(false);
        for words in [
            &["SENTINEL"][..],
            &["SENTINEL", "nonsense"],
            &["SENTINEL", "master"],
        ] {
            assert!(
                ask(&seen, words).starts_with("-ERR unknown subcommand"),
                "{words:?}"
            );
        }
    }
}
