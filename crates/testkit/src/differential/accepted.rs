//! The accepted differences between two servers: a closed list, each with its reason.

use protocol::Value;

/// Maximum difference in seconds between the two servers' clocks and moments of execution.
const TOLERANCE_SECONDS: u64 = 20;

/// An accepted difference.
pub struct Accepted {
    /// Why it is accepted.
    pub reason: &'static str,
    /// The commands it applies to, with the first argument if only one subcommand is meant.
    commands: &'static [&'static str],
    /// Further conditions that the request must meet.
    applies: fn(&[Vec<u8>]) -> bool,
    /// Whether two replies to the request mean the same.
    means_the_same: fn(&Value, &Value) -> bool,
}

/// All accepted differences.
pub const ACCEPTED: &[Accepted] = &[
    Accepted {
        reason: "time passes between the two executions",
        commands: &["TTL", "EXPIRETIME"],
        applies: always,
        means_the_same: |one, two| are_near(one, two, TOLERANCE_SECONDS),
    },
    Accepted {
        reason: "time passes between the two executions",
        commands: &["PTTL", "PEXPIRETIME"],
        applies: always,
        means_the_same: |one, two| are_near(one, two, TOLERANCE_SECONDS * 1000),
    },
    Accepted {
        reason: "iteration follows the hash table",
        commands: &[
            "KEYS", "HGETALL", "HKEYS", "HVALS", "SMEMBERS", "SINTER", "SUNION", "SDIFF", "SPOP",
        ],
        applies: always,
        means_the_same: are_same_elements,
    },
    Accepted {
        reason: "iteration follows the hash table; a walk in one step gives all",
        commands: &["SCAN", "HSCAN", "SSCAN"],
        applies: |request| is_walked_from(request, b"0") && counts_all(request),
        means_the_same: are_same_walks,
    },
    Accepted {
        reason: "cursors mean something only to the server that gave them",
        commands: &["SCAN", "HSCAN", "SSCAN", "ZSCAN"],
        applies: |request| !is_walked_from(request, b"0") || !counts_all(request),
        means_the_same: are_walks,
    },
    Accepted {
        reason: "a random choice",
        commands: &["RANDOMKEY", "HRANDFIELD", "SRANDMEMBER", "ZRANDMEMBER"],
        applies: always,
        means_the_same: are_same_kind,
    },
    Accepted {
        reason: "elements that compare equal, and members of sets, come in any order",
        commands: &["SORT", "SORT_RO"],
        applies: |request| leaves_order_open(request) && !has_word(request, b"LIMIT"),
        means_the_same: are_same_elements_or_nulls,
    },
    Accepted {
        reason: "which of the elements that compare equal are left out",
        commands: &["SORT", "SORT_RO"],
        applies: |request| leaves_order_open(request) && has_word(request, b"LIMIT"),
        means_the_same: are_as_many,
    },
    Accepted {
        reason: "addresses, numbers and ages of connections",
        commands: &["CLIENT ID", "CLIENT INFO", "CLIENT LIST"],
        applies: always,
        means_the_same: are_same_kind,
    },
    Accepted {
        reason: "identity and version of the server, number of the connection",
        commands: &["HELLO"],
        applies: always,
        means_the_same: are_same_greetings,
    },
    Accepted {
        reason: "clocks and start times",
        commands: &["TIME", "LASTSAVE"],
        applies: always,
        means_the_same: are_same_kind,
    },
    Accepted {
        reason: "errors of the language itself are in the words of another machine",
        commands: &["EVAL", "EVAL_RO"],
        applies: always,
        means_the_same: are_both_of_the_language,
    },
    Accepted {
        reason: "since Redis 7.2 a number that cannot be negated is refused",
        commands: &["LPOS", "LREM"],
        applies: |request| {
            let least = i64::MIN.to_string();
            request.iter().any(|word| word == least.as_bytes())
        },
        means_the_same: |one, two| one_is_error_with(one, two, b"ERR value is out of range"),
    },
    Accepted {
        reason: "since Redis 7.2 a short list or set is a listpack",
        commands: &["OBJECT ENCODING"],
        applies: always,
        means_the_same: |one, two| are_both_of_lists(one, two) || are_both_of_sets(one, two),
    },
    Accepted {
        reason: "iteration follows the hash table, and since Redis 7.2 scores have their shortest text",
        commands: &["ZSCAN"],
        applies: |request| is_walked_from(request, b"0") && counts_all(request),
        means_the_same: are_same_scored_walks,
    },
    Accepted {
        reason: "since Redis 7.4 the arguments are looked at before the key",
        commands: &["BITCOUNT", "BITPOS"],
        applies: |request| request.len() > 3,
        means_the_same: |one, two| {
            let is_error = |reply: &Value| matches!(reply, Value::Error(_));
            let is_of_none = |reply: &Value| matches!(reply, Value::Integer(0 | -1));
            is_error(one) && (is_error(two) || is_of_none(two)) || is_of_none(one) && is_error(two)
        },
    },
    Accepted {
        reason: "since Valkey 8 the end may be left out",
        commands: &["BITCOUNT"],
        applies: |request| request.len() == 3,
        means_the_same: |one, two| {
            let is_error = |reply: &Value| matches!(reply, Value::Error(_));
            is_error(one) || is_error(two)
        },
    },
    Accepted {
        reason: "since Valkey 8.1 it takes several numbers of clients",
        commands: &["CLIENT KILL"],
        applies: |request| request.len() > 4,
        means_the_same: |one, two| one_is_error_with(one, two, b"ERR syntax error"),
    },
    Accepted {
        reason: "since Redis 7.4 the last entry may be asked for",
        commands: &["XREAD"],
        applies: |request| request.iter().any(|word| word == b"+"),
        means_the_same: |one, two| one_is_error_with(one, two, b"ERR Invalid stream ID"),
    },
    Accepted {
        reason: "since Redis 7.4 a type that there is not is refused",
        commands: &["SCAN"],
        applies: |request| has_word(request, b"TYPE"),
        means_the_same: |one, two| one_is_error_with(one, two, b"ERR unknown type name"),
    },
    Accepted {
        reason: "since Valkey 8 scores may be left out",
        commands: &["ZSCAN"],
        applies: |request| has_word(request, b"NOSCORES"),
        means_the_same: |one, two| one_is_error_with(one, two, b"ERR syntax error"),
    },
    Accepted {
        reason: "since Redis 7.2 the score may be asked for",
        commands: &["ZRANK", "ZREVRANK"],
        applies: |request| request.len() == 4,
        means_the_same: are_errors,
    },
    Accepted {
        reason: "since Redis 7.2 scores have their shortest text",
        commands: &[
            "ZADD",
            "ZINCRBY",
            "ZSCORE",
            "ZMSCORE",
            "ZRANGE",
            "ZREVRANGE",
            "ZRANGEBYSCORE",
            "ZREVRANGEBYSCORE",
            "ZPOPMIN",
            "ZPOPMAX",
            "ZMPOP",
            "ZUNION",
            "ZINTER",
            "ZDIFF",
        ],
        applies: always,
        means_the_same: are_same_numbers,
    },
    Accepted {
        reason: "a table is dumped in its own order, and there is more than one way to compress",
        commands: &["DUMP"],
        applies: always,
        means_the_same: are_same_dumps,
    },
    Accepted {
        reason: "Redis reads the byte behind a sketch that ends in the middle of a run",
        commands: &["PFDEBUG DECODE"],
        applies: always,
        means_the_same: |one, two| is_one_more_run(one, two) || is_one_more_run(two, one),
    },
    Accepted {
        reason: "time passes between the two executions",
        commands: &["XPENDING"],
        applies: |request| request.len() > 3,
        means_the_same: are_same_but_for_times,
    },
    Accepted {
        reason: "since Redis 7.2 who claims nothing is a consumer, too, and one is told when it was \
                 active",
        commands: &["XINFO", "XGROUP CREATECONSUMER"],
        applies: always,
        means_the_same: are_same_but_for_consumers,
    },
    Accepted {
        reason: "since Redis 7.2 the error names the command",
        commands: &["XREAD", "XREADGROUP"],
        applies: always,
        means_the_same: |one, two| [one, two].iter().all(|reply| is_unbalanced(reply)),
    },
    Accepted {
        reason: "what a value takes in memory",
        commands: &["MEMORY USAGE"],
        applies: always,
        means_the_same: are_same_kind,
    },
    Accepted {
        reason: "Redis keeps small numbers in a pool, where all keys share use count and idle time",
        commands: &["OBJECT REFCOUNT", "OBJECT IDLETIME"],
        applies: always,
        means_the_same: are_same_kind,
    },
    Accepted {
        reason: "which commands and directives there are",
        commands: &["COMMAND", "COMMAND INFO", "COMMAND LIST", "CONFIG GET"],
        applies: |request| request.len() <= 2 || request.iter().any(|word| word == b"*"),
        means_the_same: are_same_kind,
    },
    Accepted {
        reason: "without a cluster there is one answer to all of CLUSTER, right or wrong",
        commands: &["CLUSTER"],
        applies: |request| request.len() > 1,
        means_the_same: are_errors,
    },
    Accepted {
        reason: "since Redis 7.2 the command asked about may stand alone",
        commands: &["COMMAND GETKEYS", "COMMAND GETKEYSANDFLAGS"],
        applies: |request| request.len() == 3,
        means_the_same: are_errors,
    },
    Accepted {
        reason: "Redis limits clients by the files it may open",
        commands: &["CONFIG GET"],
        applies: |request| has_word(request, b"maxclients"),
        means_the_same: are_same_kind,
    },
    Accepted {
        reason: "since Redis 7.2 HELP ends with \"Print this help.\"",
        commands: &[
            "ACL HELP",
            "CLIENT HELP",
            "COMMAND HELP",
            "CONFIG HELP",
            "DEBUG HELP",
            "FUNCTION HELP",
            "LATENCY HELP",
            "MEMORY HELP",
            "MODULE HELP",
            "OBJECT HELP",
            "PUBSUB HELP",
            "SCRIPT HELP",
            "SLOWLOG HELP",
            "XGROUP HELP",
            "XINFO HELP",
        ],
        applies: always,
        means_the_same: differ_in_the_last_line,
    },
];

