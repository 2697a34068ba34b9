//! One image for all processors, made of the images for each. A client that pulls it gets the one
//! for its own processor.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{Outcome, output, remove, run};
use super::target::Target;
use super::{Package, archives, checks};
use crate::tools;
use crate::workspace_root;

/// Processors that packages are made for.
const TARGETS: [Target; 2] = [Target::AMD64, Target::ARM64];

/// Makes the combined image next to the packages for this machine, and checks that each processor
/// gets its own.
///
/// # Errors
/// What could not be run, or which image has not been packed.
pub fn make() -> Outcome<()> {
    tools::IMAGE_TOOLS.ensure()?;
    tools::PYTHON.ensure()?;
    let package = Package::described(Target::own())?;
    let images: Vec<PathBuf> = TARGETS
        .into_iter()
        .map(|target| checks::image_of(target, &target.directory("package")))
        .collect::<Outcome<_>>()?;
    let index = package
        .out
        .join(format!("iolite-{}.oci.tar", package.version));
    run(Command::new("python3")
        .arg(workspace_root().join("packaging/image/index.py"))
        .arg(&index)
        .args([&package.version, &package.epoch.0])
        .args(images))?;
    for target in TARGETS {
        check(target, &index, &package.work.join("index"))?;
    }
    archives::sums(&package)?;
    println!("{}: amd64 and arm64", index.display());
    Ok(())
}

/// Extracts the image for a processor and checks it.
fn check(target: Target, index: &Path, place: &Path) -> Outcome<()> {
    remove(place)?;
    let arch = target.deb_arch();
    let from = format!("oci-archive:{}", index.display());
    let to = format!("oci:{}:taken", place.display());
    run(Command::new("skopeo").args(["copy", "--quiet", "--override-arch", arch, &from, &to]))?;
    let config =
        output(Command::new("skopeo").args(["inspect", "--config", "--override-arch", arch, &to]))?;
    // The configuration is shown with blanks.
    let words: String = config.split_whitespace().collect();
    match words.contains(&format!("\"architecture\":\"{arch}\"")) {
        true => Ok(()),
        false => Err(format!("{}: for {arch} it gives {config}", index.display())),
    }
}
