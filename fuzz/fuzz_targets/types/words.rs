//! Makes requests from bytes: the commands of a type, and the words of its arguments.

use std::collections::BTreeSet;

use engine::{CommandSpec, Flags, Group};

use crate::bench_server::TABLE;

/// The keys of all sequences.
pub(crate) const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b""];

/// The types of sequences. A type that has no commands yet is treated as one with few.
const GROUPS: &[Group] = &[
    Group::String,
    Group::Bitmap,
    Group::List,
    Group::Hash,
    Group::Set,
    Group::SortedSet,
    Group::Geo,
    Group::HyperLogLog,
    Group::Stream,
];

/// Commands for keys of any type. SCAN and random keys are left out, because the order of the keys
/// depends on the store.
const GENERIC: &[&str] = &[
    "DEL", "EXISTS", "TYPE", "EXPIRE", "PEXPIRE", "PERSIST", "PTTL", "RENAME", "RENAMENX", "COPY",
    "MOVE", "OBJECT", "SORT", "SORT_RO", "TOUCH", "UNLINK", "DUMP",
];

/// Commands whose replies depend on the store, or that take long.
const LEFT_OUT: &[&str] = &["PFSELFTEST", "PFDEBUG"];

/// Words that may stand anywhere.
const VALUES: &[&str] = &[
    "m1",
    "m2",
    "m3",
    "m4",
    "x",
    "",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-2",
    "5",
    "10",
    "100",
    "300",
    "1.5",
    "-0.5",
    "inf",
    "-inf",
    "nan",
    "(1",
    "(m2",
    "[m1",
    "[m3",
    "-",
    "+",
    "*",
    "m*",
    "w_*",
    "#",
    "w_*->m1",
    "+inf",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1e400",
    "0x10",
    "u8",
    "i5",
    "#1",
    "13.361389",
    "38.115556",
    "m",
    "km",
    "*-1",
    "1-1",
    "2-*",
    "0-0",
    "$",
    ">",
    "a long member that is not kept in a small collection, for it has more than sixty-four bytes",
];

/// The parts that requests of a type are made of.
pub(crate) struct Language {
    commands: Vec<&'static CommandSpec>,
    words: Vec<Vec<u8>>,
}

impl Language {
    /// Returns the language of the type that a byte chooses.
    pub(crate) fn of(byte: u8) -> Self {
        let group = GROUPS[usize::from(byte) % GROUPS.len()];
        let is_spoken = |spec: &&&CommandSpec| {
            let is_of_type = spec.group == group || GENERIC.contains(&spec.name);
            is_of_type && !spec.flags.has(Flags::BLOCKING) && !LEFT_OUT.contains(&spec.name)
        };
        let commands: Vec<_> = TABLE.commands().iter().filter(is_spoken).copied().collect();
        let tokens: BTreeSet<&str> = commands
            .iter()
            .flat_map(|spec| spec.syntax.split([' ', '[', ']', '<', '>', '|', ':']))
            .filter(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()))
            .collect();
        let keys = KEYS.iter().map(|key| key.to_vec());
        let words = VALUES.iter().copied().chain(tokens);
        Self {
            words: keys
                .chain(words.map(|word| word.as_bytes().to_vec()))
                .collect(),
            commands,
        }
    }

    /// Returns the request that some bytes encode.
    pub(crate) fn request(&self, command: u8, chosen: &[u8]) -> Vec<Vec<u8>> {
        let spec = self.commands[usize::from(command) % self.commands.len()];
        let mut request = vec![spec.name.as_bytes().to_vec()];
        for (at, byte) in chosen.iter().enumerate() {
            let byte = usize::from(*byte);
            request.push(match at {
                // Nearly all commands have a key as first argument.
                0 if byte < 0xf0 => KEYS[byte % KEYS.len()].to_vec(),
                _ => self.words[byte % self.words.len()].clone(),
            });
        }
        request
    }
}
