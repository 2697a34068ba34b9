//! The sections of the page: results, scaling, latencies, memory per key.

use std::fmt::Write as _;

use super::chart::{Chart, Label, Line, Point};
use super::figures::{Axis, Figures, Sweep, Workload};
use super::html::escape;
use super::{show_rate, show_ratio, show_time};
use crate::metric::Metric;
use crate::record::Memory;
use crate::units::{grouped, short_count, three_digits};

/// Number of latency panels that are initially open.
const PANELS_OPEN_MAX: usize = 6;
/// Step of a latency curve: it has the quantiles 1 - 10^-x for x from [`CURVE_START`] in steps of
/// this.
const CURVE_STEP: f64 = 0.1;
/// The first x: 37 %, so that the median is not at the edge.
const CURVE_START: f64 = 0.2;
/// The last x: 99.99 %.
const CURVE_END: f64 = 4.0;

/// Appends the table of all workloads.
pub(super) fn push_summary(figures: &Figures<'_>, out: &mut String) {
    if figures.workloads.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Results</h2>\n");
    let others = figures.servers().len().saturating_sub(1);
    if others > 0 {
        let base = escape(figures.base());
        let _infallible = writeln!(
            out,
            "<p>Bars show how much less CPU a request costs the server than {base}; the line is at \
             {base}. Ratios in brackets are to {base} too, and above 1 is better.</p>"
        );
    }
    out.push_str("<div class=\"wide\"><table>\n<thead><tr><th>Workload</th><th></th>");
    for metric in Metric::ALL {
        let _infallible = write!(out, "<th class=\"figure\">{}</th>", metric.title());
    }
    out.push_str(if others > 0 { "<th>less CPU</th>" } else { "" });
    out.push_str("</tr></thead>\n");
    let longest = longest_bar(figures);
    for workload in &figures.workloads {
        push_summary_rows(figures, workload, longest, out);
    }
    out.push_str("</table></div>\n</section>\n");
}

/// Returns a name in which units do not wrap to another line than their numbers.
fn unbroken(name: &str) -> String {
    let mut text = name.to_owned();
    for unit in ["B", "KB", "K", "M"] {
        text = text.replace(&format!(" {unit}"), &format!("\u{a0}{unit}"));
    }
    text
}

/// Returns the greatest CPU ratio, which is the length of the longest bar.
fn longest_bar(figures: &Figures<'_>) -> f64 {
    let mut longest: f64 = 1.0;
    for workload in &figures.workloads {
        for server in figures.servers() {
            let ratio = workload.ratio(Metric::ServerCpu, &server.name, figures.base());
            longest = ratio.map_or(longest, |ratio| longest.max(ratio.median));
        }
    }
    longest
}

