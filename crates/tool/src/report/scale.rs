//! Conversion of figures to positions in a drawing, and the figures that an axis names.

/// An axis: a range of figures over a range of positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    min: f64,
    max: f64,
    from: f64,
    to: f64,
    kind: Kind,
}

/// How figures are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios.
    Log,
}

/// Maximum number of figures that an axis names.
const TICKS_MAX: usize = 7;

impl Scale {
    /// Creates an axis from `min` to `max` at the positions `from` to `to`.
    pub(super) fn linear(min: f64, max: f64, from: f64, to: f64) -> Self {
        Self {
            min,
            max,
            from,
            to,
            kind: Kind::Linear,
        }
    }

    /// Like [`linear`](Self::linear), but logarithmic; `min` is above 0. A range of one figure is
    /// widened.
    pub(super) fn log(min: f64, max: f64, from: f64, to: f64) -> Self {
        let (min, max) = if min < max {
            (min, max)
        } else {
            (min / 2.0, max * 2.0)
        };
        Self {
            min,
            max,
            from,
            to,
            kind: Kind::Log,
        }
    }

    /// Creates a logarithmic axis over the figures, rounded outwards to 1, 2 or 5 times a power of
    /// ten.
    pub(super) fn log_around(figures: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let mut range = (f64::MAX, 0.0_f64);
        for figure in figures.filter(|figure| *figure > 0.0 && figure.is_finite()) {
            range = (range.0.min(figure), range.1.max(figure));
        }
        if range.0 > range.1 {
            range = (1.0, 10.0);
        }
        let steps = round_steps(range.0 / 5.0, range.1 * 5.0);
        let below = steps.iter().copied().rfind(|step| *step <= range.0);
        let above = steps.iter().copied().find(|step| *step >= range.1);
        Self::log(below.unwrap_or(range.0), above.unwrap_or(range.1), from, to)
    }

    /// Returns the position of `figure`, clamped to the ends.
    pub(super) fn place(&self, figure: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (figure - self.min) / (self.max - self.min),
            Kind::Log => (figure.max(self.min) / self.min).ln() / (self.max / self.min).ln(),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Returns round figures of a logarithmic axis, few enough to be readable.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let steps = round_steps(self.min, self.max);
        if steps.len() <= TICKS_MAX {
            return steps;
        }
        let mut tens: Vec<f64> = steps
            .into_iter()
            .filter(|step| is_power_of_ten(*step))
            .collect();
        while tens.len() > TICKS_MAX {
            tens = tens.into_iter().step_by(2).collect();
        }
        tens
    }
}

/// Returns 1, 2 and 5 times powers of ten from `min` to `max`.
fn round_steps(min: f64, max: f64) -> Vec<f64> {
    let mut steps = Vec::new();
    let mut power = 10_f64.powf(min.log10().floor());
    // Figures here span at most twenty powers of ten.
    while power <= max && steps.len() < 64 {
        for factor in [1.0, 2.0, 5.0] {
            let step = power * factor;
            if step >= min * 0.999_999 && step <= max * 1.000_001 {
                steps.push(step);
            }
        }
        power *= 10.0;
    }
    steps
}

fn is_power_of_ten(step: f64) -> bool {
    (step.log10() - step.log10().round()).abs() < 1e-6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_differences_or_ratios() {
        let linear = Scale::linear(0.0, 10.0, 100.0, 0.0);
        assert!((linear.place(2.5) - 75.0).abs() < 1e-9);
        let log = Scale::log(1.0, 100.0, 0.0, 100.0);
        assert!((log.place(10.0) - 50.0).abs() < 1e-9);
        assert!((log.place(1e9) - 100.0).abs() < 1e-9);
        assert!(log.place(0.0).abs() < 1e-9);
    }

    #[test]
    fn ranges_end_at_round_figures_and_name_few() {
        let scale = Scale::log_around([130.0, 7_000.0].into_iter(), 0.0, 1.0);
        assert!((scale.min - 100.0).abs() < 1e-6 && (scale.max - 10_000.0).abs() < 1e-6);
        let ticks: Vec<u64> = scale
            .ticks()
            .into_iter()
            .map(|tick| crate::units::whole(tick.round()))
            .collect();
        assert_eq!(ticks, [100, 200, 500, 1_000, 2_000, 5_000, 10_000]);
        let wide = Scale::log_around([1.0, 1e12].into_iter(), 0.0, 1.0);
        assert!(wide.ticks().len() <= TICKS_MAX);
        let none = Scale::log_around(std::iter::empty(), 0.0, 1.0);
        assert!(none.place(1.0).is_finite());
    }
}
