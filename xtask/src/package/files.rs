//! Operations on files and programs for packaging. Their errors name the file or program.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::parts;

pub(super) type Outcome<T> = Result<T, String>;

/// Returns a template with its placeholders replaced.
pub(super) fn filled(text: &str, words: &[(&str, &str)]) -> String {
    let fill = |text: String, (name, value): &(&str, &str)| text.replace(name, value);
    words.iter().fold(text.to_owned(), fill)
}

pub(super) fn template(name: &str) -> Outcome<String> {
    read(&crate::workspace_root().join("packaging").join(name))
}

pub(super) fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub(super) fn write(path: &Path, text: &str) -> Outcome<()> {
    if let Some(directory) = path.parent() {
        make_directory(directory)?;
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

pub(super) fn copy(from: &Path, to: &Path) -> Outcome<()> {
    if let Some(directory) = to.parent() {
        make_directory(directory)?;
    }
    let copied = fs::copy(from, to);
    copied
        .map(|_| ())
        .map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

pub(super) fn make_directory(path: &Path) -> Outcome<()> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub(super) fn remove(path: &Path) -> Outcome<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

pub(super) fn run(command: &mut Command) -> Outcome<()> {
    let what = format!("{command:?}");
    parts::done(command, &what)
}

pub(super) fn output(command: &mut Command) -> Outcome<String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?}: {}\n{said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