fn push_summary_rows(
    figures: &Figures<'_>,
    workload: &Workload<'_>,
    longest: f64,
    out: &mut String,
) {
    let present: Vec<usize> = (0..figures.servers().len())
        .filter(|&index| workload.samples(&figures.servers()[index].name) > 0)
        .collect();
    out.push_str("<tbody>\n");
    for (row, &index) in present.iter().enumerate() {
        let name = &figures.servers()[index].name;
        out.push_str("<tr>");
        if row == 0 {
            let _infallible = write!(
                out,
                "<th rowspan=\"{}\" scope=\"rowgroup\">{}</th>",
                present.len(),
                escape(&unbroken(&workload.shape.workload))
            );
        }
        let _infallible = write!(out, "<td><i class=\"s{index}\"></i>{}</td>", escape(name));
        for metric in Metric::ALL {
            let figure = workload.median(metric, name);
            let shown = figure.map_or_else(|| "\u{2013}".to_owned(), |figure| metric.show(figure));
            let _infallible = write!(out, "<td class=\"figure\">{}", escape(&shown));
            if index > 0
                && metric != Metric::ServerCpu
                && let Some(ratio) = workload.ratio(metric, name, figures.base())
            {
                let _infallible = write!(out, " <small>({})</small>", show_ratio(ratio.median));
            }
            out.push_str("</td>");
        }
        if figures.servers().len() > 1 {
            push_ratio_bar(figures, workload, index, longest, out);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n");
}

fn push_ratio_bar(
    figures: &Figures<'_>,
    workload: &Workload<'_>,
    index: usize,
    longest: f64,
    out: &mut String,
) {
    let name = &figures.servers()[index].name;
    let ratio = workload.ratio(Metric::ServerCpu, name, figures.base());
    out.push_str("<td class=\"bar\">");
    if let Some(ratio) = ratio.filter(|_| index > 0) {
        let tip = format!(
            "{name}: {} less CPU per request ({} to {} over the rounds)",
            show_ratio(ratio.median),
            show_ratio(ratio.low),
            show_ratio(ratio.high)
        );
        let _infallible = write!(
            out,
            "<span class=\"track\" style=\"--one:{:.2}%\" data-tip=\"{}\">\
             <span class=\"s{index}\" style=\"width:{:.2}%\"></span></span><b>{}</b>",
            100.0 / longest,
            escape(&tip),
            100.0 * ratio.median / longest,
            show_ratio(ratio.median)
        );
    }
    out.push_str("</td>");
}

/// Appends throughput and CPU of workloads in which one number differs.
pub(super) fn push_sweeps(figures: &Figures<'_>, out: &mut String) {
    let sweeps = figures.sweeps();
    for axis in [Axis::Pipeline, Axis::Threads, Axis::Connections] {
        let of_axis: Vec<&Sweep<'_>> = sweeps.iter().filter(|sweep| sweep.axis == axis).collect();
        if of_axis.is_empty() {
            continue;
        }
        let _infallible = writeln!(out, "<section>\n<h2>By {}</h2>", axis.title());
        for sweep in of_axis {
            let _infallible = writeln!(
                out,
                "<h3>{}</h3>\n<div class=\"charts\">",
                escape(&unbroken(&sweep.title))
            );
            // An open run has the requested throughput.
            let is_open = sweep
                .workloads
                .iter()
                .any(|workload| workload.shape.rate.is_some());
            let first = if is_open {
                Metric::P99
            } else {
                Metric::Throughput
            };
            for metric in [first, Metric::ServerCpu] {
                push_figure(
                    metric_title(metric),
                    &sweep_chart(figures, sweep, metric),
                    out,
                );
            }
            out.push_str("</div>\n");
        }
        out.push_str("</section>\n");
    }
}

fn metric_title(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "Requests a second (more is better)",
        Metric::ServerCpu => "CPU of the server per request (less is better)",
        Metric::P50 => "Median latency (less is better)",
        Metric::P99 => "Latency that 99 % stay below (less is better)",
        Metric::P999 => "Latency that 99.9 % stay below (less is better)",
    }
}

fn push_figure(title: &str, chart: &Chart<'_>, out: &mut String) {
    if chart.lines.iter().all(|line| line.points.is_empty()) {
        return;
    }
    let _infallible = writeln!(
        out,
        "<figure><figcaption>{}</figcaption>{}</figure>",
        escape(title),
        chart.svg()
    );
}

fn sweep_chart<'a>(figures: &Figures<'_>, sweep: &Sweep<'_>, metric: Metric) -> Chart<'a> {
    let x_ticks: Vec<(f64, String)> = sweep
        .workloads
        .iter()
        .map(|workload| sweep.axis.of(workload.shape))
        .map(|number| (number as f64, grouped(number)))
        .collect();
    let line = |(index, server): (usize, &crate::record::Server)| Line {
        index,
        name: server.name.clone(),
        points: sweep
            .workloads
            .iter()
            .filter_map(|workload| sweep_point(figures, sweep, workload, metric, index))
            .collect(),
    };
    Chart {
        description: format!("{}, {}", sweep.title, metric_title(metric)),
        x_title: sweep.axis.title(),
        x_ticks,
        is_x_log: true,
        show_y: if metric == Metric::Throughput {
            show_rate
        } else {
            show_time
        },
        lines: figures.servers().iter().enumerate().map(line).collect(),
        has_points: true,
    }
}

fn sweep_point(
    figures: &Figures<'_>,
    sweep: &Sweep<'_>,
    workload: &Workload<'_>,
    metric: Metric,
    index: usize,
) -> Option<Point> {
    let name = &figures.servers()[index].name;
    let figure = workload
        .median(metric, name)
        .filter(|figure| *figure > 0.0)?;
    let number = sweep.axis.of(workload.shape);
    let ratio = workload
        .ratio(metric, name, figures.base())
        .filter(|_| index > 0);
    let mut tip = format!(
        "{name}, {} {}: {}",
        sweep.axis.title(),
        grouped(number),
        metric.show(figure)
    );
    if let Some(ratio) = ratio {
        let _infallible = write!(
            tip,
            ", {} as good as {} ({} to {})",
            show_ratio(ratio.median),
            figures.base(),
            show_ratio(ratio.low),
            show_ratio(ratio.high)
        );
    }
    Some(Point {
        x: number as f64,
        y: figure,
        spread: workload.spread(metric, name),
        tip,
        // Ratios of a single second server have enough space; those of more would overlap.
        label: ratio
            .filter(|_| figures.servers().len() == 2)
            .map(|ratio| Label {
                text: show_ratio(ratio.median),
                is_below: workload.median(metric, figures.base()) > Some(figure),
            }),
    })
}

/// Appends latency curves: open runs first, because only they show what clients experience.
pub(super) fn push_latencies(figures: &Figures<'_>, out: &mut String) {
    let with_samples = |is_open: bool| -> Vec<&Workload<'_>> {
        let kept = figures.workloads.iter().filter(|workload| {
            workload.shape.rate.is_some() == is_open
                && figures
                    .servers()
                    .iter()
                    .any(|server| workload.samples(&server.name) > 0)
        });
        kept.collect()
    };
    let (open, closed) = (with_samples(true), with_samples(false));
    if !open.is_empty() {
        out.push_str(
            "<section>\n<h2>Latency at a fixed load</h2>\n<p>Requests are sent at times that do not \
             depend on the server, and count from when they were due: a server that stalls pays for \
             all that it delayed.</p>\n<div class=\"charts\">\n",
        );
        open.iter()
            .for_each(|workload| push_latency(figures, workload, out));
        out.push_str("</div>\n</section>\n");
    }
    if !closed.is_empty() {
        out.push_str(
            "<section>\n<h2>Latency under full load</h2>\n<p>Each connection sends as soon as it was \
             answered, so that latency is mostly time in the queue of the others.</p>\n",
        );
        let (first, rest) = closed.split_at(closed.len().min(PANELS_OPEN_MAX));
        out.push_str("<div class=\"charts\">\n");
        first
            .iter()
            .for_each(|workload| push_latency(figures, workload, out));
        out.push_str("</div>\n");
        if !rest.is_empty() {
            let _infallible = write!(
                out,
                "<details><summary>{} more workloads</summary>\n<div class=\"charts\">\n",
                rest.len()
            );
            rest.iter()
                .for_each(|workload| push_latency(figures, workload, out));
            out.push_str("</div></details>\n");
        }
        out.push_str("</section>\n");
    }
}

