//! What the directives say about the control group.

/// The port of links lies so far above that of clients where nothing else is said.
pub const LINK_PORT_DISTANCE: u16 = 10_000;

/// The control group; a node that names none of it is in none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Whether this node begins a group where it is in none.
    pub begins: bool,
    /// A node of the group that this one joins: its host, and its port of links.
    pub join: Option<(String, u16)>,
    /// Where nodes of the group are asked for that are not where they were: hosts, and ports of links.
    pub seeds: Vec<(String, u16)>,
    /// Whether it votes and keeps no data.
    pub is_witness: bool,
    /// Whether such a witness keeps a copy of the log.
    pub witness_log: bool,
    /// Milliseconds after which a node that is not heard is taken for gone.
    pub node_timeout_ms: u64,
    /// So long a shard whose members were all started anew waits for those that are not back, in milliseconds.
    pub recovery_ms: u64,
    /// A voter that was not heard for so long is replaced, in milliseconds.
    pub voter_lost_ms: u64,
    /// The highest level of entries of the control log that this node says it knows: the group uses nothing newer.
    pub feature_level: u16,
    /// Where clients ask that look for Sentinels; 0 for nowhere.
    pub sentinel_port: u16,
    /// How they call the group.
    pub sentinel_name: String,
    /// What is the same on all nodes of the group, because it is in its control log.
    pub shares: Shares,
    /// Whether a node that joins drops libraries of functions that it has by itself.
    pub adopts: bool,
}

/// What nodes of a group have in common beside data (`cluster-sync`).
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

    /// From a list of words with commas between them; nothing where it is none.
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
    /// Whether this node keeps a copy of the log alone: it has no data all the same.
    #[must_use]
    pub fn keeps_log_alone(&self) -> bool {
        self.is_witness && self.witness_log
    }

    /// Whether this node keeps a log, and obeys the group with it.
    #[must_use]
    pub fn keeps_log(&self) -> bool {
        !self.is_witness || self.witness_log
    }

    /// Whether this node is to be in a group.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.begins || self.join.is_some()
    }
}

/// `HOST[:PORT[@LINK_PORT]]` as host and port of links; `port` is that of clients where none is named.
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
