//! Results as text: for people, in the formats of `redis-benchmark -q` and `--csv`, and as tables
//! of a comparison.

use std::fmt::Write as _;

use crate::metric::Metric;
use crate::record::{Run, Server, Shape};
use crate::run::{Outcome, Used};
use crate::units::{grouped, short_bytes, short_count, short_duration, three_digits};
use crate::workload::ValueBytes;

/// Share of its threads' time above which a busy generator may limit the throughput.
const BUSY: f64 = 0.9;
/// The first line of `--csv`, as in `redis-benchmark`.
pub(crate) const CSV_HEADING: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\
    \"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n";

/// Formats a result for people.
pub(crate) fn full(run: &Run, value_bytes: ValueBytes) -> String {
    let outcome = &run.outcome;
    let mut text = format!("{}\n", heading(&run.shape, value_bytes));
    let line = |text: &mut String, label: &str, content: &str| {
        let _infallible = writeln!(text, "  {label:<11}{content}");
    };
    line(&mut text, "throughput", &throughput(run));
    line(&mut text, "latency", &latency(outcome));
    if outcome.service.count() > 0 {
        let service = &outcome.service;
        let content = format!(
            "p50 {}  p99 {}  from sending alone, without the wait for a connection",
            short_duration(service.quantile_ns(0.5) as f64),
            short_duration(service.quantile_ns(0.99) as f64)
        );
        line(&mut text, "service", &content);
    }
    if let (Some(used), Some(each)) = (outcome.server, outcome.server_ns_per_request()) {
        let memory = short_bytes(used.rss_bytes_after);
        let content = format!("{}  {memory} resident", cost(outcome, used, each));
        line(&mut text, "server", &content);
    }
    if let (Some(used), Some(each)) = (outcome.generator, outcome.generator_ns_per_request()) {
        line(&mut text, "generator", &cost(outcome, used, each));
        if outcome.processors(used) > BUSY * run.shape.threads.max(1) as f64 {
            line(
                &mut text,
                "",
                "busy all the time: the throughput may be its own, not the server's",
            );
        }
    }
    if outcome.is_disturbed() {
        let note = "threads waited for a processor: something else had it, and latency shows that";
        line(&mut text, "disturbed", note);
    }
    if let Some(error) = &outcome.first_error {
        line(&mut text, "errors", &format!("the first: {error}"));
    }
    text
}

fn heading(shape: &Shape, value_bytes: ValueBytes) -> String {
    let sizes = match value_bytes {
        ValueBytes { min, max } if min == max => format!("{min} B"),
        ValueBytes { min, max } => format!("{min}-{max} B"),
    };
    let mut text = format!(
        "{}: {} connections, pipeline {}, values {sizes}, {} of {} B, {}",
        shape.workload,
        grouped(shape.connections),
        grouped(shape.pipeline),
        plural(shape.key_space, "key"),
        shape.key_bytes,
        plural(shape.threads, "thread"),
    );
    if let Some(rate) = shape.rate {
        let _infallible = write!(text, ", {} requests/s asked", short_count(rate));
    }
    text
}

fn plural(count: u64, noun: &str) -> String {
    format!(
        "{} {noun}{}",
        grouped(count),
        if count == 1 { "" } else { "s" }
    )
}

fn throughput(run: &Run) -> String {
    let outcome = &run.outcome;
    let mut text = format!(
        "{} requests/s  {} in {} s",
        grouped(crate::units::whole(outcome.requests_per_second())),
        plural(outcome.requests, "request"),
        three_digits(outcome.wall_ns as f64 / 1e9)
    );
    for (count, noun) in [(outcome.errors, "error"), (outcome.misses, "miss")] {
        if count > 0 {
            let plural = if noun == "miss" { "misses" } else { "errors" };
            let _infallible = write!(
                text,
                "  {} {}",
                grouped(count),
                if count == 1 { noun } else { plural }
            );
        }
    }
    text
}

fn latency(outcome: &Outcome) -> String {
    let latency = &outcome.latency;
    let mut text = format!("mean {}", short_duration(latency.mean_ns()));
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
        let value = short_duration(latency.quantile_ns(share) as f64);
        let _infallible = write!(text, "  {name} {value}");
    }
    let _infallible = write!(text, "  max {}", short_duration(latency.max_ns() as f64));
    text
}

fn cost(outcome: &Outcome, used: Used, each: f64) -> String {
    let share = three_digits(outcome.processors(used));
    format!(
        "{} of processor a request  {share} processors busy",
        short_duration(each)
    )
}

/// Formats a test as one line, as `redis-benchmark -q` does.
pub(crate) fn quiet(run: &Run, precision: usize) -> String {
    format!(
        "{}: {:.2} requests per second, p50={:.precision$} msec\n",
        run.shape.workload,
        run.outcome.requests_per_second(),
        run.outcome.latency.quantile_ns(0.5) as f64 / 1e6,
    )
}

