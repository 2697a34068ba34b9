//! One row of the table: a value's name, meaning and reader.

use base::metrics::Metric;

use super::sample::Sample;

/// How a value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only up, until CONFIG RESETSTAT or the end of the process.
    Counter,
    /// Up and down.
    Gauge,
    /// Not a number: a name, a version, a state.
    Info,
}

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A number of things.
    Count,
    /// 0 or 1; INFO may show `err` and `ok`.
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
    /// Returns OpenTelemetry's spelling (UCUM).
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

    /// Returns the spelling in the reference.
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

/// A value that a row reads, and its format in INFO.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Signed(i64),
    /// With this number of digits after the point.
    Decimal(f64, usize),
    /// With two digits after the point, and a percent sign.
    Percent(f64),
    Text(String),
    /// There is no value now.
    Absent,
}

impl Value {
    /// Returns the value as INFO shows it, or `None` if INFO has no line for it.
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

    /// Returns the value as a number, if it is one. `ok` is 1 and `err` is 0, as in exporters.
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

/// An item of a section: a value, or a family of values.
pub(crate) enum Item {
    Row(Row),
    Family(Family),
}

/// One value.
pub(crate) struct Row {
    /// Its name in INFO.
    pub(crate) info: &'static str,
    /// Its name in `/metrics`; empty if it is no metric.
    pub(crate) metric: &'static str,
    /// Its name in OpenTelemetry, if that differs.
    otel: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) help: &'static str,
    pub(crate) read: fn(&Sample<'_>) -> Value,
    /// Factor from the unit in INFO to the unit of the metric.
    pub(crate) factor: f64,
}

impl Row {
    /// Returns its name in OpenTelemetry: the name in the collector's Redis receiver, or ours.
    /// `None` for words.
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

    /// Sets the name that OpenTelemetry's collector uses.
    pub(super) const fn otel(self, name: &'static str) -> Self {
        match self {
            Self::Row(row) => Self::Row(Row { otel: name, ..row }),
            family @ Self::Family(_) => family,
        }
    }

    /// Sets the factor to the metric's unit.
    pub(super) const fn times(self, factor: f64) -> Self {
        match self {
            Self::Row(row) => Self::Row(Row { factor, ..row }),
            family @ Self::Family(_) => family,
        }
    }
}

type Read = fn(&Sample<'_>) -> Value;

/// Makes a value that goes up and down.
pub(super) const fn gauge(
    info: &'static str,
    metric: &'static str,
    unit: Unit,
    help: &'static str,
    read: Read,
) -> Item {
    Item::new(Kind::Gauge, [info, metric], unit, help, read)
}

/// Makes a value that only goes up.
pub(super) const fn counter(
    info: &'static str,
    metric: &'static str,
    unit: Unit,
    help: &'static str,
    read: Read,
) -> Item {
    Item::new(Kind::Counter, [info, metric], unit, help, read)
}

/// Makes a value of words, or of numbers that are not useful to draw.
pub(super) const fn words(info: &'static str, help: &'static str, read: Read) -> Item {
    Item::new(Kind::Info, [info, ""], Unit::Text, help, read)
}

/// Makes a value that tools look for and that is always 0 here.
pub(super) const fn zero(
    info: &'static str,
    metric: &'static str,
    unit: Unit,
    help: &'static str,
) -> Item {
    gauge(info, metric, unit, help, |_| Value::Whole(0))
}

/// The same for a counter.
pub(super) const fn zero_counter(
    info: &'static str,
    metric: &'static str,
    unit: Unit,
    help: &'static str,
) -> Item {
    counter(info, metric, unit, help, |_| Value::Whole(0))
}

/// Shows names and values of INFO lines.
type Lines = fn(&Sample<'_>, &mut dyn FnMut(&str, &str));

/// Several values of one shape.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "parts of it are for the reference")
)]
pub(crate) struct Family {
    /// Name of its lines in INFO, with the variable part in angle brackets; empty if there are
    /// none.
    pub(crate) info: &'static str,
    pub(crate) help: &'static str,
    /// Shows its lines.
    pub(crate) lines: Lines,
    /// Names of its metrics, with kind and labels, as the reference lists them.
    pub(crate) described: &'static [Described],
    /// Appends its metrics.
    pub(crate) metrics: fn(&Sample<'_>, &mut Vec<Metric>),
}

/// One metric of a family, as the reference lists it.
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
