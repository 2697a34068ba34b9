//! The directives that a control group shares: set on one node, they are so on all (`cluster-sync config`).
//!
//! What is left out may differ from node to node, or has to: addresses and ports, paths, names, secrets, threads, memory and
//! other limits of a machine, what is observed, and how one node keeps its log. What only a start changes is left out, too.

use super::directives;
use super::error::ConfigError;
use super::shared::SharedConfig;

/// By name.
#[rustfmt::skip]
const SHARED: &[&str] = &[
    "acl-pubsub-default", "busy-refuses-all", "busy-reply-threshold", "client-output-buffer-limit",
    "cluster-allow-pubsubshard-when-down", "cluster-allow-reads-when-down", "cluster-cross-slot",
    "cluster-migration-pause-max", "cluster-preferred-endpoint-type", "cluster-require-full-coverage",
    "durability", "hash-max-listpack-entries", "hash-max-listpack-value", "hll-sparse-max-bytes", "lfu-decay-time",
    "lfu-log-factor", "list-max-listpack-size", "maxmemory-policy", "maxmemory-samples", "min-replicas-max-lag",
    "min-replicas-to-write", "notify-keyspace-events", "proto-max-bulk-len", "quorum-fsync", "quorum-reads",
    "replica-serve-stale-data", "sentinel-master-name", "set-max-intset-entries", "set-max-listpack-entries",
    "set-max-listpack-value", "shutdown-timeout", "stream-node-max-bytes", "stream-node-max-entries", "timeout",
    "zset-max-listpack-entries", "zset-max-listpack-value",
];

/// A name and a value.
pub type OwnedPair = (Vec<u8>, Vec<u8>);

impl SharedConfig {
    /// `pairs` of a CONFIG SET by the names of their rows, where all of them are shared; nothing where none is.
    ///
    /// # Errors
    /// What the client is to read: some are shared and some are not, or they cannot be set so.
    pub fn shared_pairs(
        &self,
        pairs: &[(&[u8], &[u8])],
        is_local: bool,
    ) -> Result<Vec<OwnedPair>, ConfigError> {
        let mut shared = Vec::new();
        let mut own = None;
        for (name, value) in pairs {
            let row = directives::find(name).map(|(_, row, _)| row.name);
            match row.filter(|row| SHARED.contains(row)) {
                Some(row) => shared.push((row.as_bytes().to_vec(), value.to_vec())),
                None => own = row.or(own),
            }
        }
        match own {
            Some(own) if !shared.is_empty() => Err(ConfigError::refused(
                own,
                "it is this node's own, and the control group's are set by themselves",
            )),
            _ if shared.is_empty() => Ok(shared),
            _ => self.check(pairs, is_local).map(|()| shared),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::directive::ChangeRule;
    use super::super::settings::Settings;
    use super::*;
    use crate::config::Origin;

    #[test]
    fn what_is_shared_can_be_set_while_the_server_runs() {
        assert!(SHARED.is_sorted());
        for name in SHARED {
            let (_, row, _) = directives::find(name.as_bytes()).expect(name);
            assert_eq!((row.name, row.change), (*name, ChangeRule::Always));
            assert!(!row.is_secret, "{name}");
        }
    }

    #[test]
    fn shared_ones_are_set_by_themselves() {
        let config = SharedConfig::new(Settings::default(), Origin::default());
        let pairs = |pairs: &[(&str, &str)]| {
            let bytes = pairs.iter().map(|(a, b)| (a.as_bytes(), b.as_bytes()));
            let told = config.shared_pairs(&bytes.collect::<Vec<_>>(), true);
            told.map(|shared| shared.len()).map_err(|_| ())
        };
        assert_eq!(
            pairs(&[("Min-Slaves-To-Write", "1"), ("timeout", "5")]),
            Ok(2)
        );
        assert_eq!(pairs(&[("maxmemory", "1"), ("hz", "5")]), Ok(0));
        assert_eq!(pairs(&[("nonsense", "1")]), Ok(0));
        assert_eq!(pairs(&[("timeout", "1"), ("hz", "5")]), Err(()));
        assert_eq!(pairs(&[("timeout", "soon")]), Err(()));
    }
}
