//! The requests of sessions, by theme. A line is a weight and a form, as in the grammar of
//! sequences.
//!
//! Requests that two servers may answer differently are left out: orders that a hash table decides,
//! random choices, ids of entries that are the time, and blocking with a timeout (except for
//! [`TIMEOUTS`], which are waited out). Two known differences from Redis are avoided. SWAPDB
//! invalidates tracked keys, unlike in Redis. If a sorted set or list is stored over a key of
//! another type, clients that wait for the key are served; Redis 7.0 forgets them.

use super::super::draw::Draw;
use super::super::form::Form;
use super::super::grammar::WRITING;
use super::super::sequence::Request;

/// Keys that live for milliseconds, in [`super::Action::Expire`]. There is only one, because of
/// several keys any could expire first.
pub(super) const EXPIRING_KEYS: [&str; 1] = ["e0"];

const TRANSACTIONS: &str = "
20 MULTI
18 EXEC
3 DISCARD
14 WATCH <shared>+
3 UNWATCH
1 RESET
1 (MULTI|EXEC|DISCARD|UNWATCH) <item>
1 WATCH
";

const WRITES: &str = "
10 SET <shared> <item>
6 GET <shared>
5 INCR <shared>
6 APPEND <shared> <item>
4 DEL <shared>+
2 UNLINK <shared>
2 SETNX <shared> <item>
2 GETDEL <shared>
2 MSET (<shared> <item>)+
2 MGET <shared>+
2 MSETNX (<shared> <item>)+
2 RPUSH <shared> <item>+
2 LPOP <shared>
2 HSET <shared> f <item>
1 HDEL <shared> f
2 SADD <shared> <item>
1 SREM <shared> <item>
2 EXPIRE <shared> (100000|200000|-1)
1 PERSIST <shared>
2 RENAME <shared> <shared>
1 RENAMENX <shared> <shared>
2 COPY <shared> <shared> [REPLACE]
1 MOVE <shared> 1
2 EXISTS <shared>+
1 TOUCH <shared>
1 TYPE <shared>
1 NONSENSE <item>
1 GET
";

const WHOLE: &str = "
2 FLUSHALL
2 FLUSHDB [ASYNC]
4 SWAPDB (0 1|1 0|0 2|0 0)
4 SELECT (0|1|0|0)
2 DBSIZE
1 PING [<item>]
";

const BLOCKING: &str = "
10 (BLPOP|BRPOP) <queue>+ 0
6 BLMOVE <queue> <queue> (LEFT|RIGHT) (LEFT|RIGHT) 0
3 BRPOPLPUSH <queue> <queue> 0
4 BLMPOP 0 (1 <queue>|2 <queue> <queue>) (LEFT|RIGHT) [COUNT 2]
";

const BLOCKING_RANKED: &str = "
8 (BZPOPMIN|BZPOPMAX) <ranked>+ 0
4 BZMPOP 0 (1 <ranked>|2 <ranked> <ranked>) (MIN|MAX) [COUNT 2]
";

const BLOCKING_LOGS: &str = "
8 XREAD BLOCK 0 STREAMS (<log> $|<log> 24-3|x0 x1 $ $)
4 XREAD COUNT 1 BLOCK 0 STREAMS <log> $
8 XREADGROUP GROUP (g|h) (alice|bob) BLOCK 0 STREAMS <log> >
2 XREADGROUP GROUP g (alice|bob) BLOCK 0 STREAMS <log> 0
";

const QUEUES: &str = "
12 (LPUSH|RPUSH) <queue> <item>+
2 (LPUSHX|RPUSHX) <queue> <item>+
3 (LPOP|RPOP) <queue>
3 LLEN <queue>
3 LRANGE <queue> 0 -1
3 LMOVE <queue> <queue> (LEFT|RIGHT) (LEFT|RIGHT)
3 DEL <queue>
3 RENAME (<queue>|made) <queue>
2 RPUSH made <item>+
2 COPY (made|<queue>) <queue> [REPLACE]
1 MOVE <queue> 1
1 LINSERT <queue> BEFORE v1 <item>
";

const RANKED: &str = "
12 ZADD <ranked> (<small> <item>)+
4 ZADD <ranked> INCR <small> <item>
2 ZRANGE <ranked> 0 -1
1 ZREM <ranked> <item>
2 ZUNIONSTORE <ranked> 2 <ranked> <ranked>
2 ZRANGESTORE <ranked> <ranked> 0 1
2 DEL <ranked>
";

const LOGS: &str = "
12 XADD <log> 24-* f <item>
1 XADD <log> NOMKSTREAM 24-* f <item>
3 XGROUP CREATE <log> (g|h) (0|$) MKSTREAM
2 XGROUP DESTROY <log> (g|h)
2 XACK <log> g 24-1 24-2
2 XRANGE <log> - +
2 XLEN <log>
1 XTRIM <log> MAXLEN 2
2 DEL <log>
";

