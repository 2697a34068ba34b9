//! `cargo xtask check-chart`: Helm lints and renders the chart with many values, and a program in Go, `packaging/helm/tests`, decodes
//! what comes out with the types of Kubernetes and asks whether the objects fit each other.
//!
//! Helm is built from its module: nothing has to be installed but Go. Nothing here needs a cluster.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::parts::{done, target_directory};
use crate::tools::GoProgram;
use crate::workspace_root;

/// The version of Helm that is built.
const HELM: GoProgram = GoProgram {
    name: "helm",
    module: "helm.sh/helm/v3/cmd/helm",
    version: "v3.22.0",
};

/// Lints, renders and checks the chart.
///
/// # Errors
/// What could not be built or does not hold.
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
    // Indirect modules and checksums are written down beside the copy; the repository needs none.
    test.env("GOFLAGS", "-mod=mod").env("HELM", helm);
    test.env("CHART", root.join("packaging/helm/iolite"));
    test.env("ALERTS", root.join("docs/deploy/prometheus/alerts.yml"));
    done(&mut test, "the chart")
}

/// Copies the program; its checksums of an earlier run stay.
fn copy_tests(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    // A test that is no more would run on.
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
