//! One row of the table: what a value is called, what it is, and how it is read.

use base::metrics::Metric;

use super::sample::Sample;

/// How a value moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only up, until CONFIG RESETSTAT or the end of the process.
    Counter,
    /// Up and down.
    Gauge,
    /// Not a number: a name, a version, a state.
    Info,
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things.
    Count,
    /// 0 or 1; INFO may say `err` and `ok`.
    Switch,
    Bytes,
    KilobytesPerSecond,
    PerSecond,
    Seconds,
    Milliseconds,
    Microseconds,
    Ratio,
    Percent,
    /// Words.
    Text,
}

impl Unit {
    /// As OpenTelemetry spells it (UCUM).
    pub(crate) fn ucum(self) -> &'static str {
        match self {
            Self::Count | Self::Switch | Self::Ratio => "1",
            Self::Bytes => "By",
            Self::KilobytesPerSecond => "KiBy/s",
            Self::PerSecond => "1/s",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Percent => "%",
            Self::Text => "",
        }
    }

    /// As the reference spells it.
    #[cfg(test)]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Switch => "0 or 1",
            Self::Bytes => "bytes",
            Self::KilobytesPerSecond => "KiB/s",
            Self::PerSecond => "per second",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Ratio => "ratio",
            Self::Percent => "per cent",
            Self::Text => "text",
        }
    }
}

/// What a row reads, and how INFO writes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Signed(i64),
    /// With so many digits after the point.
    Decimal(f64, usize),
    /// With two digits after the point, and the sign.
    Percent(f64),
    Text(String),
    /// There is none now.
    Absent,
}

impl Value {
    /// As INFO shows it; nothing where INFO has no line for it.
    pub(crate) fn text(&self) -> Option<String> {
        Some(match self {
            Self::Whole(number) => number.to_string(),
            Self::Signed(number) => number.to_string(),
            Self::Decimal(number, digits) => format!("{number:.digits$}"),
            Self::Percent(number) => format!("{number:.2}%"),
            Self::Text(text) => text.clone(),
            Self::Absent => return None,
        })
    }

    /// As a number, where it is one. `ok` is 1 and `err` is 0, as exporters have it.
    #[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Signed(number) => Some(*number as f64),
            Self::Decimal(number, _) | Self::Percent(number) => Some(*number),
            Self::Text(text) if text == "ok" => Some(1.0),
            Self::Text(text) if text == "err" => Some(0.0),
            Self::Text(text) => text.parse().ok(),
            Self::Absent => None,
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Self::Whole(u64::from(is))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Signed(number)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// One place of a section: a value, or a family of them.
pub(crate) enum Item {
    Row(Row),
    Family(Family),
}

/// One value.
pub(crate) struct Row {
    /// Its name in INFO.
    pub(crate) info: &'static str,
    /// Its name in `/metrics`; empty for what is no metric.
    pub(crate) metric: &'static str,
    /// Its name in OpenTelemetry, where that is another one.
    otel: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) help: &'static str,
    pub(crate) read: fn(&Sample<'_>) -> Value,
    /// What a metric is that INFO tells in another unit.
    pub(crate) factor: f64,
}

impl Row {
    /// Its name in OpenTelemetry: the one of the collector's Redis receiver, or ours; none for words.
    pub(crate) fn otel(&self) -> Option<String> {
        if self.metric.is_empty() {
            None
        } else if self.otel.is_empty() {
            Some(format!("iolite.{}", self.info))
        } else {
            Some(self.otel.to_owned())
        }
    }
}

impl Item {
    const fn new(
        kind: Kind,
        names: [&'static str; 2],
        unit: Unit,
        help: &'static str,
        read: fn(&Sample<'_>) -> Value,
    ) -> Self {
        Self::Row(Row {
            info: names[0],
            metric: names[1],
            otel: "",
            kind,
            unit,
            help,
            read,
            factor: 1.0,
        })
    }

    /// With the name that OpenTelemetry's collector has for it.
    pub(super) const fn otel(self, name: &'static str) -> Self {
        match self {
            Self::Row(row) => Self::Row(Row { otel: name, ..row }),
            family @ Self::Family(_) => family,
        }
    }

    /// As a metric in another unit than in INFO.
    pub(super) const fn times(self, factor: f64) -> Self {
        match self {
            Self::Row(row) => Self::Row(Row { factor, ..row }),
            family @ Self::Family(_) => family,
        }
    }
}

type Read = fn(&Sample<'_>) -> Value;

/// A value that goes up and down.
pub(super) const fn gauge(
    info: &'static str,
    metric: &'static str,
    unit: Unit,
    help: &'static str,
    read: Read,
) -> Item {
    Item::new(Kind::Gauge, [info, metric], unit, help, read)
}

/// A value that only goes up.
pub(super) const fn counter(
    info: &'static str,
    metric: &'static str,
    unit: Unit,
    help: &'static str,
    read: Read,
) -> Item {
    Item::new(Kind::Counter, [info, metric], unit, help, read)
}

/// Words, and numbers that are none to be drawn.
pub(super) const fn words(info: &'static str, help: &'static str, read: Read) -> Item {
    Item::new(Kind::Info, [info, ""], Unit::Text, help, read)
}

/// What tools look for, and what is always 0 here.
pub(super) const fn zero(
    info: &'static str,
    metric: &'static str,
    unit: Unit,
    help: &'static str,
) -> Item {
    gauge(info, metric, unit, help, |_| Value::Whole(0))
}

/// The same of what would be counted.
pub(super) const fn zero_counter(
    info: &'static str,
    metric: &'static str,
    unit: Unit,
    help: &'static str,
) -> Item {
    counter(info, metric, unit, help, |_| Value::Whole(0))
}

/// What shows names and values of INFO.
type Lines = fn(&Sample<'_>, &mut dyn FnMut(&str, &str));

/// Several values of one shape.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "parts of it are for the reference")
)]
pub(crate) struct Family {
    /// What its lines in INFO are called, with the part that varies in angle brackets; empty for none.
    pub(crate) info: &'static str,
    pub(crate) help: &'static str,
    /// Shows its lines.
    pub(crate) lines: Lines,
    /// What its metrics are called, with kind and labels, as the reference lists them.
    pub(crate) described: &'static [Described],
    /// Gives its metrics.
    pub(crate) metrics: fn(&Sample<'_>, &mut Vec<Metric>),
}

/// One metric of a family, as it is listed.
#[cfg_attr(not(test), expect(dead_code, reason = "for the reference"))]
pub(crate) struct Described {
    pub(crate) metric: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) labels: &'static str,
    pub(crate) help: &'static str,
}

pub(super) const fn described(
    metric: &'static str,
    kind: &'static str,
    labels: &'static str,
    help: &'static str,
) -> Described {
    Described {
        metric,
        kind,
        labels,
        help,
    }
}