/// Returns the reason why two different replies to a request are accepted, or `None` if they are
/// not.
pub(super) fn reason(request: &[Vec<u8>], one: &Value, two: &Value) -> Option<&'static str> {
    let applies = |accepted: &&Accepted| {
        accepted
            .commands
            .iter()
            .any(|name| is_command(request, name))
            && (accepted.applies)(request)
            && (accepted.means_the_same)(one, two)
    };
    ACCEPTED
        .iter()
        .find(applies)
        .map(|accepted| accepted.reason)
}

fn is_command(request: &[Vec<u8>], name: &str) -> bool {
    let words = name.split(' ').zip(request.iter().map(Some).chain([None]));
    name.split(' ').count() <= request.len()
        && words.into_iter().all(|(word, given)| {
            given.is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()))
        })
}

fn always(_request: &[Vec<u8>]) -> bool {
    true
}

fn has_word(request: &[Vec<u8>], word: &[u8]) -> bool {
    request.iter().any(|given| given.eq_ignore_ascii_case(word))
}

/// Whether Redis leaves open in which order a sort returns its elements. That is so for a sort by
/// texts found elsewhere, several of which may be equal or missing, and for a set that is returned
/// unsorted.
fn leaves_order_open(request: &[Vec<u8>]) -> bool {
    let is_set = request.get(1).is_some_and(|key| key.starts_with(b"sort:s"));
    has_word(request, b"BY") && (is_set || has_word(request, b"ALPHA"))
}

