//! Runs every transcript on every target.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use server::config::Settings;
use store::Store;
use testkit::in_process;
use testkit::target::Launcher;
use testkit::transcript::{Transcript, run};

/// Returns the directory of the transcripts: FAMILY/NAME.txt.
fn transcripts_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../commands/tests/transcripts")
}

/// Returns all files, ordered by name.
fn transcript_paths() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for family in fs::read_dir(transcripts_directory()).unwrap() {
        let family = family.unwrap().path();
        if !family.is_dir() {
            continue;
        }
        for file in fs::read_dir(&family).unwrap() {
            let path = file.unwrap().path();
            assert_eq!(
                path.extension().and_then(|extension| extension.to_str()),
                Some("txt"),
                "{} is no transcript",
                path.display()
            );
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

fn read(path: &Path) -> Transcript {
    let text = fs::read_to_string(path).unwrap();
    let below = path.strip_prefix(transcripts_directory()).unwrap();
    Transcript::parse(&below.display().to_string(), &text).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn run_all(launcher: &Launcher) {
    let failures: Vec<String> = transcript_paths()
        .iter()
        .flat_map(|path| run(&read(path), launcher))
        .map(|failure| failure.to_string())
        .collect();
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn every_file_is_a_transcript() {
    for path in transcript_paths() {
        read(&path);
    }
}

#[test]
fn transcripts_hold_on_redis() {
    run_all(&Launcher::oracle());
}

#[test]
fn transcripts_hold_without_sockets() {
    let launcher = in_process::launcher("in process", |settings| {
        Store::new(&store_options(settings)?)
    });
    run_all(&launcher);
}

#[test]
fn transcripts_hold_over_a_plain_map() {
    let launcher = in_process::launcher("plain map", |settings| {
        Ok(Store::naive(&store_options(settings)?))
    });
    run_all(&launcher);
}

fn store_options(settings: &Settings) -> io::Result<store::Options> {
    let databases = settings.config().databases_count;
    Ok(store::Options {
        databases: u16::try_from(databases).map_err(io::Error::other)?,
    })
}

#[test]
fn transcripts_hold_on_the_built_server() {
    run_all(&Launcher::iolite());
}

/// Returns the names of the files that a command and its subcommands need.
fn needed_names(spec: &engine::CommandSpec) -> Vec<String> {
    let name = spec.name.to_ascii_lowercase();
    if spec.subcommands.is_empty() {
        return vec![name];
    }
    let subcommands = spec.subcommands.iter();
    subcommands
        .map(|row| format!("{name}-{}", row.name.to_ascii_lowercase()))
        .collect()
}

#[test]
fn every_row_has_a_transcript() {
    let paths = transcript_paths();
    let present: Vec<&str> = paths
        .iter()
        .filter_map(|path| path.file_stem()?.to_str())
        .collect();
    let rows = commands::table().commands().iter();
    let missing: Vec<String> = rows
        .flat_map(|spec| needed_names(spec))
        .filter(|name| !present.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "no transcript for {missing:?}");
}
