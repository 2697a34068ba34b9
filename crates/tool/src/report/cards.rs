//! The result in a few numbers: ranges over all workloads, so that none is picked.

use std::fmt::Write as _;

use super::figures::{Figures, Workload};
use super::html::escape;
use crate::metric::Metric;
use crate::units::three_digits;

/// Appends the cards of each server but the first, to which the ratios refer.
pub(super) fn push(figures: &Figures<'_>, out: &mut String) {
    let base = figures.base();
    let mut cards = String::new();
    for (index, server) in figures.servers().iter().enumerate().skip(1) {
        let name = &server.name;
        let over = format!("{} over {}", escape(base), escape(name));
        let all = figures.workloads.iter();
        let cpu = ratios(all.clone(), Metric::ServerCpu, name, base);
        push_card(
            index,
            &cpu,
            &format!("CPU per request, {over}"),
            "workloads",
            &mut cards,
        );
        let open = all.filter(|workload| workload.shape.rate.is_some());
        let p99 = ratios(open, Metric::P99, name, base);
        push_card(
            index,
            &p99,
            &format!("p99 at a fixed load, {over}"),
            "loads",
            &mut cards,
        );
        let memory = memory_ratios(figures, name);
        push_card(
            index,
            &memory,
            &format!("memory per key, {over}"),
            "data sets",
            &mut cards,
        );
    }
    if !cards.is_empty() {
        let _infallible = writeln!(out, "<div class=\"cards\">\n{cards}</div>");
    }
}

fn ratios<'a>(
    workloads: impl Iterator<Item = &'a Workload<'a>>,
    metric: Metric,
    server: &str,
    base: &str,
) -> Vec<f64> {
    let ratios = workloads.filter_map(|workload| workload.ratio(metric, server, base));
    ratios.map(|ratio| ratio.median).collect()
}

fn memory_ratios(figures: &Figures<'_>, server: &str) -> Vec<f64> {
    let of_kind = |name: &str, kind: &[super::figures::KeyCost<'_>]| {
        kind.iter()
            .find(|cost| cost.memory.server == name)
            .map(|cost| cost.bytes)
    };
    let kinds = figures.memory();
    let pairs = kinds.iter().filter_map(|kind| {
        let (this, base) = (of_kind(server, kind)?, of_kind(figures.base(), kind)?);
        (this > 0.0).then(|| base / this)
    });
    pairs.collect()
}

fn push_card(index: usize, ratios: &[f64], title: &str, noun: &str, out: &mut String) {
    let Some(low) = ratios.iter().copied().reduce(f64::min) else {
        return;
    };
    let high = ratios.iter().copied().fold(low, f64::max);
    let range = match three_digits(low) == three_digits(high) {
        true => format!("{}\u{d7}", three_digits(low)),
        false => format!(
            "{} \u{2013} {}\u{d7}",
            three_digits(low),
            three_digits(high)
        ),
    };
    let over_all = match ratios.len() {
        1 => String::new(),
        count => format!(", {count} {noun}"),
    };
    let _infallible = writeln!(
        out,
        "<div class=\"card s{index}\"><b>{range}</b><span>{title}{over_all}</span></div>"
    );
}