fn differ_in_the_last_line(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Array(one), Value::Array(two)) => {
            let lines = [one, two].map(|lines| lines.split_last().map(|(_, lines)| lines));
            lines[0].is_some() && lines[0] == lines[1]
        }
        _ => false,
    }
}

fn are_as_many(one: &Value, two: &Value) -> bool {
    matches!((one, two), (Value::Array(one), Value::Array(two)) if one.len() == two.len())
}

fn are_same_elements_or_nulls(one: &Value, two: &Value) -> bool {
    let in_order = |value: &Value| match value {
        Value::Array(items) => {
            let mut items: Vec<String> = items.iter().map(crate::transcript::show).collect();
            items.sort();
            Some(items)
        }
        _ => None,
    };
    in_order(one).is_some_and(|items| in_order(two) == Some(items))
}

fn counts_all(request: &[Vec<u8>]) -> bool {
    // If COUNT is given several times, the last one applies.
    let mut counts = request
        .windows(2)
        .filter(|pair| pair[0].eq_ignore_ascii_case(b"COUNT"));
    counts.next_back().is_some_and(|pair| pair[1] == b"1000000")
}

fn is_walked_from(request: &[Vec<u8>], cursor: &[u8]) -> bool {
    // The cursor comes first in SCAN, and after the key in HSCAN.
    let has_key = request.first().is_some_and(|name| name.len() > 4);
    let at = if has_key { 2 } else { 1 };
    request.get(at).is_some_and(|given| given == cursor)
}

