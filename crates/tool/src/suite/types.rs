//! Workloads of the types that hold more than a string: small and large data sets of each, and the
//! requests that are measured on them.
//!
//! 50 connections, pipeline 16. `__rand_int__` is drawn uniformly from the data set's key space;
//! the data is loaded in an order that looks random.

use super::series;
use crate::keys::KeyOrder;
use crate::measure::{Data, Step};
use crate::options::Options;
use crate::template::Template;
use crate::units::short_count;
use crate::workload::{Fill, ValueBytes, Workload};

const CONNECTIONS: usize = 50;
const PIPELINE: usize = 16;
const VALUE_BYTES: usize = 8;
const THOUSAND: u64 = 1_000;
const MILLION: u64 = 1_000_000;

/// Data of one type, and the requests for it.
pub(super) struct DataSet {
    pub(super) name: &'static str,
    /// Text after the number of elements, such as `members in one set`.
    title: &'static str,
    /// Number of members, fields or keys from which requests choose.
    space: u64,
    /// Number of elements per number of the key space.
    elements_each: u64,
    filled_by: &'static [Filling],
    /// Kinds of requests, each with its name.
    requests: &'static [(&'static str, &'static [&'static str])],
}

/// Requests that load a data set.
struct Filling {
    words: &'static str,
    /// Whether it is a single request, instead of one per number of the key space.
    is_single: bool,
    order: KeyOrder,
}

const fn each(words: &'static str) -> Filling {
    Filling {
        words,
        is_single: false,
        order: KeyOrder::Scattered,
    }
}

const fn in_order(words: &'static str) -> Filling {
    Filling {
        order: KeyOrder::Sequential,
        ..each(words)
    }
}

const fn once(words: &'static str) -> Filling {
    Filling {
        is_single: true,
        ..each(words)
    }
}

const fn set(
    name: &'static str,
    title: &'static str,
    space: u64,
    filled_by: &'static [Filling],
    requests: &'static [(&'static str, &'static [&'static str])],
) -> DataSet {
    DataSet {
        name,
        title,
        space,
        elements_each: 1,
        filled_by,
        requests,
    }
}

