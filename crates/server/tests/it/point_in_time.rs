//! Tests of starts up to a point of the log: the data at that point, what is set aside, and the way
//! out of damage.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use durability::disk::SystemDisk;
use durability::log::Reader;
use protocol::Value;
use testkit::client::Client;
use testkit::process::Server;

use crate::recovery::{Directory, fill, flip, keys_count, kill, place_of, run, wait_until_kept};

/// Returns the end of each frame of the log, and the time at which it was written.
fn frames(directory: &Path) -> Vec<(u64, u64)> {
    let log = directory.join("iolite-data/log");
    let mut reader = Reader::open(Arc::new(SystemDisk), &log, first(&log)).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        frames.push((frame.sequence + frame.length, frame.unix_ms));
    }
    frames
}

/// Returns the sequence at which the oldest file of a log begins.
fn first(log: &Path) -> u64 {
    let names = fs::read_dir(log).unwrap().map(|it| it.unwrap().file_name());
    let names = names.filter_map(|name| name.to_str()?.strip_suffix(".log").map(str::to_owned));
    let sequences = names.map(|name| u64::from_str_radix(&name, 16).unwrap());
    sequences.min().unwrap()
}

fn server_at(directory: &Directory, point: &str) -> Server {
    let args = ["--durability", "everysec", "--recover-to", point];
    directory.builder(&args).start().unwrap()
}

fn refusal_at(directory: &Directory, point: &str) -> String {
    let args = ["--durability", "everysec", "--recover-to", point];
    match directory.builder(&args).start() {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it started"),
    }
}

/// Returns the sequence that a refusal offers as the way out.
fn offered(refusal: &str) -> String {
    assert!(refusal.contains("`iolite check`"), "{refusal}");
    let (_, rest) = refusal.split_once("--recover-to ").expect(refusal);
    rest.chars().take_while(char::is_ascii_digit).collect()
}

fn count(client: &mut Client) -> i64 {
    match keys_count(client) {
        Value::Integer(count) => count,
        other => panic!("{other:?}"),
    }
}

/// Returns a directory with ten keys in its log, written one after the other.
fn ten_keys() -> Directory {
    let directory = Directory::new();
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    for key in 0..10 {
        fill(&mut client, key..key + 1);
        std::thread::sleep(Duration::from_millis(2));
    }
    wait_until_kept(&mut client);
    kill(server);
    directory
}

#[test]
fn a_start_stops_at_a_sequence_and_what_is_behind_is_set_aside() {
    let directory = ten_keys();
    let frames = frames(&directory.0);
    let (end, _) = frames[4];
    // The point may also be in the middle of the next frame.
    let server = server_at(&directory, &(end + 8).to_string());
    let mut client = server.client().unwrap();
    assert_eq!(count(&mut client), 5);
    fill(&mut client, 100..103);
    kill(server);

    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(count(&mut client), 8, "what is behind does not come back");
    wait_until_kept(&mut client);
    kill(server);

    // The option was left in place for the next start.
    let refusal = refusal_at(&directory, &(end + 8).to_string());
    assert!(refusal.contains("is not kept"), "{refusal}");
    let server = directory.server("everysec");
    assert_eq!(count(&mut server.client().unwrap()), 8);

    let aside = Directory(directory.data().join("before-recovery-1"));
    let old = aside.server("everysec");
    assert_eq!(count(&mut old.client().unwrap()), 10, "as it was");
}

#[test]
fn a_start_stops_at_a_time() {
    let directory = ten_keys();
    let (_, unix_ms) = frames(&directory.0)[6];
    let later = format!("@{}.{:03}", unix_ms / 1_000, unix_ms % 1_000);
    let server = server_at(&directory, &later);
    assert_eq!(count(&mut server.client().unwrap()), 7);
    drop(server);
    // The server may also run without a log from then on.
    let directory = ten_keys();
    let refusal = refusal_at(&directory, &later);
    assert!(refusal.contains("is not kept"), "{refusal}");
    let (end, _) = frames(&directory.0)[2];
    let builder = directory.builder(&["--save", "", "--recover-to", &end.to_string()]);
    let server = builder.start().unwrap();
    assert_eq!(count(&mut server.client().unwrap()), 3);
    drop(server);
    let server = directory.server("checkpoint");
    assert_eq!(count(&mut server.client().unwrap()), 3);
}