fn are_near(one: &Value, two: &Value, tolerance: u64) -> bool {
    match (one, two) {
        // A negative reply means that the key has no deadline.
        (Value::Integer(one @ 0..), Value::Integer(two @ 0..)) => one.abs_diff(*two) <= tolerance,
        _ => false,
    }
}

fn sorted(value: &Value) -> Option<Vec<&Vec<u8>>> {
    let (Value::Array(items) | Value::Set(items)) = value else {
        return None;
    };
    let mut texts = items
        .iter()
        .map(|item| match item {
            Value::Bulk(text) => Some(text),
            _ => None,
        })
        .collect::<Option<Vec<_>>>()?;
    texts.sort();
    Some(texts)
}

fn are_same_elements(one: &Value, two: &Value) -> bool {
    if let (Value::Map(one), Value::Map(two)) = (one, two) {
        return one.len() == two.len() && one.iter().all(|pair| two.contains(pair));
    }
    sorted(one).is_some_and(|elements| sorted(two) == Some(elements))
}

/// Splits a reply of SCAN into its cursor and its array.
fn walk(value: &Value) -> Option<(&Value, &Value)> {
    match value {
        Value::Array(parts) => match parts.as_slice() {
            [cursor @ Value::Bulk(_), keys @ Value::Array(_)] => Some((cursor, keys)),
            _ => None,
        },
        _ => None,
    }
}

fn are_walks(one: &Value, two: &Value) -> bool {
    walk(one).is_some() && walk(two).is_some()
}

fn are_same_walks(one: &Value, two: &Value) -> bool {
    match (walk(one), walk(two)) {
        (Some((cursor, keys)), Some((other_cursor, other_keys))) => {
            cursor == other_cursor && are_same_elements(keys, other_keys)
        }
        _ => false,
    }
}

/// Whether two payloads may hold the same value. The values are compared when each server restores
/// the other's payloads. A string that neither server compresses has only one form.
fn are_same_dumps(one: &Value, two: &Value) -> bool {
    let (Value::Bulk(one), Value::Bulk(two)) = (one, two) else {
        return false;
    };
    let is_string = |payload: &[u8]| payload.first() == Some(&0);
    let is_compressed = |payload: &[u8]| payload.get(1) == Some(&0xc3);
    match (is_string(one), is_string(two)) {
        (true, true) => is_compressed(one) || is_compressed(two),
        (one, two) => one == two,
    }
}

/// Whether `longer` describes the sketch of `shorter` with one run more.
fn is_one_more_run(longer: &Value, shorter: &Value) -> bool {
    let (Value::Bulk(longer), Value::Bulk(shorter)) = (longer, shorter) else {
        return false;
    };
    let rest = longer.strip_prefix(shorter.as_slice());
    rest.is_some_and(|rest| rest.starts_with(b" Z:") && !rest[1..].contains(&b' '))
}

fn are_same_kind(one: &Value, two: &Value) -> bool {
    // Error texts must always agree.
    std::mem::discriminant(one) == std::mem::discriminant(two) && !matches!(one, Value::Error(_))
}

/// Whether two scans returned the same members with the same scores.
fn are_same_scored_walks(one: &Value, two: &Value) -> bool {
    let pairs = |value| {
        let (cursor, Value::Array(items)) = walk(value)? else {
            return None;
        };
        let mut pairs: Vec<Value> = items
            .chunks(2)
            .map(|pair| Value::Array(pair.to_vec()))
            .collect();
        pairs.sort_by_key(|pair| match pair {
            Value::Array(pair) => pair.first().map(crate::transcript::show),
            _ => None,
        });
        Some((cursor, Value::Array(pairs)))
    };
    match (pairs(one), pairs(two)) {
        (Some((cursor, one)), Some((other, two))) => {
            cursor == other && are_same_numbers(&one, &two)
        }
        _ => false,
    }
}