fn push_latency(figures: &Figures<'_>, workload: &Workload<'_>, out: &mut String) {
    let shape = workload.shape;
    let mut title = shape.workload.clone();
    if let Some(rate) = shape.rate {
        let _infallible = write!(title, ", {} requests/s", short_count(rate));
    }
    let ticks = [
        (CURVE_START, ""),
        (0.301, "50 %"),
        (1.0, "90 %"),
        (2.0, "99 %"),
        (3.0, "99.9 %"),
        (4.0, "99.99 %"),
    ];
    let line = |(index, server): (usize, &crate::record::Server)| Line {
        index,
        name: server.name.clone(),
        points: latency_points(workload, &server.name),
    };
    let chart = Chart {
        description: format!("Latency of {title}"),
        x_title: "share of requests",
        x_ticks: ticks
            .iter()
            .map(|(place, name)| (*place, (*name).to_owned()))
            .collect(),
        is_x_log: false,
        show_y: show_time,
        lines: figures.servers().iter().enumerate().map(line).collect(),
        has_points: false,
    };
    push_figure(&unbroken(&title), &chart, out);
}

fn latency_points(workload: &Workload<'_>, server: &str) -> Vec<Point> {
    // A quantile beyond the samples equals their maximum.
    let end = (workload.samples(server).max(1) as f64)
        .log10()
        .min(CURVE_END);
    let mut points = Vec::new();
    let mut place = CURVE_START;
    while place <= end + 1e-9 {
        let share = 1.0 - 10_f64.powf(-place);
        let Some(ns) = workload.quantile_ns(server, share).filter(|ns| *ns > 0.0) else {
            break;
        };
        let tip = format!(
            "{server}: {} % within {}",
            three_nines(share),
            show_time(ns)
        );
        points.push(Point {
            x: place,
            y: ns,
            spread: None,
            tip,
            label: None,
        });
        place += CURVE_STEP;
    }
    points
}

