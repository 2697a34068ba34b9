//! The table as metrics: each row that has a name there is one, families have their own.

pub(crate) use base::metrics::{Metric, MetricKind};

use super::{Item, Kind, Row, SECTIONS, Sample};

/// All metrics of a moment.
#[cfg_attr(
    not(any(feature = "http", test)),
    allow(dead_code, reason = "nobody asks")
)]
pub(crate) fn all(sample: &Sample<'_>) -> Vec<Metric> {
    let mut metrics = Vec::with_capacity(256);
    for item in SECTIONS.iter().flat_map(|section| section.items) {
        match item {
            Item::Row(row) => metrics.extend(of_row(row, sample)),
            Item::Family(family) => (family.metrics)(sample, &mut metrics),
        }
    }
    metrics.retain(|metric| !metric.series.is_empty());
    metrics
}

fn of_row(row: &Row, sample: &Sample<'_>) -> Option<Metric> {
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