const LITTLE_TRANSACTIONS: &str = "
6 MULTI
10 EXEC
1 DISCARD
";

const UNBLOCKING: &str = "
4 CLIENT UNBLOCK <session> [TIMEOUT|ERROR]
1 CLIENT UNBLOCK <session> NONSENSE
1 SWAPDB (0 1|1 0)
1 SELECT (0|1|0|0)
1 FLUSHALL
";

const SUBSCRIPTIONS: &str = "
12 SUBSCRIBE <channel>+
8 UNSUBSCRIBE <channel>+
4 UNSUBSCRIBE
8 PSUBSCRIBE <chpattern>+
6 PUNSUBSCRIBE <chpattern>+
3 PUNSUBSCRIBE
6 SSUBSCRIBE <channel>+
4 SUNSUBSCRIBE <channel>+
2 SUNSUBSCRIBE
20 PUBLISH <channel> <item>
8 SPUBLISH <channel> <item>
4 PUBSUB NUMSUB <channel>+
2 PUBSUB NUMSUB
2 PUBSUB NUMPAT
2 PUBSUB CHANNELS c0
2 PUBSUB SHARDCHANNELS c1
2 PUBSUB SHARDNUMSUB <channel>
1 PUBSUB NONSENSE
3 PING [<item>]
2 RESET
1 HELLO (2|3)
2 SET <shared> <item>
2 GET <shared>
1 (SUBSCRIBE|PSUBSCRIBE|SSUBSCRIBE|PUBLISH <channel>|SPUBLISH <channel>)
";

const TRACKING: &str = "
6 CLIENT TRACKING ON
3 CLIENT TRACKING ON BCAST PREFIX (k|k0|e|q) [NOLOOP]
2 CLIENT TRACKING ON BCAST PREFIX k0 PREFIX (k1|k)
2 CLIENT TRACKING ON OPTIN [NOLOOP]
2 CLIENT TRACKING ON OPTOUT
2 CLIENT TRACKING ON NOLOOP
3 CLIENT TRACKING ON REDIRECT <session> [BCAST|OPTIN|NOLOOP]
4 CLIENT TRACKING OFF
1 CLIENT TRACKING ON (OPTIN OPTOUT|BCAST OPTIN|PREFIX k|NONSENSE|REDIRECT 987654321)
5 CLIENT CACHING (YES|NO)
2 CLIENT TRACKINGINFO
4 SUBSCRIBE __redis__:invalidate
1 UNSUBSCRIBE __redis__:invalidate
1 (FLUSHALL|FLUSHDB)
25 GET <shared>
8 MGET <shared>+
3 EXISTS <shared>
4 MULTI
5 EXEC
1 RESET
1 HELLO (2|3)
";

/// Which changes of keys are published, and which sessions receive them.
const EVENTS: &str = "
6 CONFIG SET notify-keyspace-events (KEA|KEA|KA|EA|Kg$lshzxetd|En|Elz|KEAn|)
1 PSUBSCRIBE __key*__:*
1 SUBSCRIBE __keyevent@0__:del __keyspace@0__:a
1 PING
";

/// Requests whose timeout is shorter than a step that waits for time to pass.
const TIMEOUTS: &str = "
3 (BLPOP|BRPOP) <queue>+ 0.01
1 BLMOVE <queue> <queue> LEFT RIGHT 0.01
1 BLMPOP 0.01 1 <queue> LEFT
2 BZPOPMIN <ranked> 0.01
1 BZMPOP 0.01 1 <ranked> MAX
2 XREAD BLOCK 10 STREAMS <log> $
1 XREADGROUP GROUP g alice BLOCK 10 STREAMS <log> >
1 WAIT 1 10
";

/// Requests that are sent while a key is about to expire.
const BRIEF: &str = "
6 WATCH <brief>
2 WATCH <brief> <shared>
2 GET <brief>
1 MGET <brief> <shared>
1 EXISTS <brief>
";

/// The themes of schedules: a command that the server must have, and the theme's tables.
const THEMES: &[(&str, &[&str])] = &[
    ("SET", &[WRITES, WHOLE]),
    ("MULTI", &[TRANSACTIONS, WRITES]),
    ("MULTI", &[TRANSACTIONS, WRITES, WHOLE]),
    ("MULTI", &[TRANSACTIONS, WRITES, WHOLE]),
    ("BLPOP", &[BLOCKING, QUEUES]),
    (
        "BLPOP",
        &[BLOCKING, QUEUES, LITTLE_TRANSACTIONS, UNBLOCKING],
    ),
    ("BZPOPMIN", &[BLOCKING_RANKED, RANKED, UNBLOCKING]),
    (
        "BLPOP",
        &[BLOCKING_LOGS, LOGS, LITTLE_TRANSACTIONS, UNBLOCKING],
    ),
    (
        "BLPOP",
        &[
            BLOCKING,
            BLOCKING_RANKED,
            BLOCKING_LOGS,
            QUEUES,
            RANKED,
            LOGS,
            UNBLOCKING,
        ],
    ),
    ("PUBLISH", &[SUBSCRIPTIONS]),
    ("PUBLISH", &[SUBSCRIPTIONS]),
    ("CLIENT TRACKING", &[TRACKING, WRITES]),
];

