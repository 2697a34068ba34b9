//! The directives that a control group shares (`cluster-sync config`): setting one on a node sets
//! it on all nodes.
//!
//! The list omits directives that may or must differ between nodes: addresses and ports, paths,
//! names, secrets, threads, memory and other limits of a machine, what is observed, and how a node
//! keeps its log. It also omits directives that only a restart changes.

use super::directives;
use super::error::ConfigError;
use super::shared::SharedConfig;

/// By name.
#[rustfmt::skip]
const SHARED: &[&str] = &[
    "acl-pubsub-default", "busy-refuses-all", "busy-reply-threshold", "client-output-buffer-limit",
    "cluster-allow-pubsubshard-when-down", "cluster-allow-reads-when-down", "cluster-cross-slot",
    "cluster-migration-barrier", "cluster-migration-pause-max", "cluster-node-timeout", "cluster-preferred-endpoint-type",
    "cluster-require-full-coverage",
    "durability", "hash-max-listpack-entries", "hash-max-listpack-value", "hll-sparse-max-bytes", "lfu-decay-time",
    "lfu-log-factor", "list-max-listpack-size", "maxmemory-policy", "maxmemory-samples", "min-replicas-max-lag",
    "min-replicas-to-write", "notify-keyspace-events", "proto-max-bulk-len", "quorum-fsync", "quorum-reads",
    "replica-serve-stale-data", "sentinel-master-name", "set-max-intset-entries", "set-max-listpack-entries",
    "set-max-listpack-value", "shutdown-timeout", "stream-node-max-bytes", "stream-node-max-entries", "timeout",
    "zset-max-listpack-entries", "zset-max-listpack-value",
];

/// A name and a value.
pub type OwnedPair = (Vec<u8>, Vec<u8>);

/// The pairs of a CONFIG SET, split into shared ones and own ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Divided {
    /// Pairs to set on all nodes, by the names of their rows.
    pub shared: Vec<OwnedPair>,
    /// This node's own pairs, and names that are no directives.
    pub own: Vec<OwnedPair>,
}

impl SharedConfig {
    /// Splits the `pairs` of a CONFIG SET. If some are shared, checks all of them, in the order in
    /// which they will be set: shared ones first.
    ///
    /// # Errors
    /// The error reply: the pairs cannot be set together.
    pub fn divided(
        &self,
        pairs: &[(&[u8], &[u8])],
        is_local: bool,
    ) -> Result<Divided, ConfigError> {
        let mut divided = Divided::default();
        for (name, value) in pairs {
            let row = directives::find(name).map(|(_, row, _)| row.name);
            match row.filter(|row| SHARED.contains(row)) {
                Some(row) => divided.shared.push((row.into(), value.to_vec())),
                None => divided.own.push((name.to_vec(), value.to_vec())),
            }
        }
        if !divided.shared.is_empty() {
            let all = divided.shared.iter().chain(&divided.own);
            let all: Vec<(&[u8], &[u8])> =
                all.map(|(name, value)| (&name[..], &value[..])).collect();
            self.check(&all, is_local)?;
        }
        Ok(divided)
    }

    /// Returns the present values of the directives with these names.
    pub fn present<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> Vec<OwnedPair> {
        let names: Vec<&[u8]> = names.collect();
        let mut present = Vec::with_capacity(names.len());
        self.get(&names, &mut |name, value| {
            present.push((name.to_vec(), value.to_vec()));
        });
        present
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
    fn what_is_shared_is_told_from_what_is_not() {
        let config = SharedConfig::new(Settings::default(), Origin::default());
        let pairs = |pairs: &[(&str, &str)]| {
            let bytes = pairs.iter().map(|(a, b)| (a.as_bytes(), b.as_bytes()));
            let told = config.divided(&bytes.collect::<Vec<_>>(), true);
            told.map(|divided| (divided.shared.len(), divided.own.len()))
                .map_err(|_| ())
        };
        assert_eq!(
            pairs(&[("Min-Slaves-To-Write", "1"), ("timeout", "5")]),
            Ok((2, 0))
        );
        assert_eq!(pairs(&[("maxmemory", "1"), ("hz", "5")]), Ok((0, 2)));
        assert_eq!(pairs(&[("nonsense", "1")]), Ok((0, 1)));
        assert_eq!(pairs(&[("hz", "5"), ("timeout", "1")]), Ok((1, 1)));
        for wrong in [
            &[("timeout", "soon")][..],
            &[("timeout", "1"), ("hz", "soon")],
            &[("timeout", "soon"), ("hz", "5")],
            &[("timeout", "1"), ("nonsense", "5")],
            &[("timeout", "1"), ("hz", "5"), ("timeout", "2")],
            // If they were set one after the other, the second would change the level.
            &[("appendonly", "no"), ("durability", "os")],
        ] {
            assert_eq!(pairs(wrong), Err(()), "{wrong:?}");
        }
    }

    #[test]
    fn what_there_is_can_be_looked_up() {
        let config = SharedConfig::new(Settings::default(), Origin::default());
        let names = [&b"timeout"[..], b"hz"];
        let present = config.present(names.into_iter());
        let expected = [("timeout", "0"), ("hz", "10")];
        let expected = expected.map(|(name, value)| (name.into(), value.into()));
        assert_eq!(present, expected);
    }
}
