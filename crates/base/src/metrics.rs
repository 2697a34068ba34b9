//! A metric has a name, a kind, help, and series of values distinguished by labels. The code that
//! counts creates metrics; the code that serves them writes them in a format.

/// How to read the series of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only increases.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Percentiles with sum and count.
    Summary,
    /// Counts of values up to limits, with sum and count.
    Histogram,
}

impl MetricKind {
    /// Returns the kind's name in the text formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
        }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Suffix of the metric's name: `_sum`, `_count`, `_bucket`, or nothing.
    pub suffix: &'static str,
    /// Names and values that distinguish the series.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

/// All values of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its name in OpenTelemetry, or `None` if it is not sent there.
    pub otel: Option<String>,
    /// Its unit in OpenTelemetry's spelling.
    pub unit: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its description, for people.
    pub help: &'static str,
    /// Its values.
    pub series: Vec<Series>,
}

impl Metric {
    /// Creates a metric without values.
    #[must_use]
    pub fn new(name: &'static str, kind: MetricKind, help: &'static str) -> Self {
        Self {
            name,
            otel: None,
            unit: "1",
            kind,
            help,
            series: Vec::new(),
        }
    }

    /// Returns the metric with one value and no labels.
    #[must_use]
    pub fn with(mut self, value: f64) -> Self {
        self.add("", &[], value);
        self
    }

    /// Adds a value.
    pub fn add(&mut self, suffix: &'static str, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels.iter();
        self.series.push(Series {
            suffix,
            labels: labels.map(|(name, of)| (*name, (*of).to_owned())).collect(),
            value,
        });
    }
}