/// A command that no server has.
const UNKNOWN: &str = "NONSENSE";

/// A weighted table.
#[derive(Default)]
struct Table {
    rows: Vec<(u64, Form)>,
}

/// One theme of a schedule.
pub(super) struct Theme {
    table: Table,
    blocks: bool,
    watches: bool,
    /// The requests of the last session, if it listens to what the others do.
    listener: Option<Table>,
}

/// All themes whose commands the server has.
pub(super) struct Grammar {
    themes: Vec<Theme>,
    timeouts: Table,
    brief: Table,
}

impl Grammar {
    /// Returns the grammar of a server that has the commands for which `is_known` returns `true`.
    ///
    /// # Panics
    /// If a line of the tables above, which are constants, is malformed.
    pub(super) fn new(is_known: impl Fn(&str) -> bool) -> Self {
        let themes = THEMES.iter().filter(|(command, _)| is_known(command));
        let theme = |&(_, tables): &(&str, &[&'static str])| Theme {
            table: Table::of(tables).only(&is_known),
            blocks: tables.contains(&BLOCKING) || tables.contains(&BLOCKING_LOGS),
            watches: tables.contains(&TRANSACTIONS) || tables.contains(&TRACKING),
            listener: None,
        };
        let events = Theme {
            table: Table::of(WRITING).only(&is_known),
            blocks: false,
            watches: true,
            listener: Some(Table::of(&[EVENTS])),
        };
        let has_events = is_known("PUBLISH");
        Self {
            themes: themes
                .map(theme)
                .chain(has_events.then_some(events))
                .collect(),
            timeouts: Table::of(&[TIMEOUTS]).only(&is_known),
            brief: Table::of(&[BRIEF]).only(&is_known),
        }
    }

    pub(super) fn theme(&self, draw: &mut Draw) -> &Theme {
        &self.themes[draw.index(self.themes.len())]
    }

    /// Returns a request for a step that waits for time to pass, or `None` if nothing in the theme
    /// needs such a step.
    pub(super) fn timed_request(&self, theme: &Theme, draw: &mut Draw) -> Option<Request> {
        match (theme.blocks, theme.watches) {
            (true, _) => Some(self.timeouts.request(draw)),
            (_, true) => Some(self.brief.request(draw)),
            _ => None,
        }
    }
}

impl Theme {
    pub(super) fn request(&self, draw: &mut Draw) -> Request {
        self.table.request(draw)
    }

    /// Returns a request of the last session, if that session only listens to what the others do.
    pub(super) fn listener_request(&self, draw: &mut Draw) -> Option<Request> {
        self.listener.as_ref().map(|table| table.request(draw))
    }

    /// Whether the theme's timed requests block. Otherwise they read keys that expire.
    pub(super) fn blocks(&self) -> bool {
        self.blocks
    }
}

impl Table {
    fn of(tables: &[&'static str]) -> Self {
        let lines = tables.iter().flat_map(|table| table.lines());
        let rows = lines.filter(|line| !line.is_empty()).map(row);
        Self {
            rows: rows.collect(),
        }
    }

    /// Removes the lines that begin with an unknown command, except for [`UNKNOWN`].
    fn only(mut self, is_known: &impl Fn(&str) -> bool) -> Self {
        self.rows.retain(|(_, form)| {
            let mut names = form.names().into_iter();
            names.all(|name| name == UNKNOWN || is_known(name))
        });
        self
    }

    fn request(&self, draw: &mut Draw) -> Request {
        let total = self.rows.iter().map(|(weight, _)| weight).sum();
        let mut at = draw.below(total);
        for (weight, form) in &self.rows {
            if at < *weight {
                return form.right_request(draw);
            }
            at -= weight;
        }
        vec![b"PING".to_vec()]
    }
}

fn row(line: &'static str) -> (u64, Form) {
    let row = line.split_once(' ').and_then(|(weight, form)| {
        let weight = weight.parse().ok()?;
        Some((weight, Form::parse(form)))
    });
    match row {
        Some((weight, Ok(form))) => (weight, form),
        Some((_, Err(error))) => panic!("{error}"),
        None => panic!("a line is a weight and a form: {line}"),
    }
}

/// Returns the names of all commands that schedules contain.
#[must_use]
pub fn commands_in_schedules() -> Vec<&'static str> {
    let grammar = Grammar::new(|_| true);
    let tables = grammar.themes.iter().map(|theme| &theme.table);
    let tables = tables.chain([&grammar.timeouts, &grammar.brief]);
    let rows = tables.flat_map(|table| &table.rows);
    let mut names: Vec<&str> = rows.flat_map(|(_, form)| form.names()).collect();
    names.sort_unstable();
    names.dedup();
    names
}
