//! A page of measurements: self-contained HTML.
//!
//! Plots are SVG generated here, so that the page is complete without JavaScript; a few lines of
//! JavaScript show tips for the point under the cursor. Colours follow the reader's light or dark
//! setting.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::error::BenchError;
use crate::options::ReportOptions;
use crate::record::Record;
use crate::units::{grouped, short_bytes, short_count, short_duration, three_digits};

mod cards;
mod chart;
mod date;
mod figures;
mod html;
mod scale;
mod sections;

use date::utc_date;
use figures::Figures;
use html::escape;

const STYLE: &str = include_str!("report/style.css");
const SCRIPT: &str = include_str!("report/script.js");
/// Default path of the page.
const DEFAULT_OUTPUT: &str = "bench-report.html";

/// Reads the files and writes the page. Returns its path.
///
/// # Errors
/// A file cannot be read, has another format, or the page cannot be written.
pub(crate) fn make(options: &ReportOptions) -> Result<String, BenchError> {
    let mut record = Record::default();
    for path in &options.inputs {
        record.merge(Record::load(path)?);
    }
    let title = options.title.as_deref().unwrap_or("Measurements");
    let output = options
        .output
        .as_deref()
        .unwrap_or_else(|| Path::new(DEFAULT_OUTPUT));
    fs::write(output, page(&record, title))
        .map_err(|error| BenchError::File(output.to_owned(), error.to_string()))?;
    Ok(output.display().to_string())
}

/// Returns the page.
fn page(record: &Record, title: &str) -> String {
    let figures = Figures::new(record);
    let mut body = String::new();
    push_heading(&figures, title, &mut body);
    cards::push(&figures, &mut body);
    sections::push_summary(&figures, &mut body);
    sections::push_sweeps(&figures, &mut body);
    sections::push_latencies(&figures, &mut body);
    sections::push_memory(&figures, &mut body);
    push_method(&figures, &mut body);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <div id=\"tip\" hidden></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        escape(title)
    )
}

fn push_heading(figures: &Figures<'_>, title: &str, out: &mut String) {
    let record = figures.record;
    let machine = &record.machine;
    let _infallible = writeln!(
        out,
        "<header>\n<h1>{}</h1>\n<p class=\"where\">{}, {} \u{d7} {}, {}, {}</p>\n<ul class=\"servers\">",
        escape(title),
        utc_date(record.started_unix_ms),
        machine.processors,
        escape(&machine.processor),
        short_bytes(machine.memory_bytes),
        escape(&machine.kernel)
    );
    for (index, server) in figures.servers().iter().enumerate() {
        let version = if server.version.starts_with(&server.name) {
            server.version[server.name.len()..].trim()
        } else {
            server.version.as_str()
        };
        let _infallible = writeln!(
            out,
            "<li><i class=\"s{index}\"></i><b>{}</b> {}</li>",
            escape(&server.name),
            escape(version)
        );
    }
    out.push_str("</ul>\n</header>\n");
}

fn push_method(figures: &Figures<'_>, out: &mut String) {
    let record = figures.record;
    let rounds = record
        .runs
        .iter()
        .map(|run| run.round + 1)
        .max()
        .unwrap_or(0);
    let mut words = String::from("iolite bench");
    for word in &record.command {
        let needs_quotes = word.contains([' ', '\'', '"', '$', '*']) || word.is_empty();
        let shown = match needs_quotes {
            true => format!(" '{}'", word.replace('\'', "'\\''")),
            false => format!(" {word}"),
        };
        words += &shown;
    }
    let _infallible = write!(
        out,
        "<section>\n<h2>How this was measured</h2>\n<pre><code>{}</code></pre>\n\
         <p>{} runs, up to {rounds} of each server and workload, the servers taking turns. A figure is \
         the median of its rounds; a ratio is the median of the ratios of neighbouring runs, which \
         cancels what the machine does besides. Bars through points reach from the least to the \
         greatest round. CPU per request is the processor time of all threads of the server, the \
         kernel's work for them included, divided by the requests answered: it stays true when the \
         generator or the machine limits the throughput.</p>\n",
        escape(&words),
        grouped(record.runs.len() as u64)
    );
    push_disturbances(figures, out);
    out.push_str("</section>\n");
}

/// Appends the runs during which other processes had the server's processor.
fn push_disturbances(figures: &Figures<'_>, out: &mut String) {
    let runs = &figures.record.runs;
    let disturbed = runs.iter().filter(|run| run.outcome.is_disturbed()).count();
    if disturbed > 0 {
        let _infallible = writeln!(
            out,
            "<p class=\"warning\">In {} of {} runs threads of the server or the generator waited for a \
             processor more than a tenth of the time, because the machine was busy with something \
             else. Throughput and latency of those runs are not the servers' own; CPU per request \
             is, but for colder caches.</p>",
            grouped(disturbed as u64),
            grouped(runs.len() as u64)
        );
    }
    let errors: u64 = runs.iter().map(|run| run.outcome.errors).sum();
    if let Some(error) = runs
        .iter()
        .find_map(|run| run.outcome.first_error.as_deref())
    {
        let _infallible = writeln!(
            out,
            "<p class=\"warning\">{} replies were errors; the first: {}</p>",
            grouped(errors),
            escape(error)
        );
    }
}

/// Formats a figure of an axis.
fn show_rate(figure: f64) -> String {
    short_count(figure)
}

fn show_time(figure: f64) -> String {
    short_duration(figure)
}

/// Formats a ratio with two digits after the point if they are meaningful.
fn show_ratio(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 9.995 => format!("{ratio:.2}\u{d7}"),
        ratio => format!("{}\u{d7}", three_digits(ratio)),
    }
}

#[cfg(test)]
mod tests;