/// Whether all parts are the same text, or spell the same number.
fn are_same_numbers(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Array(one), Value::Array(two)) => {
            let mut pairs = one.iter().zip(two);
            one.len() == two.len() && pairs.all(|(one, two)| are_same_numbers(one, two))
        }
        (Value::Double(one), Value::Double(two)) => one.value == two.value,
        (Value::Bulk(one_text), Value::Bulk(two_text)) if one != two => {
            let number = base::float::parse(one_text);
            number.is_some() && number == base::float::parse(two_text)
        }
        (one, two) => one == two,
    }
}

fn are_both_of_lists(one: &Value, two: &Value) -> bool {
    let is_list = |value: &Value| matches!(value, Value::Bulk(name) if name == b"quicklist" || name == b"listpack");
    let is_quicklist = |value: &Value| matches!(value, Value::Bulk(name) if name == b"quicklist");
    is_list(one) && is_list(two) && (is_quicklist(one) || is_quicklist(two))
}

/// Whether one reply is `hashtable` and the other `listpack`. Both servers keep small hashes as
/// listpacks.
fn are_both_of_sets(one: &Value, two: &Value) -> bool {
    let is = |value: &Value, word: &[u8]| matches!(value, Value::Bulk(name) if name == word);
    (is(one, b"hashtable") && is(two, b"listpack"))
        || (is(one, b"listpack") && is(two, b"hashtable"))
}

fn is_error_with(reply: &Value, beginning: &[u8]) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(beginning))
}

fn one_is_error_with(one: &Value, two: &Value, beginning: &[u8]) -> bool {
    is_error_with(one, beginning) || is_error_with(two, beginning)
}

fn is_unbalanced(reply: &Value) -> bool {
    is_error_with(reply, b"ERR Unbalanced ")
}

/// Whether two lists of pending entries are equal apart from their idle times.
fn are_same_but_for_times(one: &Value, two: &Value) -> bool {
    let timeless = |value: &Value| {
        let Value::Array(rows) = value else {
            return None;
        };
        let row = |row: &Value| match row {
            Value::Array(parts) => match parts.as_slice() {
                [id, consumer, Value::Integer(_), count] => {
                    Some((id.clone(), consumer.clone(), count.clone()))
                }
                _ => None,
            },
            _ => None,
        };
        rows.iter().map(row).collect::<Option<Vec<_>>>()
    };
    timeless(one).is_some_and(|rows| timeless(two) == Some(rows))
}

/// Whether two replies about groups are equal apart from the fields that depend on which consumers
/// exist, on clocks, or on the shape of a tree.
fn are_same_but_for_consumers(one: &Value, two: &Value) -> bool {
    matches!((one, two), (Value::Integer(_), Value::Integer(_)))
        || without_consumers(one) == without_consumers(two)
}

/// Returns a reply of XINFO without the fields that may differ. Nothing remains of a consumer.
fn without_consumers(value: &Value) -> Value {
    const LEFT_OUT: [&[u8]; 9] = [
        b"consumers",
        b"radix-tree-keys",
        b"radix-tree-nodes",
        b"pending",
        b"idle",
        b"inactive",
        b"seen-time",
        b"active-time",
        b"name",
    ];
    let is_kept =
        |name: &Value| !matches!(name, Value::Bulk(name) if LEFT_OUT.contains(&&name[..]));
    match value {
        Value::Array(items) if matches!(items.first(), Some(Value::Bulk(_))) => {
            let pairs = items.chunks(2).filter(|pair| is_kept(&pair[0]));
            Value::Array(pairs.flatten().map(without_consumers).collect())
        }
        Value::Map(pairs) => {
            let kept = pairs.iter().filter(|pair| is_kept(&pair.0));
            let kept = kept.map(|(name, value)| (name.clone(), without_consumers(value)));
            Value::Map(kept.collect())
        }
        Value::Array(items) => {
            let items = items.iter().map(without_consumers);
            Value::Array(items.filter(|item| !is_nothing(item)).collect())
        }
        other => other.clone(),
    }
}

