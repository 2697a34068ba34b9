//! INFO keyspace: the number of keys in each database, and their remaining lifetime.

use store::{DatabaseId, Handle};

use super::metrics::{Metric, MetricKind};
use super::row::described;
use super::row::{Family, Item};
use super::sample::Sample;

pub(super) const ITEMS: &[Item] = &[Item::Family(Family {
    info: "db<n>",
    help: "Keys of a database that has some, those with a deadline, their average time to live in milliseconds, and hashes whose fields have deadlines.",
    lines,
    described: &[
        described("redis_db_keys", "gauge", "db", "Keys of a database."),
        described(
            "redis_db_keys_expiring",
            "gauge",
            "db",
            "Keys of a database that have a deadline.",
        ),
        described(
            "redis_db_avg_ttl_seconds",
            "gauge",
            "db",
            "How long these live on, on average.",
        ),
        described(
            "redis_db_keys_with_expiring_items",
            "gauge",
            "db",
            "Hashes of a database whose fields have deadlines.",
        ),
    ],
    metrics,
})];

/// Figures of a database with keys.
struct Filled {
    database: DatabaseId,
    keys: usize,
    expires: usize,
    ttl_ms: u64,
    hashes: u64,
}

fn filled(sample: &Sample<'_>) -> Vec<Filled> {
    let mut store = sample.store.borrow_mut();
    let store: &mut Handle = &mut store;
    let databases = store.store().databases();
    let mut all = Vec::new();
    for database in 0..databases {
        let shown = store.store().shown_len(database);
        let keys = shown.unwrap_or_else(|| store.len(database));
        if keys > 0 {
            let expires = store.expiring_len(database);
            all.push(Filled {
                database,
                keys,
                expires,
                ttl_ms: average_ttl_ms(store, database, expires),
                hashes: hashes_with_deadlines(store, database, keys),
            });
        }
    }
    all
}

fn lines(sample: &Sample<'_>, show: &mut dyn FnMut(&str, &str)) {
    for one in filled(sample) {
        let (keys, expires, ttl_ms, hashes) = (one.keys, one.expires, one.ttl_ms, one.hashes);
        show(
            &format!("db{}", one.database),
            &format!("keys={keys},expires={expires},avg_ttl={ttl_ms},subexpiry={hashes}"),
        );
    }
}

/// Reads a metric's value from a database's figures.
type Shown = fn(&Filled) -> f64;

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let shown: [(&str, &str, &str, Shown); 4] = [
        (
            "redis_db_keys",
            "redis.db.keys",
            "Keys of a database.",
            |of| of.keys as f64,
        ),
        (
            "redis_db_keys_expiring",
            "redis.db.expires",
            "Keys of a database that have a deadline.",
            |of| of.expires as f64,
        ),
        (
            "redis_db_avg_ttl_seconds",
            "redis.db.avg_ttl",
            "How long these live on, on average.",
            |of| of.ttl_ms as f64 / 1000.0,
        ),
        (
            "redis_db_keys_with_expiring_items",
            "iolite.db.keys_with_expiring_items",
            "Hashes of a database whose fields have deadlines.",
            |of| of.hashes as f64,
        ),
    ];
    let filled = filled(sample);
    let databases = sample.store.borrow().store().databases();
    for (name, otel, help, value) in shown {
        let mut metric = Metric::new(name, MetricKind::Gauge, help);
        metric.otel = Some(otel.to_owned());
        // Dashboards expect the first databases even if they are empty.
        for database in 0..databases.min(EMPTY_SHOWN) {
            let of = filled.iter().find(|one| one.database == database);
            if of.is_none()
                && metric.name != "redis_db_keys"
                && metric.name != "redis_db_keys_expiring"
            {
                continue;
            }
            let label = format!("db{database}");
            metric.add("", &[("db", &label)], of.map_or(0.0, value));
        }
        for one in filled.iter().filter(|one| one.database >= EMPTY_SHOWN) {
            metric.add("", &[("db", &format!("db{}", one.database))], value(one));
        }
        metrics.push(metric);
    }
}

/// Number of databases that metrics show even without keys, as exporters do for a usual
/// configuration.
const EMPTY_SHOWN: DatabaseId = 16;

/// Number of records that the average of the remaining lifetimes is taken from.
const TTL_SAMPLES: usize = 256;

/// Returns the average remaining lifetime of a database's keys with a deadline. Looks at the first
/// records of a walk: their places follow from hashes, so they are as good as a random sample.
fn average_ttl_ms(store: &mut Handle, database: DatabaseId, expires: usize) -> u64 {
    if expires == 0 {
        return 0;
    }
    let now_unix_ms = store.now_unix_ms();
    let (mut sum_ms, mut count) = (0_u128, 0_u128);
    store.survey(database, 0, TTL_SAMPLES, |record| {
        if let Some(deadline_unix_ms) = record.deadline_unix_ms() {
            sum_ms += u128::from(deadline_unix_ms.saturating_sub(now_unix_ms));
            count += 1;
        }
    });
    let average_ms = sum_ms.checked_div(count).unwrap_or(0);
    u64::try_from(average_ms).unwrap_or(u64::MAX)
}

/// Number of records that the number of hashes with field deadlines is estimated from.
const HASH_SAMPLES: usize = 16_384;

/// Returns the number of a database's hashes that have fields with deadlines. Looks at all keys if
/// there are not too many, otherwise extrapolates from the first ones of a walk.
fn hashes_with_deadlines(store: &mut Handle, database: DatabaseId, keys: usize) -> u64 {
    if !store.has_member_deadlines() {
        return 0;
    }
    let (mut seen, mut found, mut cursor) = (0_u64, 0_u64, 0);
    while seen < HASH_SAMPLES as u64 {
        cursor = store.survey(database, cursor, HASH_SAMPLES, |record| {
            seen += 1;
            // A hash with such fields is never cold.
            let object = (!record.is_cold()).then(|| record.object()).flatten();
            found += u64::from(object.is_some_and(|object| object.has_member_deadlines()));
        });
        if cursor == 0 {
            return found;
        }
    }
    (u128::from(found) * keys as u128 / u128::from(seen))
        .try_into()
        .unwrap_or(u64::MAX)
}
