//! Line charts as SVG: one line per server, named at its end, with the spread of the rounds as a
//! bar through each point.

use std::fmt::Write as _;

use super::html::escape;
use super::scale::Scale;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
/// Margin for the names of the lines.
const RIGHT: f64 = 92.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Distance between the axis and the first point.
const INSET: f64 = 22.0;
/// Minimum distance between names of lines.
const NAME_DISTANCE: f64 = 15.0;

/// A chart to be drawn.
pub(super) struct Chart<'a> {
    /// Text for readers who cannot see it.
    pub(super) description: String,
    pub(super) x_title: &'a str,
    /// Named figures of the horizontal axis, with their names, in ascending order.
    pub(super) x_ticks: Vec<(f64, String)>,
    pub(super) is_x_log: bool,
    pub(super) show_y: fn(f64) -> String,
    pub(super) lines: Vec<Line>,
    /// Whether points are drawn in addition to the line.
    pub(super) has_points: bool,
}

/// The figures of a server.
pub(super) struct Line {
    /// Index of the server, which determines its colour.
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

/// A figure.
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The minimum and maximum of the rounds.
    pub(super) spread: Option<(f64, f64)>,
    /// Text shown under the cursor.
    pub(super) tip: String,
    /// Text shown above or below it.
    pub(super) label: Option<Label>,
}

/// Text beside a point.
pub(super) struct Label {
    pub(super) text: String,
    pub(super) is_below: bool,
}

impl Chart<'_> {
    /// Returns the drawing.
    pub(super) fn svg(&self) -> String {
        let x_range = (
            self.x_ticks.first().map_or(0.0, |tick| tick.0),
            self.x_ticks.last().map_or(1.0, |tick| tick.0),
        );
        let (from, to) = (LEFT + INSET, WIDTH - RIGHT - INSET);
        let x = match self.is_x_log {
            true => Scale::log(x_range.0, x_range.1, from, to),
            false => Scale::linear(x_range.0, x_range.1, from, to),
        };
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let spreads = points()
            .filter_map(|point| point.spread)
            .flat_map(|(low, high)| [low, high]);
        let figures = points().map(|point| point.y).chain(spreads);
        let y = Scale::log_around(figures, HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.description)
        );
        self.draw_axes(&x, &y, &mut svg);
        for line in &self.lines {
            self.draw_line(line, &x, &y, &mut svg);
        }
        self.draw_names(&y, &x, &mut svg);
        svg + "</svg>"
    }

    fn draw_axes(&self, x: &Scale, y: &Scale, svg: &mut String) {
        for tick in y.ticks() {
            let place = y.place(tick);
            let _infallible = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{place:.1}\" y2=\"{place:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                place + 4.0,
                escape(&(self.show_y)(tick))
            );
        }
        for (figure, name) in &self.x_ticks {
            let _infallible = write!(
                svg,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x.place(*figure),
                HEIGHT - BOTTOM + 18.0,
                escape(name)
            );
        }
        let _infallible = write!(
            svg,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 6.0,
            escape(self.x_title)
        );
    }

    fn draw_line(&self, line: &Line, x: &Scale, y: &Scale, svg: &mut String) {
        let places: Vec<String> = line
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x.place(point.x), y.place(point.y)))
            .collect();
        let index = line.index;
        let _infallible = write!(
            svg,
            "<polyline class=\"line s{index}\" points=\"{}\"/>",
            places.join(" ")
        );
        for point in &line.points {
            let (left, top) = (x.place(point.x), y.place(point.y));
            if let Some((low, high)) = point.spread {
                let _infallible = write!(
                    svg,
                    "<line class=\"spread s{index}\" x1=\"{left:.1}\" x2=\"{left:.1}\" \
                     y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    y.place(low),
                    y.place(high)
                );
            }
            let class = if self.has_points {
                "point"
            } else {
                "point hidden"
            };
            let _infallible = write!(
                svg,
                "<circle class=\"{class} s{index}\" cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"4\" \
                 data-tip=\"{0}\"><title>{0}</title></circle>",
                escape(&point.tip)
            );
            if let Some(label) = &point.label {
                let distance = if label.is_below { 21.0 } else { -12.0 };
                let _infallible = write!(
                    svg,
                    "<text class=\"label s{index}\" x=\"{left:.1}\" y=\"{:.1}\" \
                     text-anchor=\"middle\">{}</text>",
                    (top + distance).clamp(10.0, HEIGHT - BOTTOM + 4.0),
                    escape(&label.text)
                );
            }
        }
    }

    /// Draws the names of the lines at their ends, moved apart if they would overlap.
    fn draw_names(&self, y: &Scale, x: &Scale, svg: &mut String) {
        let mut names: Vec<(f64, f64, &Line)> = Vec::new();
        for line in &self.lines {
            if let Some(last) = line.points.last() {
                names.push((y.place(last.y) + 4.0, x.place(last.x), line));
            }
        }
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut lowest = f64::MIN;
        for (top, left, line) in names {
            let top = top.max(lowest + NAME_DISTANCE);
            lowest = top;
            let _infallible = write!(
                svg,
                "<text class=\"name s{}\" x=\"{:.1}\" y=\"{top:.1}\">{}</text>",
                line.index,
                left + 12.0,
                escape(&line.name)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            spread: Some((y / 2.0, y * 2.0)),
            tip: "<tip>".to_owned(),
            label: None,
        }
    }

    #[test]
    fn a_chart_has_its_lines_points_and_names() {
        let chart = Chart {
            description: "a & b".to_owned(),
            x_title: "pipeline",
            x_ticks: vec![(1.0, "1".to_owned()), (100.0, "100".to_owned())],
            is_x_log: true,
            show_y: |figure| format!("{figure:.0}"),
            lines: ["a", "b"]
                .into_iter()
                .enumerate()
                .map(|(index, name)| Line {
                    index,
                    name: name.to_owned(),
                    points: vec![point(1.0, 10.0), point(100.0, 1_000.0)],
                })
                .collect(),
            has_points: true,
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("aria-label=\"a &amp; b\"") && svg.contains("&lt;tip&gt;"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        // Both names end at the same height and are moved apart.
        let tops: Vec<f64> = svg
            .split("class=\"name")
            .skip(1)
            .filter_map(|part| part.split("y=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert!(tops[1] - tops[0] >= NAME_DISTANCE, "{tops:?}");
    }
}