fn is_nothing(value: &Value) -> bool {
    matches!(value, Value::Array(items) if items.is_empty())
        || matches!(value, Value::Map(pairs) if pairs.is_empty())
}

/// Whether both errors say that a script cannot be compiled, or that its first line failed with an
/// error of the language itself.
fn are_both_of_the_language(one: &Value, two: &Value) -> bool {
    let (Value::Error(one), Value::Error(two)) = (one, two) else {
        return false;
    };
    let beginnings: [&[u8]; 2] = [
        b"ERR Error compiling script (new function): user_script:1: ",
        b"ERR user_script:1: attempt to ",
    ];
    let begin = |beginning: &[u8]| one.starts_with(beginning) && two.starts_with(beginning);
    beginnings.into_iter().any(begin)
}

fn are_errors(one: &Value, two: &Value) -> bool {
    matches!((one, two), (Value::Error(_), Value::Error(_)))
}

/// Returns the fields of a HELLO reply with the parts that must agree: all names, and all values
/// except those that identify the server.
fn greeting(value: &Value) -> Option<Vec<(&Value, Option<&Value>)>> {
    let pairs: Vec<(&Value, &Value)> = match value {
        Value::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        Value::Array(items) => items
            .chunks_exact(2)
            .map(|pair| (&pair[0], &pair[1]))
            .collect(),
        _ => return None,
    };
    let is_identity = |key: &Value| match key {
        Value::Bulk(name) => [&b"server"[..], b"version", b"id"].contains(&name.as_slice()),
        _ => false,
    };
    let fields = pairs.into_iter();
    Some(
        fields
            .map(|(key, value)| (key, (!is_identity(key)).then_some(value)))
            .collect(),
    )
}

fn are_same_greetings(one: &Value, two: &Value) -> bool {
    are_same_kind(one, two) && greeting(one).is_some_and(|fields| greeting(two) == Some(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Vec<Vec<u8>> {
        text.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn only_what_is_listed_is_accepted() {
        let (one, two) = (Value::Integer(1000), Value::Integer(1001));
        assert!(reason(&request("ttl a"), &one, &two).is_some());
        assert!(reason(&request("STRLEN a"), &one, &two).is_none());
        assert!(reason(&request("TTL a"), &one, &Value::Integer(-1)).is_none());
        assert!(reason(&request("TTL a"), &one, &Value::Integer(5000)).is_none());
        assert!(reason(&request("CLIENT ID"), &one, &two).is_some());
        assert!(reason(&request("CLIENT"), &one, &two).is_none());
    }

    #[test]
    fn help_may_differ_in_its_last_line_only() {
        let reply = |lines: &[&str]| Value::Array(lines.iter().map(|line| bulk(line)).collect());
        let (help, one) = (request("XINFO help"), reply(&["a", "Prints this help."]));
        assert!(reason(&help, &one, &reply(&["a", "Print this help."])).is_some());
        assert!(reason(&help, &one, &reply(&["b", "Print this help."])).is_none());
        assert!(reason(&help, &one, &reply(&["a"])).is_none());
        assert!(reason(&help, &one, &Value::Null).is_none());
    }

    #[test]
    fn walks_are_compared_as_sets_when_they_are_complete() {
        let reply = |cursor: &str, keys: &[&str]| {
            let keys = keys.iter().map(|key| bulk(key)).collect();
            Value::Array(vec![bulk(cursor), Value::Array(keys)])
        };
        let complete = request("SCAN 0 COUNT 1000000");
        let partial = request("SCAN 0 COUNT 1");
        let (one, two) = (reply("0", &["a", "b"]), reply("0", &["b", "a"]));
        assert!(reason(&complete, &one, &two).is_some());
        assert!(reason(&complete, &one, &reply("0", &["b"])).is_none());
        assert!(reason(&complete, &one, &reply("4", &["b", "a"])).is_none());
        assert!(reason(&partial, &one, &reply("4", &["b"])).is_some());
        assert!(reason(&partial, &one, &Value::Null).is_none());
    }
}
