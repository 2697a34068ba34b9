//! Tests that data directories of every released form are read, and that data written from them is
//! read again.

use std::path::{Path, PathBuf};

use protocol::Value;
use testkit::process::{Server, ServerBuilder, temporary_directory};

fn golden() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = std::fs::read_dir(all).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    paths.sort();
    paths
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copied = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &copied);
        } else {
            std::fs::copy(&path, &copied).unwrap();
        }
    }
}

fn start(directory: &Path) -> Server {
    let directory = directory.to_str().unwrap();
    let words = [
        "--dir",
        directory,
        "--appendonly",
        "yes",
        "--enable-debug-command",
        "yes",
    ];
    ServerBuilder::iolite().args(&words).start().unwrap()
}

fn text(server: &Server, words: &[&str]) -> String {
    match server.client().unwrap().command(words).unwrap() {
        Value::Bulk(text) | Value::Simple(text) => String::from_utf8(text).unwrap(),
        other => format!("{other:?}"),
    }
}

#[test]
fn directories_of_older_forms_are_read_and_written_anew() {
    let directories = golden();
    assert!(!directories.is_empty());
    for golden in directories {
        let place = temporary_directory("upgrade").unwrap();
        copy(&golden, &place);
        let expected = std::fs::read_to_string(golden.join("DIGEST")).unwrap();
        let expected = expected.trim();
        // The original directory, then one with a new checkpoint, then one with a new log after it.
        for round in 0..3 {
            let server = start(&place);
            assert_eq!(
                text(&server, &["DEBUG", "DIGEST"]),
                expected,
                "{golden:?} {round}"
            );
            assert_eq!(text(&server, &["FCALL", "f", "0"]), "Integer(1)");
            assert_eq!(text(&server, &["GET", "after"]), "checkpoint");
            if round == 0 {
                assert_eq!(text(&server, &["SAVE"]), "OK");
            } else {
                text(&server, &["SET", "more", "x"]);
                text(&server, &["DEL", "more"]);
            }
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}

/// Returns the form of a directory, by the numbers in its files, in the notation of the golden
/// directories' names.
fn form(directory: &Path) -> String {
    let data = directory.join("iolite-data");
    let manifest = std::fs::read_to_string(data.join("MANIFEST")).unwrap();
    let first = manifest.lines().next().unwrap();
    let manifest_version = first.strip_prefix("iolite-manifest ").unwrap();
    let checkpoint = manifest
        .lines()
        .find_map(|line| line.strip_prefix("directory "));
    let part = std::fs::read(data.join(checkpoint.unwrap()).join("0000.part")).unwrap();
    let mut segments: Vec<PathBuf> = std::fs::read_dir(data.join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .collect();
    segments.sort();
    let log = std::fs::read(segments.last().unwrap()).unwrap();
    // The version follows the eight bytes that identify the file.
    let version = |bytes: &[u8]| u16::from_le_bytes([bytes[8], bytes[9]]);
    format!(
        "manifest-{manifest_version}-part-{}-log-{}",
        version(&part),
        version(&log)
    )
}

/// A change of a form must add a directory of that form, and describe how an earlier server can
/// read what is written.
#[test]
fn what_is_written_now_is_of_the_form_of_the_last_golden_directory() {
    let last = golden().pop().unwrap();
    let place = temporary_directory("form").unwrap();
    let server = start(&place);
    text(&server, &["SET", "a", "1"]);
    assert_eq!(text(&server, &["SAVE"]), "OK");
    text(&server, &["SET", "b", "2"]);
    drop(server);
    let form = form(&place);
    assert_eq!(self::form(&last), form);
    assert!(last.to_str().unwrap().ends_with(&form), "{last:?} {form}");
    std::fs::remove_dir_all(&place).unwrap();
}

/// Upgrade and downgrade: this server writes to an earlier server's directory, and the earlier
/// server continues with it. `OLD_SERVER_BIN` names the earlier server. Without it, this server is
/// used, which writes the same form while the test above passes.
#[test]
fn an_older_server_goes_on_with_what_this_one_wrote() {
    let old = std::env::var_os("OLD_SERVER_BIN").map(PathBuf::from);
    let old = old.unwrap_or_else(testkit::process::iolite_program);
    let start_old = |directory: &Path| {
        let directory = directory.to_str().unwrap();
        let words = [
            "--dir",
            directory,
            "--appendonly",
            "yes",
            "--enable-debug-command",
            "yes",
        ];
        let builder = ServerBuilder::new("iolite", old.clone()).args(&words);
        builder.start().unwrap()
    };
    for golden in golden() {
        let place = temporary_directory("back").unwrap();
        copy(&golden, &place);
        let mut digest = std::fs::read_to_string(golden.join("DIGEST"))
            .unwrap()
            .trim()
            .to_owned();
        for (round, is_old) in [true, false, true, false].into_iter().enumerate() {
            let server = match is_old {
                true => start_old(&place),
                false => start(&place),
            };
            assert_eq!(
                text(&server, &["DEBUG", "DIGEST"]),
                digest,
                "{golden:?} {round}"
            );
            assert_eq!(text(&server, &["FCALL", "f", "0"]), "Integer(1)");
            let number = round.to_string();
            // Part of the data is in a checkpoint, and part in the log after it.
            text(&server, &["RPUSH", "rounds", &number]);
            text(&server, &["HSET", "of:rounds", &number, "x"]);
            assert_eq!(text(&server, &["SAVE"]), "OK");
            text(
                &server,
                &["SET", &format!("round:{number}"), "x", "EX", "100000"],
            );
            text(
                &server,
                &["HPEXPIRE", "of:rounds", "100000000", "FIELDS", "1", &number],
            );
            text(
                &server,
                &["DEL", &format!("round:{}", round.saturating_sub(1))],
            );
            digest = text(&server, &["DEBUG", "DIGEST"]);
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}
