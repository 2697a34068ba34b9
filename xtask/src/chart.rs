//! `cargo xtask check-chart`: Helm lints and renders the chart with many values. A program in Go,
//! `packaging/helm/tests`, decodes the output with the types of Kubernetes and checks that the
//! objects fit together.
//!
//! Helm is built from its module, so only Go has to be installed. Nothing here needs a cluster.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::parts::{done, target_directory};
use crate::tools::GoProgram;
use crate::workspace_root;

/// Version of Helm that is built.
const HELM: GoProgram = GoProgram {
    name: "helm",
    module: "helm.sh/helm/v3/cmd/helm",
    version: "v3.22.0",
};

/// Lints, renders and checks the chart.
///
/// # Errors
/// What could not be built, or which check failed.
pub fn check() -> Result<(), String> {
    let work = std::path::absolute(target_directory().join("chart"))
        .map_err(|error| format!("the directory of the chart's tests: {error}"))?;
    let helm = HELM.build(&work)?;
    let tests = work.join("tests");
    copy_tests(&workspace_root().join("packaging/helm/tests"), &tests)
        .map_err(|error| format!("copying the chart's tests: {error}"))?;
    let root = workspace_root();
    let mut test = Command::new("go");
    test.args(["test", "-count=1", "./..."]).current_dir(tests);
    // Go records indirect modules and checksums next to the copy. The repository needs none.
    test.env("GOFLAGS", "-mod=mod").env("HELM", helm);
    test.env("CHART", root.join("packaging/helm/iolite"));
    test.env("ALERTS", root.join("docs/deploy/prometheus/alerts.yml"));
    done(&mut test, "the chart")
}

/// Copies the program. Checksums of an earlier run stay.
fn copy_tests(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    // A deleted test would otherwise still run.
    for entry in fs::read_dir(to)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "go") {
            fs::remove_file(path)?;
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