#[test]
fn a_point_that_is_not_kept_is_refused() {
    let directory = ten_keys();
    let (end, _) = *frames(&directory.0).last().unwrap();
    let refusal = refusal_at(&directory, &(end + 8).to_string());
    let expected = format!("the log ends at {end}");
    assert!(refusal.contains(&expected), "{refusal}");
    let refusal = refusal_at(&directory, "1970-01-02T00:00:00Z");
    assert!(refusal.contains("is not kept"), "{refusal}");
    let empty = Directory::new();
    let refusal = refusal_at(&empty, "5");
    assert!(refusal.contains("there is no data"), "{refusal}");
    let server = directory.server("everysec");
    assert_eq!(count(&mut server.client().unwrap()), 10, "nothing was done");
    assert!(!directory.data().join("before-recovery-1").exists());
}

/// Returns a directory with some hundred keys in many files of the log.
fn many_files() -> Directory {
    let directory = Directory::new();
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    for round in 0..5 {
        fill(&mut client, round * 100..round * 100 + 100);
        wait_until_kept(&mut client);
    }
    kill(server);
    assert!(directory.segments().len() > 4);
    directory
}

/// Asserts that a start is refused, then starts at the offered point. What follows it is set aside.
fn is_refused_and_has_a_way_out(directory: &Directory, what: &str) -> i64 {
    let refusal = directory.refusal("everysec");
    assert!(refusal.contains(what), "{refusal}");
    let server = server_at(directory, &offered(&refusal));
    let mut client = server.client().unwrap();
    let there = count(&mut client);
    assert!(there < 500, "{there}");
    run(&mut client, "SET more 1");
    wait_until_kept(&mut client);
    kill(server);
    let server = directory.server("everysec");
    assert_eq!(count(&mut server.client().unwrap()), there + 1);
    assert!(directory.data().join("before-recovery-1").exists());
    there
}

#[test]
fn damage_has_a_way_out() {
    for in_the_head in [false, true] {
        let directory = many_files();
        let (middle, place) = place_of("key:250", &directory.segments());
        flip(&middle, if in_the_head { 0 } else { place }).unwrap();
        let there = is_refused_and_has_a_way_out(&directory, "is damaged at offset");
        assert!(there > 100, "{there}");
    }
}

/// Returns a directory with twenty keys, the first ten of them in a checkpoint, and all in one file
/// of the log.
fn half_in_a_checkpoint() -> Directory {
    let directory = Directory::new();
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    fill(&mut client, 0..10);
    run(&mut client, "SAVE");
    fill(&mut client, 10..20);
    wait_until_kept(&mut client);
    kill(server);
    assert_eq!(directory.segments().len(), 1);
    directory
}

#[test]
fn damage_that_a_checkpoint_covers_is_none() {
    let directory = half_in_a_checkpoint();
    // Byte 60 is in the head of the first block.
    flip(&directory.segments()[0], 60).unwrap();
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(count(&mut client), 20);
    fill(&mut client, 20..30);
    wait_until_kept(&mut client);
    kill(server);
    let server = directory.server("everysec");
    assert_eq!(count(&mut server.client().unwrap()), 30);
}

#[test]
fn the_checkpoint_alone_is_a_way_out() {
    for is_gone in [false, true] {
        let directory = half_in_a_checkpoint();
        let file = &directory.segments()[0];
        // Without the head of the file, nothing in the file can be read.
        let damage = if is_gone {
            fs::remove_file(file)
        } else {
            flip(file, 20)
        };
        damage.unwrap();
        let refusal = directory.refusal("everysec");
        let server = server_at(&directory, &offered(&refusal));
        let mut client = server.client().unwrap();
        assert_eq!(count(&mut client), 10);
        fill(&mut client, 20..23);
        wait_until_kept(&mut client);
        kill(server);
        let server = directory.server("everysec");
        assert_eq!(count(&mut server.client().unwrap()), 13);
    }
}

#[test]
fn a_log_whose_last_files_were_removed_is_not_taken_for_a_whole_one() {
    let directory = many_files();
    let segments = directory.segments();
    for segment in &segments[segments.len() - 2..] {
        fs::remove_file(segment).unwrap();
    }
    let there = is_refused_and_has_a_way_out(&directory, "the file behind it is missing");
    assert!(there > 100, "{there}");

    let directory = many_files();
    fs::remove_dir_all(directory.data().join("log")).unwrap();
    let there = is_refused_and_has_a_way_out(&directory, "the log is missing");
    assert_eq!(there, 0, "as the first checkpoint");
}
