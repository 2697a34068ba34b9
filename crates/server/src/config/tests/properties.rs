//! Properties that hold for every file.

use proptest::prelude::*;

use super::super::directives;
use super::super::rewrite::rewritten;
use super::super::{Loader, Settings};

fn load_bytes(text: &[u8]) -> Option<Settings> {
    let mut loader = Loader::new();
    loader.read_text(text).ok()?;
    Some(loader.finish().ok()?.settings)
}

/// A word that a file may contain: plain, quoted, broken.
fn word() -> impl Strategy<Value = String> {
    let values = prop::sample::select(vec![
        "",
        "0",
        "1",
        "5%",
        "64kb",
        "yes",
        "no",
        "local",
        "normal 1mb 0 3",
        "* -::1",
        "debug",
        "allkeys-lru",
        "'it\\'s'",
        "\"a \\x00\\\"\"",
        "\"\"",
        "\"open",
        "nosave now",
        "-1",
    ]);
    prop_oneof![4 => values.prop_map(str::to_owned), 1 => "[ -~\\t]{0,12}"]
}

fn line() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = directives::all()
        .iter()
        .flat_map(|row| row.names())
        .collect();
    let directive =
        (prop::sample::select(names), word()).prop_map(|(name, word)| format!("{name} {word}"));
    prop_oneof![8 => directive, 1 => "#[ -~]{0,20}", 1 => Just(String::new()), 1 => "[ -~]{0,20}"]
}

#[test]
fn words_that_need_quotes_are_rewritten_in_quotes() {
    for line in [r#"http-bind "" 0"#, r#"http-bind "a b" 0"#] {
        let settings = load_bytes(line.as_bytes()).unwrap();
        let once = rewritten(line.as_bytes(), &settings, &[], false);
        assert_eq!(load_bytes(&once), Some(settings), "{line}");
    }
}

proptest! {
    #[test]
    fn no_text_is_more_than_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
        load_bytes(&text);
    }

    #[test]
    fn a_rewritten_file_says_the_same_and_rewrites_to_itself(
        lines in prop::collection::vec(line(), 0..12)
    ) {
        let lines: Vec<String> = lines
            .into_iter()
            .filter(|line| load_bytes(line.as_bytes()).is_some())
            .collect();
        let text = lines.join("\n");
        if let Some(settings) = load_bytes(text.as_bytes()) {
            let once = rewritten(text.as_bytes(), &settings, &[], false);
            prop_assert_eq!(load_bytes(&once), Some(settings.clone()));
            prop_assert_eq!(rewritten(&once, &settings, &[], false), once);
        }
    }
}
