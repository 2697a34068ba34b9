//! Tests of the page, from records as the tool writes them.

use super::*;
use crate::record::{Memory, Run, Server, Shape};
use crate::run::{Outcome, Used};

fn run(server: &str, round: u64, pipeline: u64, cpu_ns: u64) -> Run {
    let mut outcome = Outcome {
        wall_ns: 1_000_000_000,
        requests: 10_000 * pipeline,
        server: Some(Used {
            cpu_ns,
            ..Used::default()
        }),
        ..Outcome::default()
    };
    (1..2_000).for_each(|us| outcome.latency.record(us * 1_000, pipeline));
    Run {
        server: server.to_owned(),
        shape: Shape {
            workload: format!("c: <mixed>, pipeline {pipeline}"),
            family: "c: <mixed>".to_owned(),
            pipeline,
            connections: 50,
            threads: 1,
            ..Shape::default()
        },
        round,
        outcome,
    }
}

fn record() -> Record {
    let mut runs = Vec::new();
    for round in 0..3 {
        for pipeline in [1, 16, 500] {
            runs.push(run("redis", round, pipeline, 80_000_000 + round));
            runs.push(run("iolite", round, pipeline, 20_000_000));
        }
    }
    let memory = |server: &str, full_bytes: u64| Memory {
        server: server.to_owned(),
        data: String::new(),
        keys: 1_000_000,
        key_bytes: 16,
        value_bytes: 8,
        empty_bytes: 0,
        full_bytes,
    };
    Record {
        command: vec!["--start".to_owned(), "a='b' c".to_owned()],
        servers: ["redis", "iolite"]
            .map(|name| Server {
                name: name.to_owned(),
                version: format!("{name} 1.2.3"),
                ..Server::default()
            })
            .to_vec(),
        runs,
        memory: vec![memory("redis", 100_000_000), memory("iolite", 50_000_000)],
        ..Record::default()
    }
}

#[test]
fn the_page_has_all_its_parts_and_needs_nothing_else() {
    let page = page(&record(), "A & B");
    for part in [
        "<title>A &amp; B</title>",
        "<b>redis</b> 1.2.3",
        "<h2>Results</h2>",
        "By pipeline depth",
        "Latency under full load",
        "Memory per key",
        "c: &lt;mixed&gt;, pipeline 500</th>",
        "<b>4.00\u{d7}</b>",
        "<b>50 B</b>",
        "iolite bench --start &#39;a=",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for foreign in [
        "http://", "https://", "<link", "src=", "NaN", "<mixed>", "@import",
    ] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn every_element_is_closed() {
    let page = page(&record(), "x");
    for element in [
        "section", "table", "tbody", "tr", "td", "figure", "svg", "div", "p", "ul", "li",
    ] {
        let opened = page.matches(&format!("<{element}>")).count()
            + page.matches(&format!("<{element} ")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{element}>")).count(),
            "{element}"
        );
    }
}

#[test]
fn one_server_alone_makes_a_page_without_ratios() {
    let mut record = record();
    record.servers.truncate(1);
    record.runs.retain(|run| run.server == "redis");
    let page = page(&record, "x");
    assert!(page.contains("<h2>Results</h2>") && !page.contains("less CPU</th>"));
    assert!(super::page(&Record::default(), "empty").contains("</html>"));
}

#[test]
fn disturbed_runs_and_errors_are_told() {
    let mut record = record();
    record.runs[0].outcome.server = Some(Used {
        cpu_ns: 1,
        waited_ns: 500_000_000,
        ..Used::default()
    });
    record.runs[0].outcome.first_error = Some("ERR <x>".to_owned());
    let page = page(&record, "x");
    assert!(page.contains("In 1 of 18 runs") && page.contains("ERR &lt;x&gt;"));
}
