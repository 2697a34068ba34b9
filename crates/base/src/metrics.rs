//! What a metric is: a name, a kind, help, and series of values told apart by labels. Who counts makes them, who
//! serves them writes them in a format.

/// How the series of a metric are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only up.
    Counter,
    /// Up and down.
    Gauge,
    /// Percentiles with sum and count.
    Summary,
    /// Counts of values up to limits, with sum and count.
    Histogram,
}

impl MetricKind {
    /// Its name in the text formats.
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
    /// What follows the metric's name: `_sum`, `_count`, `_bucket`, or nothing.
    pub suffix: &'static str,
    /// Names and values that tell it from the others.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

/// All values of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its name in OpenTelemetry; none for what is not sent there.
    pub otel: Option<String>,
    /// Its unit in OpenTelemetry's spelling.
    pub unit: &'static str,
    /// How to read it.
    pub kind: MetricKind,
    /// What it is, for people.
    pub help: &'static str,
    /// Its values.
    pub series: Vec<Series>,
}

impl Metric {
    /// A metric without values.
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

    /// With one value, and no labels.
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
