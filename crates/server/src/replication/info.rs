//! The section Replication of INFO: Redis' fields in its order, then iolite's own.

use cluster::Shard;

use super::Replication;
use super::following::{Following, Link};
use super::own_link::own_log;
use super::replicas::{Kind, Replica};
use crate::node::Node;

/// Names and values, in order.
type Fields = Vec<(String, String)>;

fn add(fields: &mut Fields, name: &str, value: impl ToString) {
    fields.push((name.to_owned(), value.to_string()));
}

impl Replication {
    /// Returns the section's fields.
    pub(crate) fn fields(&self, node: &Node) -> Fields {
        let mut fields = Fields::new();
        let following = self.following().filter(|_| self.follows());
        let role = if following.is_some() || self.is_out_of_office() {
            "slave"
        } else {
            "master"
        };
        add(&mut fields, "role", role);
        if let Some(following) = &following {
            primary(&mut fields, node, following);
        }
        self.own_replicas(&mut fields, node);
        self.stream(&mut fields, node);
        add(
            &mut fields,
            "iolite_links_refused",
            self.own.refused_count(),
        );
        let verified = self.own.verifier.report();
        for (name, value) in [
            ("iolite_verify_in_progress", u64::from(verified.is_running)),
            ("iolite_verify_sequence", verified.sequence),
            ("iolite_verify_unix_ms", verified.ended_unix_ms),
            ("iolite_verify_same", verified.same as u64),
            ("iolite_verify_different", verified.different as u64),
            ("iolite_verify_unknown", verified.unknown as u64),
        ] {
            add(&mut fields, name, value);
        }
        if let Some(following) = &following {
            add(&mut fields, "iolite_state", following.link().own_word());
            add(
                &mut fields,
                "master_link_refused_reason",
                following.refused(),
            );
        }
        if node.group.is_there() {
            fields.extend(node.group.get().fields());
            self.log_copy(&mut fields, node);
        }
        fields
    }

    /// Adds what the primary knows of a log-only copy, which clients do not see as a replica.
    fn log_copy(&self, fields: &mut Fields, node: &Node) {
        let seen = node.group.get();
        let shard = self.fence.shard().and_then(|id| seen.state.shards.get(&id));
        let copy = shard
            .and_then(Shard::log_copy)
            .filter(|_| self.fence.office() > 0);
        let Some(copy) = copy else { return };
        let (state, lag_bytes) = match (self.fence.copy_end(copy), own_log(node)) {
            (Some(end), Some(log)) => ("online", log.tail().saturating_sub(end)),
            _ => ("wait", 0),
        };
        let line = format!("id={copy},state={state},lag_bytes={lag_bytes}");
        add(fields, "control_log_copy", line);
    }

    fn own_replicas(&self, fields: &mut Fields, node: &Node) {
        let (all, now_unix_ms) = (self.replicas.all(), node.core.clock.now_unix_ms());
        add(fields, "connected_slaves", all.len());
        let config = &node.core.config.current().replication;
        if config.replicas_min > 0 && config.replicas_lag_s_max > 0 {
            let lag_ms_max = u64::from(config.replicas_lag_s_max) * 1000;
            let good = self.replicas.good_count(now_unix_ms, lag_ms_max);
            add(fields, "min_slaves_good_slaves", good);
        }
        let end = super::log_end(node);
        for (number, replica) in all.iter().enumerate() {
            let line = line_of(replica, end, now_unix_ms);
            add(fields, &format!("slave{number}"), line);
        }
    }

    fn stream(&self, fields: &mut Fields, node: &Node) {
        let failover = self.failover();
        let failover = failover.map_or("no-failover", |failover| failover.word());
        add(fields, "master_failover_state", failover);
        let (history, offset) = (self.history(), self.shown_offset(node));
        add(fields, "master_replid", history.id);
        add(fields, "master_replid2", history.second_id());
        add(fields, "master_repl_offset", offset);
        add(fields, "second_repl_offset", history.second_offset());
        let config = &node.core.config.current().replication;
        let backlog = self.backlog();
        add(fields, "repl_backlog_active", u8::from(backlog.is_some()));
        add(fields, "repl_backlog_size", config.backlog_bytes);
        let first = backlog.unwrap_or(0);
        add(fields, "repl_backlog_first_byte_offset", first);
        let held = backlog.map_or(0, |first| (offset + 1).saturating_sub(first));
        add(fields, "repl_backlog_histlen", held);
    }

