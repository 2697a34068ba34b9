//! Settings of the control group.

/// Distance of the default link port from the client port.
pub const LINK_PORT_DISTANCE: u16 = 10_000;

/// Settings of the control group; without them the node is in no group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Whether this node founds a group if it is in none.
    pub begins: bool,
    /// A node of the group that this node joins: its host and link port.
    pub join: Option<(String, u16)>,
    /// Hosts and link ports of nodes that are asked for the addresses of nodes that moved.
    pub seeds: Vec<(String, u16)>,
    /// Whether this node votes and keeps no data.
    pub is_witness: bool,
    /// Whether such a witness keeps a copy of the log.
    pub witness_log: bool,
    /// Milliseconds of silence after which a node counts as failed.
    pub node_timeout_ms: u64,
    /// Milliseconds that a shard whose members all restarted waits for the members that are not
    /// back.
    pub recovery_ms: u64,
    /// Milliseconds of silence after which a voter is replaced.
    pub voter_lost_ms: u64,
    /// Highest level of control-log entries that this node declares it knows. The group uses
    /// nothing newer.
    pub feature_level: u16,
    /// Port for clients that look for Sentinels; 0 means none.
    pub sentinel_port: u16,
    /// Name by which those clients know the group.
    pub sentinel_name: String,
    /// What is the same on all nodes of the group because it is in the control log.
    pub shares: Shares,
    /// Whether a node that joins drops its own function libraries.
    pub adopts: bool,
}

/// What nodes of a group share besides data (`cluster-sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Users and their rules.
    pub users: bool,
    /// Libraries of functions.
    pub libraries: bool,
    /// Some of the directives.
    pub directives: bool,
}

impl Shares {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        users: false,
        libraries: false,
        directives: false,
    };

    /// Parses a comma-separated list of words; `None` if `text` is not one.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<Self> {
        let mut shares = Self::NONE;
        if text.eq_ignore_ascii_case(b"none") {
            return Some(shares);
        }
        for word in text.split(|byte| *byte == b',') {
            match &word.trim_ascii().to_ascii_lowercase()[..] {
                b"acl" => shares.users = true,
                b"functions" => shares.libraries = true,
                b"config" => shares.directives = true,
                _ => return None,
            }
        }
        Some(shares)
    }
}

impl Group {
    /// Whether this node keeps a copy of the log without the data.
    #[must_use]
    pub fn keeps_log_alone(&self) -> bool {
        self.is_witness && self.witness_log
    }

    /// Whether this node keeps a log, which the group controls.
    #[must_use]
    pub fn keeps_log(&self) -> bool {
        !self.is_witness || self.witness_log
    }

    /// Whether this node should be in a group.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.begins || self.join.is_some()
    }
}

/// Parses `HOST[:PORT[@LINK_PORT]]` into host and link port. `port` is the client port if the text
/// names none.
pub(super) fn place_of(text: &str, port: u16) -> Option<(String, u16)> {
    let (text, link_port) = match text.rsplit_once('@') {
        Some((text, link_port)) => (text, Some(link_port.parse::<u16>().ok()?)),
        None => (text, None),
    };
    let (host, named) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']')? {
            (host, "") => (host, None),
            (host, rest) => (host, Some(rest.strip_prefix(':')?)),
        },
        // An IPv6 address without brackets has no port.
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((host, named)) => (host, Some(named)),
            None => (text, None),
        },
    };
    let port = match named {
        Some(named) => named.parse().ok()?,
        None => port,
    };
    let link_port = match link_port {
        Some(link_port) => link_port,
        None => port.checked_add(LINK_PORT_DISTANCE)?,
    };
    (!host.is_empty() && link_port > 0).then(|| (host.to_owned(), link_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_a_list() {
        let shares = |text: &str| {
            let shares = Shares::of(text.as_bytes());
            shares.map(|one| (one.users, one.libraries, one.directives))
        };
        assert_eq!(shares("none"), Some((false, false, false)));
        assert_eq!(shares("acl"), Some((true, false, false)));
        assert_eq!(shares("Config, functions"), Some((false, true, true)));
        assert_eq!(shares("acl,functions,config"), Some((true, true, true)));
        for wrong in ["", "acl,", "acl,none", "users"] {
            assert_eq!(shares(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_node_to_join_is_named_by_its_host_and_ports() {
        for (text, host, port) in [
            ("db1", "db1", 16_379),
            ("db1:7000", "db1", 17_000),
            ("db1:7000@7001", "db1", 7_001),
            ("db1@7001", "db1", 7_001),
            ("::1", "::1", 16_379),
            ("[::1]:7000", "::1", 17_000),
            ("[::1]", "::1", 16_379),
        ] {
            assert_eq!(
                place_of(text, 6_379),
                Some((host.to_owned(), port)),
                "{text}"
            );
        }
        for text in [
            "",
            ":7000",
            "db1:x",
            "db1:60000",
            "db1:1@",
            "[::1",
            "[::1]7000",
            "db1@0",
        ] {
            assert_eq!(place_of(text, 6_379), None, "{text}");
        }
    }
}
