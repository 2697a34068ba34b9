//! Tests of rules and of what they allow.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::catalog::tests::small;

/// A request of the small catalog: `mget` reads all its arguments, `set` writes its first,
/// `publish` sends to its first.
struct Words(Vec<&'static [u8]>);

impl Request for Words {
    fn command(&self) -> CommandId {
        let name = self.0[0];
        if name == b"config" {
            return small().find(&[name, b"|", self.0[1]].concat()).unwrap();
        }
        small().find(name).unwrap()
    }

    fn is_free(&self) -> bool {
        self.0[0] == b"auth"
    }

    fn argument(&self, at: usize) -> Option<&[u8]> {
        self.0.get(at).copied()
    }

    fn keys(&self) -> Vec<(usize, KeyUse)> {
        let (reads, writes) = (
            KeyUse {
                reads: true,
                writes: false,
            },
            KeyUse {
                reads: false,
                writes: true,
            },
        );
        match self.0[0] {
            b"get" => vec![(1, reads)],
            b"mget" => (1..self.0.len()).map(|at| (at, reads)).collect(),
            b"set" => vec![(1, writes)],
            _ => Vec::new(),
        }
    }

    fn channels(&self) -> Vec<(usize, ChannelUse)> {
        match self.0[0] {
            b"publish" => vec![(1, ChannelUse::Channel)],
            _ => Vec::new(),
        }
    }
}

fn words(line: &'static str) -> Words {
    Words(line.split(' ').map(str::as_bytes).collect())
}

fn selector(rules: &str) -> Selector {
    let mut selector = Selector::new(false);
    for rule in rules.split(' ') {
        selector.apply(rule.as_bytes(), small()).unwrap();
    }
    selector
}

#[test]
fn nothing_is_allowed_that_no_rule_allows() {
    let nothing = Selector::new(false);
    assert_eq!(nothing.check(&words("get a")), Err(Denial::Command));
    assert_eq!(nothing.check(&words("auth a")), Ok(()));
    let all = selector("+@all");
    assert_eq!(all.check(&words("get a")), Err(Denial::Key(1)));
    assert_eq!(all.check(&words("publish a")), Err(Denial::Channel(1)));
    assert_eq!(all.check(&words("select 1")), Ok(()));
    assert!(!all.is_unrestricted());
    assert!(selector("+@all allkeys allchannels").is_unrestricted());
    assert!(!selector("+@all allkeys allchannels -get +get").is_unrestricted());
}

#[test]
fn commands_are_allowed_by_name_category_subcommand_and_first_argument() {
    let allowed = |rules: &str, line: &'static str| selector(rules).check(&words(line)).is_ok();
    assert!(allowed("~* +@read", "get a") && !allowed("~* +@read", "set a"));
    assert!(allowed("+config|get", "config get") && !allowed("+config|get", "config set"));
    assert!(!allowed("+@slow -config", "config get"));
    assert!(allowed("+config -config|set", "config get"));
    assert!(!allowed("+config -config|set", "config set"));
    assert!(allowed("+select|0", "select 0") && !allowed("+select|0", "select 1"));
    assert!(!allowed("+select|0 -select", "select 0"));
    assert!(allowed("+@all -select +select|0", "select 0"));
}

#[test]
fn keys_are_allowed_by_pattern_and_use() {
    let rules = selector("+@all %R~r* %W~w* ~b* %rw~c");
    for line in [
        "get r1",
        "set w1",
        "get b1",
        "set b1",
        "get c",
        "mget r1 b2 r3",
    ] {
        assert_eq!(rules.check(&words(line)), Ok(()), "{line}");
    }
    for line in ["get w1", "set r1", "get x"] {
        assert_eq!(rules.check(&words(line)), Err(Denial::Key(1)), "{line}");
    }
    assert_eq!(rules.check(&words("mget r1 r2 w3")), Err(Denial::Key(3)));
    assert!(!rules.reads_all_keys() && selector("%R~*").reads_all_keys());
    assert!(!selector("%W~*").reads_all_keys() && selector("~*").reads_all_keys());
    assert!(rules.reads_prefix(b"r1") && !rules.reads_prefix(b"w1") && !rules.reads_prefix(b"c"));
}

#[test]
fn channels_are_allowed_by_pattern_and_patterns_by_themselves() {
    let rules = selector("&news:* &log");
    assert!(rules.allows_channel(b"news:1", ChannelUse::Channel));
    assert!(rules.allows_channel(b"news:*", ChannelUse::Pattern));
    assert!(!rules.allows_channel(b"news:1*", ChannelUse::Pattern));
    assert!(!rules.allows_channel(b"logs", ChannelUse::Channel));
}

#[test]
fn rules_are_shown_as_they_were_written_each_once() {
    for (rules, shown) in [
        ("+@all -@string +get", "+@all -@string +get"),
        ("+@READ +@read +GET", "-@all +@read +get"),
        ("+config|get +config", "-@all +config"),
        ("+config +config|get -config|set +config", "-@all +config"),
        ("+select|0 +select|0 +get", "-@all +select|0 +get"),
        ("+get -@all", "-@all"),
        ("+get -get +get", "-@all +get"),
        ("-@admin +@all", "+@all"),
    ] {
        assert_eq!(selector(rules).commands_text(), shown.as_bytes());
    }
    let text = selector("~a %R~b %W~b %W~c &x +get").text();
    assert_eq!(text, b"~a ~b %W~c resetchannels &x -@all +get");
    assert_eq!(Selector::unrestricted().text(), b"~* &* +@all");
}

#[test]
fn what_is_shown_can_be_read_again() {
    let mut wide = selector("%R~* %W~* ~a");
    assert_eq!(wide.text(), b"%RW~* ~a resetchannels -@all");
    assert!(wide.reads_all_keys());
    wide.apply(b"+select|\xFF", small()).unwrap();
    assert!(wide.text().ends_with(b" +select|\xFF"));
    for rule in ["+select|a b", "+select|a\nb", "+select|\0"] {
        let applied = wide.apply(rule.as_bytes(), small());
        assert_eq!(applied, Err(RuleError::Syntax), "{rule:?}");
    }
}

#[test]
fn what_is_no_rule_is_refused() {
    for (rules, error) in [
        ("+none", RuleError::Unknown),
        ("-select|0", RuleError::Unknown),
        ("+config|none", RuleError::Unknown),
        ("+@none", RuleError::Unknown),
        ("+config|get|x", RuleError::ArgumentOfSubcommand),
        ("+select|", RuleError::Syntax),
        ("%~a", RuleError::Syntax),
        ("%RR~a", RuleError::Syntax),
        ("~a\tb", RuleError::Syntax),
        ("this", RuleError::Syntax),
        ("allkeys ~a", RuleError::KeysAfterAll),
        ("&* &a", RuleError::ChannelsAfterAll),
    ] {
        let mut selector = Selector::new(false);
        let results = rules
            .split(' ')
            .map(|rule| selector.apply(rule.as_bytes(), small()));
        assert_eq!(results.last(), Some(Err(error)), "{rules}");
    }
}
