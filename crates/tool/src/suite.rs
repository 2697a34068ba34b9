//! Workloads that need no script: those for which others published figures, by letter, and those of
//! each data type, by name.

use crate::error::BenchError;
use crate::measure::Step;
use crate::options::Options;

mod published;
mod series;
mod types;

/// The name for every data set of [`types`].
const ALL_TYPES: &str = "types";

/// Returns the steps of the published workloads, or of the requested ones.
///
/// # Errors
/// An unknown name.
pub(crate) fn steps(options: &Options) -> Result<Vec<Step>, BenchError> {
    let wanted = &options.only;
    if let Some(name) = wanted.iter().find(|name| !is_known(name)) {
        return Err(BenchError::Usage(format!(
            "No workload is called '{name}'; there are {}",
            names().join(" ")
        )));
    }
    let is_named = |name: &str| wanted.iter().any(|one| one == name);
    let mut steps = Vec::new();
    for entry in published::ENTRIES {
        if wanted.is_empty() || is_named(entry.letter) {
            steps.extend(entry.steps(options));
        }
    }
    for set in types::DATA_SETS {
        if is_named(ALL_TYPES) || is_named(set.name) {
            steps.extend(set.steps(options));
        }
    }
    Ok(steps)
}

fn is_known(name: &str) -> bool {
    names().contains(&name)
}

/// Returns all names that can be requested.
fn names() -> Vec<&'static str> {
    let letters = published::ENTRIES.iter().map(|entry| entry.letter);
    let types = types::DATA_SETS.iter().map(|set| set.name);
    letters.chain([ALL_TYPES]).chain(types).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::ValueBytes;

    fn letters(only: &[&str]) -> Options {
        Options {
            only: only.iter().map(|letter| (*letter).to_owned()).collect(),
            ..Options::default()
        }
    }

    #[test]
    fn names_are_unique_and_each_data_set_is_loaded_once() {
        let mut steps = steps(&letters(&[])).unwrap();
        steps.extend(super::steps(&letters(&["types"])).unwrap());
        let mut names: Vec<&str> = steps
            .iter()
            .map(|step| step.workload.name.as_str())
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(steps.first().is_some_and(|step| step.is_fresh));
        for pair in steps.windows(2) {
            let data = |step: &Step| {
                let workload = &step.workload;
                let data = step.data.as_ref().map(|data| data.name.clone());
                (
                    workload.key_space,
                    workload.value_bytes,
                    workload.key_bytes,
                    data,
                )
            };
            assert!(pair[1].is_fresh || data(&pair[0]) == data(&pair[1]));
        }
    }

    #[test]
    fn key_spaces_stay_below_the_limit() {
        let options = Options {
            keys_max: 1_000_000,
            ..letters(&["e", "k"])
        };
        let steps = steps(&options).unwrap();
        assert!(
            steps
                .iter()
                .all(|step| step.workload.key_space <= 1_000_000)
        );
        // Two kinds of (e) with one key space, and two of (k).
        assert_eq!(steps.len(), 4);
    }

    #[test]
    fn published_shapes_are_kept() {
        let steps = steps(&letters(&["c", "h"])).unwrap();
        let pipelines: Vec<usize> = steps.iter().map(|step| step.workload.pipeline).collect();
        assert_eq!(pipelines, [1, 10, 100, 200, 500, 16]);
        assert_eq!(steps[5].workload.key_bytes, 42);
        assert_eq!(steps[5].workload.value_bytes, ValueBytes::exactly(128));
    }

    #[test]
    fn a_type_loads_its_data_once_and_counts_its_elements() {
        let steps = steps(&letters(&["hashes"])).unwrap();
        assert_eq!(steps.len(), 3);
        assert!(steps[0].is_fresh && !steps[1].is_fresh);
        assert_eq!(steps[0].filled_by[0].requests, 100_001);
        let elements = |step: &Step| step.data.as_ref().map(|data| data.elements);
        assert_eq!(elements(&steps[0]), Some(1_000_010));
        assert!(steps[1].filled_by.is_empty());
    }

    #[test]
    fn an_unknown_letter_is_refused() {
        assert!(steps(&letters(&["z"])).is_err());
    }
}
