//! The two views of durability agree.

use super::super::directives;
use super::super::rewrite::rewritten;
use super::super::value::Gathering;
use super::super::{DurabilityLevel, SavePoint, Settings};

/// Sets one directive, whether or not this version supports the value.
fn assign(settings: &mut Settings, name: &str, value: &str) {
    let (at, row, _) = directives::find(name.as_bytes()).unwrap();
    let words: Vec<Vec<u8>> = if row.kind.takes_words() {
        value.split(' ').map(|word| word.into()).collect()
    } else {
        vec![value.into()]
    };
    settings.assign(at, &words, Gathering::Anew).unwrap();
}

/// Returns `durability`, `appendonly`, `appendfsync` and `save`, as CONFIG GET shows them.
fn shown(settings: &Settings) -> String {
    let names = ["durability", "appendonly", "appendfsync", "save"];
    let values = names.map(|name| {
        let (at, row, _) = directives::find(name.as_bytes()).unwrap();
        String::from_utf8(row.kind.show(settings.value(at))).unwrap()
    });
    values.join("|")
}

/// Returns the views after several settings, one after the other.
fn after(pairs: &[(&str, &str)]) -> String {
    let mut settings = Settings::default();
    assign(&mut settings, "save", "");
    for (name, value) in pairs {
        assign(&mut settings, name, value);
    }
    shown(&settings)
}

#[test]
fn the_level_sets_what_redis_calls_it() {
    let points = "3600 1 300 100 60 10000";
    for (level, expected) in [
        ("none", "none|no|everysec|".to_owned()),
        ("checkpoint", format!("checkpoint|no|everysec|{points}")),
        ("os", "os|yes|no|".to_owned()),
        ("everysec", "everysec|yes|everysec|".to_owned()),
        ("always", "always|yes|always|".to_owned()),
    ] {
        assert_eq!(after(&[("durability", level)]), expected);
    }
}

#[test]
fn what_redis_calls_it_sets_the_level() {
    for (pairs, expected) in [
        (&[("appendonly", "yes")][..], "everysec|yes|everysec|"),
        (&[("appendfsync", "always")], "none|no|always|"),
        (
            &[("appendfsync", "always"), ("appendonly", "yes")],
            "always|yes|always|",
        ),
        (
            &[("appendonly", "yes"), ("appendfsync", "no")],
            "os|yes|no|",
        ),
        (&[("save", "900 1")], "checkpoint|no|everysec|900 1"),
        (
            &[("save", "900 1"), ("appendonly", "yes")],
            "everysec|yes|everysec|900 1",
        ),
        (
            &[
                ("save", "900 1"),
                ("appendonly", "yes"),
                ("appendonly", "no"),
            ],
            "checkpoint|no|everysec|900 1",
        ),
        (
            &[("durability", "always"), ("appendonly", "no")],
            "none|no|always|",
        ),
    ] {
        assert_eq!(after(pairs), expected, "{pairs:?}");
    }
}

#[test]
fn points_stand_beside_a_log_and_go_with_the_level_none() {
    let own = ("save", "900 1");
    assert_eq!(
        after(&[own, ("durability", "checkpoint")]),
        "checkpoint|no|everysec|900 1"
    );
    assert_eq!(
        after(&[own, ("durability", "always")]),
        "always|yes|always|900 1"
    );
    assert_eq!(after(&[own, ("durability", "none")]), "none|no|everysec|");
}

#[test]
fn the_view_of_the_server_has_all_of_it() {
    let mut settings = Settings::default();
    assign(&mut settings, "save", "900 1 60 5");
    assign(&mut settings, "durability", "os");
    assign(&mut settings, "checkpoint-buffer-limit", "1mb");
    assign(&mut settings, "dbfilename", "other.rdb");
    assert!(!settings.config().durability.also_saves_rdb);
    assign(&mut settings, "checkpoint-format", "RDB");
    let durability = settings.config().durability;
    assert_eq!(durability.level, DurabilityLevel::Os);
    let point = |seconds, changes| SavePoint { seconds, changes };
    assert_eq!(durability.save_points, [point(900, 1), point(60, 5)]);
    assert_eq!(durability.checkpoint_buffer_bytes_max, 1 << 20);
    assert!(durability.also_saves_rdb);
    assert_eq!(durability.rdb_file_name.to_str(), Some("other.rdb"));
    assert_eq!(
        durability.aof_directory_name.to_str(),
        Some("appendonlydir")
    );
    assert_eq!(durability.aof_file_name.to_str(), Some("appendonly.aof"));
    assert_eq!(durability.log_growth_percent, 100);
    assert_eq!(durability.log_growth_bytes_min, 64 << 20);
    assert_eq!(durability.log_segment_bytes, 64 << 20);
    assert!(durability.refuses_writes_after_failed_save && durability.accepts_torn_log);
}

#[test]
fn points_that_came_with_the_level_are_all_written_where_there_was_a_line() {
    let mut settings = Settings::default();
    assign(&mut settings, "save", "");
    assign(&mut settings, "durability", "checkpoint");
    let text = rewritten(
        b"save 900 1\ndurability checkpoint\n",
        &settings,
        &[],
        false,
    );
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["save 3600 1", "durability checkpoint"]);
    for line in ["save 300 100", "save 60 10000"] {
        assert!(lines.contains(&line), "{text}");
    }
    let text = rewritten(b"", &settings, &[], false);
    assert!(!String::from_utf8(text).unwrap().contains("save"));
}

#[test]
fn names_of_files_are_no_paths() {
    for (name, reason) in [
        (
            "appendfilename",
            "appendfilename can't be a path, just a filename",
        ),
        (
            "appenddirname",
            "appenddirname can't be a path, just a dirname",
        ),
        ("dbfilename", "dbfilename can't be a path, just a filename"),
    ] {
        let (at, ..) = directives::find(name.as_bytes()).unwrap();
        let mut settings = Settings::default();
        let refused = settings.assign(at, &[b"a/b".to_vec()], Gathering::Anew);
        assert_eq!(refused, Err(reason.to_owned()));
    }
}