pub(super) const DATA_SETS: &[DataSet] = &[
    set(
        "zset-1k",
        "members in a sorted set",
        THOUSAND,
        &[each("ZADD scores __rand_int__ member:__rand_int__")],
        &[
            ("ZADD", &["ZADD scores __rand_int__ member:__rand_int__"]),
            ("ZRANK", &["ZRANK scores member:__rand_int__"]),
            ("ZSCORE", &["ZSCORE scores member:__rand_int__"]),
            ("ZRANGE of 10", &["ZRANGE scores 500 509"]),
        ],
    ),
    set(
        "zset-1m",
        "members in a sorted set",
        MILLION,
        &[each("ZADD scores __rand_int__ member:__rand_int__")],
        &[
            ("ZADD", &["ZADD scores __rand_int__ member:__rand_int__"]),
            ("ZRANK", &["ZRANK scores member:__rand_int__"]),
            ("ZSCORE", &["ZSCORE scores member:__rand_int__"]),
            (
                "ZRANGE of 10",
                &["ZRANGE scores __rand_int__ +inf BYSCORE LIMIT 0 10"],
            ),
        ],
    ),
    set(
        "zsets",
        "members in 1,024 sorted sets",
        MILLION,
        &[each(
            "ZADD scores:__rand_int:1024__ __rand_int__ member:__rand_int__",
        )],
        &[(
            "ZADD:ZREM 1:1",
            &[
                "ZADD scores:__rand_int:1024__ __rand_int__ member:__rand_int__",
                "ZREM scores:__rand_int:1024__ member:__rand_int__",
            ],
        )],
    ),
    DataSet {
        elements_each: 10,
        ..set(
            "hashes",
            "fields in hashes of 10",
            100 * THOUSAND,
            &[each(
                "HSET user:__rand_int__ field:0 __data__ field:1 __data__ field:2 __data__ field:3 __data__ \
                 field:4 __data__ field:5 __data__ field:6 __data__ field:7 __data__ field:8 __data__ \
                 field:9 __data__",
            )],
            &[
                ("HSET", &["HSET user:__rand_int__ field:5 __data__"]),
                ("HGET", &["HGET user:__rand_int__ field:5"]),
                ("HGETALL", &["HGETALL user:__rand_int__"]),
            ],
        )
    },
    set(
        "hash-1m",
        "fields in a hash",
        MILLION,
        &[each("HSET table field:__rand_int__ __data__")],
        &[
            ("HSET", &["HSET table field:__rand_int__ __data__"]),
            ("HGET", &["HGET table field:__rand_int__"]),
        ],
    ),
    set(
        "list",
        "elements in a list",
        MILLION,
        &[each("RPUSH queue __data__")],
        &[
            ("LPUSH:LPOP 1:1", &["LPUSH queue __data__", "LPOP queue"]),
            ("RPUSH:LPOP 1:1", &["RPUSH queue __data__", "LPOP queue"]),
            ("LRANGE of 100", &["LRANGE queue 0 99"]),
            ("LINDEX", &["LINDEX queue 500000"]),
        ],
    ),
    set(
        "set-1m",
        "members in a set",
        MILLION,
        &[each("SADD members member:__rand_int__")],
        &[
            ("SADD", &["SADD members member:__rand_int__"]),
            ("SISMEMBER", &["SISMEMBER members member:__rand_int__"]),
        ],
    ),
    set(
        "sinter",
        "members in a set, half of them in another",
        THOUSAND,
        &[
            each("SADD all member:__rand_int__"),
            each("SADD half member:__rand_int:500__"),
        ],
        &[
            ("SINTER", &["SINTER all half"]),
            ("SINTERCARD LIMIT 10", &["SINTERCARD 2 all half LIMIT 10"]),
        ],
    ),
    set(
        "stream",
        "entries in a stream",
        MILLION,
        &[
            in_order("XADD log __rand_int__-1 field __data__"),
            once("XGROUP CREATE log readers 0"),
        ],
        &[
            ("XRANGE of 10", &["XRANGE log __rand_int__ + COUNT 10"]),
            (
                "XREADGROUP of 10",
                &["XREADGROUP GROUP readers one COUNT 10 NOACK STREAMS log >"],
            ),
            ("XADD", &["XADD log * field __data__"]),
        ],
    ),
    set(
        "hll",
        "sketches",
        MILLION,
        &[each("PFADD sketch:__rand_int__ element:__rand_int__")],
        &[
            ("PFADD", &["PFADD sketch:__rand_int__ element:__rand_int__"]),
            ("PFCOUNT", &["PFCOUNT sketch:__rand_int__"]),
        ],
    ),
    set(
        "geo",
        "places over 60 by 60 degrees",
        100 * THOUSAND,
        &[each(
            "GEOADD places __rand_int:60__.5 __rand_int:61__.5 place:__rand_int__",
        )],
        &[
            (
                "GEOADD",
                &["GEOADD places __rand_int:60__.5 __rand_int:61__.5 place:__rand_int__"],
            ),
            (
                "GEOSEARCH of 10",
                &[
                    "GEOSEARCH places FROMLONLAT __rand_int:60__ __rand_int:61__ BYRADIUS 100 km COUNT 10 ASC",
                ],
            ),
        ],
    ),
];

impl DataSet {
    /// Returns a step for each kind of request; the first loads the data.
    pub(super) fn steps(&self, options: &Options) -> Vec<Step> {
        // Odd, so that requests with two numbers also cover the whole range in the second place.
        let space = self.space.min(options.keys_max) | 1;
        let base = Workload {
            key_space: space,
            value_bytes: ValueBytes::exactly(VALUE_BYTES),
            connections: CONNECTIONS,
            pipeline: PIPELINE,
            ..series::base(options)
        };
        let elements = space * self.elements_each;
        let title = format!("{} {}", short_count(elements as f64), self.title);
        let step = |(kind, (name, mix)): (usize, &(&str, &[&str]))| {
            let name = format!("{}: {name}, {title}", self.name);
            Step {
                workload: Workload {
                    family: name.clone(),
                    name,
                    mix: mix.iter().map(|words| (template(words), 1)).collect(),
                    ..base.clone()
                },
                filled_by: self.fills(space, kind == 0),
                is_fresh: kind == 0,
                data: Some(Data {
                    name: title.clone(),
                    elements,
                }),
                rate_share: None,
            }
        };
        self.requests.iter().enumerate().map(step).collect()
    }

    fn fills(&self, space: u64, is_first: bool) -> Vec<Fill> {
        let fill = |filling: &Filling| Fill {
            template: template(filling.words),
            requests: if filling.is_single { 1 } else { space },
            order: filling.order,
        };
        match is_first {
            true => self.filled_by.iter().map(fill).collect(),
            false => Vec::new(),
        }
    }
}

fn template(words: &str) -> Template {
    let words: Vec<&str> = words.split(' ').collect();
    Template::new(&words)
}