    /// Returns the first offset from which a partial sync is possible, or `None` if there is no
    /// stream.
    fn backlog(&self) -> Option<u64> {
        self.stream.reach().map(|(oldest, _)| oldest + 1)
    }
}

/// Adds the fields about the primary that this node follows.
fn primary(fields: &mut Fields, node: &Node, following: &Following) {
    let now_unix_ms = node.core.clock.now_unix_ms();
    let (link, primary) = (following.link(), following.primary());
    let is_up = link == Link::Connected;
    add(fields, "master_host", &primary.host);
    add(fields, "master_port", primary.port);
    add(
        fields,
        "master_link_status",
        if is_up { "up" } else { "down" },
    );
    let heard = following.heard_seconds_ago(now_unix_ms);
    add(fields, "master_last_io_seconds_ago", heard);
    let syncs = link == Link::Sync;
    add(fields, "master_sync_in_progress", u8::from(syncs));
    let (read, applied) = following.offsets();
    add(fields, "slave_read_repl_offset", read);
    add(fields, "slave_repl_offset", applied);
    if syncs {
        let (total, read) = following.sync();
        add(fields, "master_sync_total_bytes", total);
        add(fields, "master_sync_read_bytes", read);
        add(fields, "master_sync_left_bytes", total.saturating_sub(read));
        let hundredths = (read.saturating_mul(10_000))
            .checked_div(total)
            .unwrap_or(0);
        let percent = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        add(fields, "master_sync_perc", percent);
        add(fields, "master_sync_last_io_seconds_ago", heard.max(0));
    }
    if !is_up {
        let seconds = following.down_seconds(now_unix_ms);
        add(fields, "master_link_down_since_seconds", seconds);
    }
    let config = &node.core.config.current().replication;
    add(fields, "slave_priority", config.priority);
    add(fields, "slave_read_only", 1);
    add(fields, "replica_announced", u8::from(config.is_announced));
}

/// Returns the line of a replica: Redis' fields, then iolite's own.
fn line_of(replica: &Replica, log_end: u64, now_unix_ms: u64) -> String {
    let (state, acked) = (replica.state(), replica.acked());
    // The lag is unknown before the replica's first acknowledgement.
    let lag_ms = match state.is_online() && replica.was_heard() {
        true => replica.lag_ms(now_unix_ms),
        false => 0,
    };
    let (lag_s, shown_ms) = (lag_ms / 1000, replica.behind_ms().unwrap_or(lag_ms));
    let link = match replica.kind {
        Kind::Own => "own",
        Kind::Redis => "psync",
    };
    format!(
        "ip={},port={},state={},offset={},lag={lag_s},iolite_state={},link={link},lag_bytes={},lag_ms={shown_ms}",
        replica.host,
        replica.port,
        state.word(),
        acked.offset,
        state.own_word(),
        log_end.saturating_sub(acked.applied),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::replicas::{NewReplica, ReplicaState, Replicas};
    use super::*;

    #[test]
    fn a_replica_that_said_nothing_yet_is_not_said_to_lag_since_1970() {
        let replicas = Arc::<Replicas>::default();
        let attached = replicas.register(NewReplica {
            client: None,
            kind: Kind::Own,
            host: "10.0.0.1".to_owned(),
            port: 1,
        });
        for state in [ReplicaState::Sending, ReplicaState::CatchingUp] {
            attached.set_state(state);
            let line = line_of(&replicas.all()[0], 7, 1_795_694_216_576);
            assert!(line.contains(",lag=0,"), "{line}");
            assert!(line.ends_with(",lag_bytes=7,lag_ms=0"), "{line}");
        }
    }
}
