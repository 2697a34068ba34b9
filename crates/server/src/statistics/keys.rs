//! INFO hotkeys: the keys with the most requests, and those with the most memory. No metric names a
//! key.

use base::words::quote;

use super::metrics::{Metric, MetricKind};
use super::row::{Family, Item, Unit, Value};
use super::row::{described, gauge};
use super::sample::Sample;

/// Number of keys shown of each kind.
const KEYS_SHOWN: usize = 10;

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    gauge("hot_keys_samples", "iolite_hot_keys_samples", Unit::Count, "Requests that were looked at for hot keys.", |s| Value::Whole(hot(s).samples)),
    gauge("hot_keys_seconds", "iolite_hot_keys_seconds", Unit::Seconds, "Seconds in which they came.", |s| Value::Whole(hot(s).seconds)),
    Item::Family(Family {
        info: "hot_key_<n>",
        help: "A key that is asked for most: calls a second, and its share of all calls.",
        lines: hot_lines,
        described: &[described("iolite_hottest_key_share_ratio", "gauge", "", "Share of all calls that ask for the key that is asked for most.")],
        metrics: hot_metrics,
    }),
    Item::Family(Family {
        info: "big_key_<n>",
        help: "A key that takes most memory.",
        lines: big_lines,
        described: &[described("iolite_biggest_key_bytes", "gauge", "", "Memory of the key that takes most, of those looked at.")],
        metrics: big_metrics,
    }),
];

fn hot(sample: &Sample<'_>) -> engine::observer::HotKeyReport {
    let observer = &sample.node.core.shared.observer;
    observer
        .hot_keys
        .report(sample.now_unix_us / 1_000_000, KEYS_SHOWN)
}

fn hot_lines(sample: &Sample<'_>, show: &mut dyn FnMut(&str, &str)) {
    let hot = hot(sample);
    for (number, key) in hot.keys.iter().enumerate() {
        let (calls_per_second, percent) = hot.rate_of(key);
        let (database, name) = (key.database, quote(&key.key));
        show(
            &format!("hot_key_{number}"),
            &format!(
                "db={database},key={name},calls_per_sec={calls_per_second},percent={percent:.2}"
            ),
        );
    }
}

fn hot_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let hot = hot(sample);
    let share = hot
        .keys
        .first()
        .map_or(0.0, |key| hot.rate_of(key).1 / 100.0);
    let help = "Share of all calls that ask for the key that is asked for most.";
    metrics
        .push(Metric::new("iolite_hottest_key_share_ratio", MetricKind::Gauge, help).with(share));
}

fn big_lines(sample: &Sample<'_>, show: &mut dyn FnMut(&str, &str)) {
    let observer = &sample.node.core.shared.observer;
    for (number, key) in observer.big_keys.report(KEYS_SHOWN).iter().enumerate() {
        let (database, name) = (key.database, quote(&key.key));
        let (kind, bytes) = (key.kind.name(), key.bytes);
        show(
            &format!("big_key_{number}"),
            &format!("db={database},key={name},type={kind},bytes={bytes}"),
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn big_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let observer = &sample.node.core.shared.observer;
    let bytes = observer
        .big_keys
        .report(1)
        .first()
        .map_or(0, |key| key.bytes);
    let help = "Memory of the key that takes most, of those looked at.";
    metrics
        .push(Metric::new("iolite_biggest_key_bytes", MetricKind::Gauge, help).with(bytes as f64));
}
