//! Kinds of requests by name: those of `redis-benchmark -t`.

use crate::keys::KeyOrder;
use crate::template::Template;
use crate::workload::Fill;

/// A kind of request.
#[derive(Debug)]
struct Entry {
    /// Name for `-t`.
    name: &'static str,
    /// Title in results.
    title: &'static str,
    /// The request's words, separated by one space.
    words: &'static str,
    /// Whether it is part of a run without `-t`.
    is_default: bool,
    /// Requests that create the data that this one reads.
    filled_by: Option<(&'static str, u64)>,
}

const fn entry(name: &'static str, title: &'static str, words: &'static str) -> Entry {
    Entry {
        name,
        title,
        words,
        is_default: false,
        filled_by: None,
    }
}

const fn default(name: &'static str, title: &'static str, words: &'static str) -> Entry {
    Entry {
        is_default: true,
        ..entry(name, title, words)
    }
}

/// Number of elements of a list before its ranges are read.
const LIST_ELEMENTS: u64 = 600;

const fn range(name: &'static str, title: &'static str, words: &'static str) -> Entry {
    Entry {
        filled_by: Some(("lpush", LIST_ELEMENTS)),
        ..default(name, title, words)
    }
}

const ENTRIES: &[Entry] = &[
    default("ping_inline", "PING_INLINE", "PING"),
    default("ping_mbulk", "PING_MBULK", "PING"),
    default("set", "SET", "SET __key__ __data__"),
    default("get", "GET", "GET __key__"),
    default("incr", "INCR", "INCR counter:__rand_int__"),
    default("lpush", "LPUSH", "LPUSH mylist __data__"),
    default("rpush", "RPUSH", "RPUSH mylist __data__"),
    default("lpop", "LPOP", "LPOP mylist"),
    default("rpop", "RPOP", "RPOP mylist"),
    default("sadd", "SADD", "SADD myset element:__rand_int__"),
    default("hset", "HSET", "HSET myhash element:__rand_int__ __data__"),
    default("spop", "SPOP", "SPOP myset"),
    default(
        "zadd",
        "ZADD",
        "ZADD myzset __rand_int__ element:__rand_int__",
    ),
    default("zpopmin", "ZPOPMIN", "ZPOPMIN myzset"),
    range(
        "lrange_100",
        "LRANGE_100 (first 100 elements)",
        "LRANGE mylist 0 99",
    ),
    range(
        "lrange_300",
        "LRANGE_300 (first 300 elements)",
        "LRANGE mylist 0 299",
    ),
    range(
        "lrange_500",
        "LRANGE_500 (first 500 elements)",
        "LRANGE mylist 0 499",
    ),
    range(
        "lrange_600",
        "LRANGE_600 (first 600 elements)",
        "LRANGE mylist 0 599",
    ),
    default(
        "mset",
        "MSET (10 keys)",
        "MSET __key__ __data__ __key__ __data__ __key__ __data__ __key__ __data__ __key__ __data__ \
         __key__ __data__ __key__ __data__ __key__ __data__ __key__ __data__ __key__ __data__",
    ),
    entry(
        "mget",
        "MGET (10 keys)",
        "MGET __key__ __key__ __key__ __key__ __key__ __key__ __key__ __key__ __key__ __key__",
    ),
    entry("setex", "SET with expiry", "SET __key__ __data__ EX 3600"),
    entry("append", "APPEND", "APPEND __key__ __data__"),
    entry("getset", "GETSET", "GETSET __key__ __data__"),
    entry("strlen", "STRLEN", "STRLEN __key__"),
    entry("exists", "EXISTS", "EXISTS __key__"),
    entry("expire", "EXPIRE", "EXPIRE __key__ 3600"),
    entry("del", "DEL", "DEL __key__"),
    entry("setbit", "SETBIT", "SETBIT __key__ 7 1"),
    entry("xadd", "XADD", "XADD mystream * myfield __data__"),
];

/// A kind of request, with the requests that must be sent before it is measured.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) template: Template,
    /// Requests that create the data that this one reads.
    pub(crate) filled_by: Vec<Fill>,
}

/// Returns the tests of a run without `-t`.
pub(crate) fn default_tests() -> Vec<Test> {
    let defaults = ENTRIES.iter().filter(|entry| entry.is_default);
    defaults.map(Entry::test).collect()
}

/// Returns the tests called `name`: `ping` means both kinds of it, `lrange` all lengths.
pub(crate) fn find(name: &str) -> Vec<Test> {
    let name = name.to_ascii_lowercase();
    let is_called = |entry: &&Entry| {
        let is_group = matches!(name.as_str(), "ping" | "lrange");
        entry.name == name || (is_group && entry.name.starts_with(&format!("{name}_")))
    };
    ENTRIES.iter().filter(is_called).map(Entry::test).collect()
}

/// Returns all names, for the usage text.
pub(crate) fn names() -> String {
    let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
    names.join(" ")
}

fn fill((name, requests): (&str, u64)) -> Option<Fill> {
    let entry = ENTRIES.iter().find(|entry| entry.name == name)?;
    Some(Fill {
        template: entry.template(),
        requests,
        order: KeyOrder::Sequential,
    })
}

impl Entry {
    fn test(&self) -> Test {
        Test {
            template: self.template(),
            filled_by: self.filled_by.and_then(fill).into_iter().collect(),
        }
    }

    fn template(&self) -> Template {
        if self.name == "ping_inline" {
            return Template::inline(self.title, self.words.as_bytes());
        }
        let words: Vec<&str> = self.words.split(' ').collect();
        Template::named(self.title, &words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_names_are_found() {
        assert_eq!(find("ping").len(), 2);
        assert_eq!(find("lrange").len(), 4);
        assert_eq!(find("SET").len(), 1);
        assert_eq!(find("lrange_100")[0].filled_by[0].requests, 600);
        assert!(find("nothing").is_empty() && find("lr").is_empty());
        assert_eq!(default_tests().len(), 19);
    }
}
