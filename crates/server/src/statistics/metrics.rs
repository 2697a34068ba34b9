//! The table as metrics: each row with a metric name is one, and families have their own.

pub(crate) use base::metrics::{Metric, MetricKind};

use super::row::{Kind, Row};
use super::sample::Sample;

/// Returns the metric of a row, if it has one.
pub(super) fn of_row(row: &Row, sample: &Sample<'_>) -> Option<Metric> {
    if row.metric.is_empty() {
        return None;
    }
    let value = (row.read)(sample).number()?;
    let kind = match row.kind {
        Kind::Counter => MetricKind::Counter,
        Kind::Gauge | Kind::Info => MetricKind::Gauge,
    };
    let mut metric = Metric::new(row.metric, kind, row.help).with(value * row.factor);
    metric.otel = row.otel();
    metric.unit = row.unit.ucum();
    Some(metric)
}
