//! Data directories of every form that was handed out are read, and what is written then is read again.

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
        // As it was, with a checkpoint of now, and by the log of now behind it.
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