/// Formats a row of `--csv`.
pub(crate) fn csv(run: &Run) -> String {
    let latency = &run.outcome.latency;
    let ms = |ns: f64| format!(",\"{:.3}\"", ns / 1e6);
    let mut row = format!(
        "\"{}\",\"{:.2}\"",
        run.shape.workload.replace('"', "\"\""),
        run.outcome.requests_per_second()
    );
    row += &ms(latency.mean_ns());
    row += &ms(latency.min_ns() as f64);
    for share in [0.5, 0.95, 0.99] {
        row += &ms(latency.quantile_ns(share) as f64);
    }
    row += &ms(latency.max_ns() as f64);
    row + "\n"
}

/// Formats the runs of one workload on several servers: medians, and ratios to the first server.
pub(crate) fn comparison(workload: &str, servers: &[&Server], runs: &[&Run]) -> String {
    let width = servers
        .iter()
        .map(|server| server.name.chars().count())
        .max()
        .unwrap_or(0)
        .max(6);
    let mut text = format!("{workload}\n  {:width$}", "");
    for metric in Metric::ALL {
        let _infallible = write!(text, "  {:>19}", metric.title());
    }
    text.push('\n');
    let base = servers.first().map_or("", |server| &server.name);
    for server in servers {
        let _infallible = write!(text, "  {:width$}", server.name);
        let of_server = runs.iter().copied().filter(|run| run.server == server.name);
        for metric in Metric::ALL {
            let figure = metric.median(of_server.clone());
            let mut cell = figure.map_or_else(|| "-".to_owned(), |figure| metric.show(figure));
            if server.name != base
                && let Some(ratio) = metric.ratio(runs.iter().copied(), &server.name, base)
            {
                let _infallible = write!(cell, " ({:.2}\u{d7})", ratio.median);
            }
            let _infallible = write!(text, "  {cell:>19}");
        }
        text.push('\n');
    }
    for server in servers {
        let of_server = runs.iter().filter(|run| run.server == server.name);
        text += &remarks(&server.name, of_server.copied());
    }
    text
}

/// Returns remarks on circumstances that make a server's figures misleading.
fn remarks<'a>(name: &str, runs: impl Iterator<Item = &'a Run> + Clone) -> String {
    let mut text = String::new();
    let outcomes = runs.map(|run| &run.outcome);
    let misses: u64 = outcomes.clone().map(|outcome| outcome.misses).sum();
    if misses > 0 {
        let _infallible = writeln!(text, "  {name}: {} keys were not there", grouped(misses));
    }
    let errors: u64 = outcomes.clone().map(|outcome| outcome.errors).sum();
    if let Some(first) = outcomes
        .clone()
        .find_map(|outcome| outcome.first_error.as_ref())
    {
        let _infallible = writeln!(
            text,
            "  {name}: {} errors, the first: {first}",
            grouped(errors)
        );
    }
    let disturbed = outcomes
        .clone()
        .filter(|outcome| outcome.is_disturbed())
        .count();
    if disturbed > 0 {
        let all = outcomes.count();
        let _infallible = writeln!(
            text,
            "  {name}: in {disturbed} of {all} runs something else had its processor"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn run(server: &str, cpu_ns: u64) -> Run {
        let mut outcome = Outcome {
            wall_ns: 2_000_000_000,
            requests: 1_000_000,
            misses: 1,
            server: Some(Used {
                cpu_ns,
                rss_bytes_after: 1 << 20,
                ..Used::default()
            }),
            generator: Some(Used {
                cpu_ns: 1_990_000_000,
                ..Used::default()
            }),
            ..Outcome::default()
        };
        outcome.latency.record(120_000, 1_000_000);
        Run {
            server: server.to_owned(),
            shape: Shape::of(&Workload::default()),
            round: 0,
            outcome,
        }
    }

    #[test]
    fn people_see_throughput_latency_and_cost() {
        let text = full(&run("a", 500_000_000), ValueBytes { min: 50, max: 149 });
        assert!(text.starts_with(
            "GET: 50 connections, pipeline 1, values 50-149 B, 1 key of 16 B, 1 thread\n"
        ));
        for part in [
            "500,000 requests/s  1,000,000 requests in 2 s  1 miss\n",
            "p99.9 120 \u{b5}s",
            "server     500 ns of processor a request  0.25 processors busy  1 MiB resident",
            "busy all the time",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn machines_see_what_redis_benchmark_prints() {
        let run = run("a", 1);
        assert_eq!(
            quiet(&run, 3),
            "GET: 500000.00 requests per second, p50=0.120 msec\n"
        );
        assert_eq!(
            csv(&run),
            "\"GET\",\"500000.00\",\"0.120\",\"0.120\",\"0.120\",\"0.120\",\"0.120\",\"0.120\"\n"
        );
    }

    #[test]
    fn a_comparison_shows_ratios_to_the_first() {
        let servers = ["a", "b"].map(|name| Server {
            name: name.to_owned(),
            ..Server::default()
        });
        let (one, two) = (run("a", 900_000_000), run("b", 300_000_000));
        let text = comparison("GET", &[&servers[0], &servers[1]], &[&one, &two]);
        assert!(text.contains("300 ns (3.00\u{d7})"), "{text}");
        assert!(!text.contains("900 ns ("), "{text}");
        assert!(
            text.ends_with("  a: 1 keys were not there\n  b: 1 keys were not there\n"),
            "{text}"
        );
    }
}
