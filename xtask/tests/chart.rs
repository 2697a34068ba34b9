//! Alerts and versions in the chart agree with the rest of the repository. `cargo xtask
//! check-chart` checks what the chart renders to.

use std::fs;

use xtask::workspace_root;

fn read(path: &str) -> String {
    fs::read_to_string(workspace_root().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Helm reads nothing outside of a chart, so the chart has a copy.
#[test]
fn the_alerts_of_the_chart_are_those_of_the_runbook() {
    let without_head = |path: &str| -> String {
        let text = read(path);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let published = "docs/deploy/prometheus/alerts.yml";
    let copied = "packaging/helm/iolite/files/alerts.yml";
    assert!(without_head(published).contains("alert:"));
    assert_eq!(
        without_head(copied),
        without_head(published),
        "copy {published} to {copied}"
    );
}

#[test]
fn the_version_of_the_chart_is_that_of_the_server() {
    let value_of = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().trim_matches('"').to_owned())
    };
    let server = value_of(&read("Cargo.toml"), "version = ");
    let chart = read("packaging/helm/iolite/Chart.yaml");
    assert!(server.is_some());
    assert_eq!(value_of(&chart, "appVersion:"), server);
    assert_eq!(value_of(&chart, "version:"), server);
}
