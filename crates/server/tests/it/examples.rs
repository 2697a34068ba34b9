//! Tests of the pages of `docs/examples`: servers give the replies that the pages show.
//!
//! A page contains scripts (fences of `lua NAME`) and requests with their replies (fences of
//! `redis`, in the notation of transcripts). Requests may refer to its scripts as `$NAME`.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::target::Launcher;
use testkit::transcript::{Transcript, run};

/// Returns the pages, ordered by name.
fn pages() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let mut pages: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("README.md"))
        .collect();
    pages.sort();
    pages
}

/// Returns the fences of a page: the text after the backticks, and the content.
fn fences(page: &str) -> Vec<(&str, String)> {
    let mut fences = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            fences.push((info, inside.join("\n")));
        }
    }
    fences
}

/// Returns a script as a word of a request.
fn quoted(script: &str) -> String {
    let escaped = script
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}

/// Returns the requests and replies of a page, in the order in which they appear.
fn transcript(path: &Path) -> Transcript {
    let page = fs::read_to_string(path).unwrap();
    let fences = fences(&page);
    let scripts = fences.iter().filter_map(|(info, script)| {
        let name = info.strip_prefix("lua ")?;
        Some((format!("${name} "), format!("{} ", quoted(script))))
    });
    let mut text: String = fences
        .iter()
        .filter(|(info, _)| *info == "redis")
        .map(|(_, requests)| format!("{requests}\n"))
        .collect();
    for (name, script) in scripts {
        assert!(text.contains(&name), "{}: {name}is not run", path.display());
        text = text.replace(&name, &script);
    }
    assert!(!text.is_empty(), "{}: shows nothing", path.display());
    let name = path.file_name().unwrap().to_string_lossy();
    Transcript::parse(&name, &text).unwrap_or_else(|error| panic!("{error}"))
}

fn hold_on(launcher: &Launcher) {
    let failures: Vec<String> = pages()
        .iter()
        .flat_map(|path| run(&transcript(path), launcher))
        .map(|failure| failure.to_string())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn examples_hold_on_redis() {
    hold_on(&Launcher::oracle());
}

#[test]
fn examples_hold_on_the_built_server() {
    hold_on(&Launcher::iolite());
}
