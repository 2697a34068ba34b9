//! Rules of users, in the form of ACL SETUSER and user files. A refused rule changes nothing.
//! Accepted rules are shown as rules that make the same user.
#![no_main]

use std::sync::LazyLock;

use access::{
    Catalog, ChannelUse, CommandId, Defaults, KeyUse, Request, Rules, merge_selectors, parse_file,
};
use libfuzzer_sys::fuzz_target;

/// All commands. The table is kept, because otherwise the parts that the catalog does not need
/// would count as a leak.
static TABLE: LazyLock<&engine::Table> = LazyLock::new(commands::table);
/// The names that rules may use.
static CATALOG: LazyLock<&Catalog> = LazyLock::new(|| TABLE.catalog());

fuzz_target!(|input: &[u8]| {
    let Some((&flags, text)) = input.split_first() else {
        return;
    };
    let defaults = Defaults {
        all_channels: flags & 1 != 0,
    };
    let words: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let mut rules = Rules::new(defaults);
    if let Ok(merged) = merge_selectors(&words) {
        for rule in &merged {
            let before = rules.clone();
            if rules.apply(rule, &CATALOG, defaults).is_err() {
                assert_eq!(rules, before, "a refused rule changed something");
            }
        }
    }
    let line = [b"user x ", rules.text().as_slice()].concat();
    let users = parse_file(&line, &CATALOG, defaults);
    let users = users.unwrap_or_else(|errors| panic!("{}: {errors:?}", line.escape_ascii()));
    let [(name, again)] = users.as_slice() else {
        panic!("{} users in {}", users.len(), line.escape_ascii());
    };
    assert_eq!(name, b"x");
    assert_eq!(again.text(), rules.text());
    assert_eq!(again.passwords(), rules.passwords());
    assert!(!again.loses_channels(&rules) && !rules.loses_channels(again));
    for one in rules.selectors() {
        let keys = one.keys_text();
        for command in 0..CommandId::try_from(CATALOG.len()).unwrap_or(CommandId::MAX) {
            let request = Asked {
                command,
                words: &words,
                keys: &keys,
            };
            assert_eq!(rules.check(&request), again.check(&request), "{command}");
        }
    }
});

/// A request for any command, with words from the rules.
struct Asked<'i> {
    command: CommandId,
    words: &'i [&'i [u8]],
    keys: &'i [u8],
}

impl Asked<'_> {
    /// Returns a word without the prefix that makes it a rule.
    fn word(&self, at: usize) -> &[u8] {
        let word = self.words.get(at % self.words.len()).copied();
        let word = word.unwrap_or_default();
        let sign = |byte: &u8| b"~&|".contains(byte);
        let start = word.iter().position(sign).map_or(0, |at| at + 1);
        &word[start..]
    }
}

impl Request for Asked<'_> {
    fn command(&self) -> CommandId {
        self.command
    }

    fn is_free(&self) -> bool {
        false
    }

    fn argument(&self, at: usize) -> Option<&[u8]> {
        match at {
            0 => Some(b"name"),
            3 => Some(self.keys),
            _ => Some(self.word(usize::from(self.command) + at)),
        }
    }

    fn keys(&self) -> Vec<(usize, KeyUse)> {
        let reads = self.command % 3 != 0;
        let writes = self.command % 2 == 0;
        let places = 2..2 + usize::from(self.command % 3);
        places.map(|at| (at, KeyUse { reads, writes })).collect()
    }

    fn channels(&self) -> Vec<(usize, ChannelUse)> {
        match self.command % 7 {
            0 => vec![(1, ChannelUse::Channel)],
            1 => vec![(1, ChannelUse::Pattern)],
            _ => Vec::new(),
        }
    }
}