/// Formats a share in percent, with the digits that distinguish it from the next.
fn three_nines(share: f64) -> String {
    match share {
        share if share < 0.9 => format!("{:.0}", share * 100.0),
        share if share < 0.99 => format!("{:.1}", share * 100.0),
        share if share < 0.999 => format!("{:.2}", share * 100.0),
        share => format!("{:.3}", share * 100.0),
    }
}

/// Appends the memory per key.
pub(super) fn push_memory(figures: &Figures<'_>, out: &mut String) {
    let kinds = figures.memory();
    if kinds.is_empty() {
        return;
    }
    out.push_str(
        "<section>\n<h2>Memory per key or element</h2>\n<p>Resident memory of the loaded server minus that \
         of the empty one, divided by the keys, or by the elements of what the keys hold. The shaded part \
         is what the bytes of key and value need themselves.</p>\n<div class=\"bars\">\n",
    );
    let greatest = kinds
        .iter()
        .flatten()
        .map(|cost| cost.bytes)
        .fold(1.0, f64::max);
    for kind in &kinds {
        let memory = kind[0].memory;
        let _infallible = writeln!(out, "<h3>{}</h3>", escape(&what_is_kept(memory)));
        let payload = (memory.key_bytes + memory.value_bytes) as f64;
        for (index, server) in figures.servers().iter().enumerate() {
            let Some(cost) = kind.iter().find(|cost| cost.memory.server == server.name) else {
                continue;
            };
            let _infallible = writeln!(
                out,
                "<div class=\"row\"><span>{}</span><span class=\"track\">\
                 <span class=\"s{index}\" style=\"width:{:.2}%\"></span>\
                 <span class=\"payload\" style=\"width:{:.2}%\"></span></span><b>{} B</b></div>",
                escape(&server.name),
                100.0 * cost.bytes / greatest,
                100.0 * payload.min(cost.bytes) / greatest,
                three_digits(cost.bytes)
            );
        }
    }
    out.push_str("</div>\n</section>\n");
}

fn what_is_kept(memory: &Memory) -> String {
    let count = short_count(memory.keys as f64);
    match memory.data.as_str() {
        "" => format!(
            "{count} keys of {} B, values of {} B",
            memory.key_bytes, memory.value_bytes
        ),
        data => data.to_owned(),
    }
}
