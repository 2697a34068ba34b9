//! Tests of dictionaries for short values in the tier: made in the background, kept while they are
//! needed, and named when missing.

use base::random::Prng;
use testkit::client::Client;
use testkit::process::Server;
use testkit::transcript::show;

use super::ledger::kill;
use super::limits::eventually;
use super::recovery::{Directory, files_of};
use super::tier::{ask, checked, figure, refusal, start};

/// With this much memory, 2 MiB of values are enough samples.
const MEMORY: &str = "144mb";

fn server(directory: &Directory, compression: &str) -> Server {
    start(&[
        "--dir",
        directory.0.to_str().unwrap(),
        "--maxmemory",
        MEMORY,
        "--save",
        "",
        "--tier-compression",
        compression,
    ])
}

/// Returns a value of some hundred bytes that has much in common with the others.
fn value(number: u64) -> String {
    let mut random = Prng::seeded(number);
    let names = ["river", "stone", "market", "garden", "window", "silver"];
    let mut name = || names[random.index(names.len())];
    let (first, second, third) = (name(), name(), name());
    format!(
        "{{\"id\":{number},\"name\":\"{first} {second}\",\"email\":\"{first}.{third}@example.com\",\"status\":\"active\",\
         \"created_at\":\"2026-01-{:02}T00:00:00Z\",\"session\":\"{:016x}\",\"items\":[{{\"sku\":\"{second}\",\"price_cents\":{}}}]}}",
        random.index(28) + 1,
        random.next_u64(),
        random.index(10_000),
    )
}

/// Sets values, and demotes them.
fn put_cold(client: &mut Client, numbers: std::ops::Range<u64>) {
    for from in numbers.clone().step_by(200) {
        let some = from..(from + 200).min(numbers.end);
        let requests = some.flat_map(|number| {
            let key = format!("key:{number}");
            [
                vec!["SET".to_owned(), key.clone(), value(number)],
                vec!["DEBUG".to_owned(), "DEMOTE".to_owned(), key],
            ]
        });
        let requests: Vec<_> = requests.collect();
        for replies in client.pipeline(&requests).unwrap().chunks(2) {
            assert_eq!(show(&replies[1]), ":1");
        }
    }
}

fn check(client: &mut Client, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let found = client.command(&["GET", &format!("key:{number}")]).unwrap();
        let found = show(&found).replace("\\\"", "\"");
        assert_eq!(found.trim_matches('"'), value(number), "{number}");
    }
}

/// Starts a server with a dictionary, and values from before and after it.
fn with_dictionary(directory: &Directory) -> (Server, Client) {
    let server = server(directory, "auto");
    let mut client = server.client().unwrap();
    put_cold(&mut client, 0..12_000);
    eventually("a dictionary is made", || {
        figure(&mut client, "tier_dictionaries") == 1
    });
    let before = figure(&mut client, "tier_writes_bytes");
    put_cold(&mut client, 12_000..14_000);
    let written = figure(&mut client, "tier_writes_bytes") - before;
    let raw: u64 = (12_000..14_000)
        .map(|number| value(number).len() as u64)
        .sum();
    assert!(written * 10 < raw * 7, "{written} of {raw}");
    let raw = figure(&mut client, "tier_dictionary_raw_bytes");
    assert!(figure(&mut client, "tier_dictionary_bytes") * 2 < raw);
    (server, client)
}

#[test]
fn short_values_take_less_by_a_dictionary_that_a_start_and_a_check_find_again() {
    let directory = Directory::new();
    let (first, mut client) = with_dictionary(&directory);
    check(&mut client, (0..14_000).step_by(97));
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    let told = ask(&mut client, &["TIER", "SCRUB"]);
    let digits = |byte: char| !byte.is_ascii_digit();
    let numbers: Vec<_> = told.split(digits).filter(|one| !one.is_empty()).collect();
    // If the bucket of a value changed during its write, the value was written again, and the first
    // copy still exists.
    let entries: u64 = numbers[0].parse().unwrap();
    assert!((14_000..14_500).contains(&entries), "{told}");
    assert_eq!(numbers[1..], ["0"], "{told}");
    kill(&first);
    drop(first);
    let told = checked(&directory.0);
    assert!(told.contains("14000 values in the tier"), "{told}");

    let again = server(&directory, "lz4");
    let mut client = again.client().unwrap();
    assert_eq!(figure(&mut client, "tier_dictionaries"), 1);
    check(&mut client, (0..14_000).step_by(97));
    // Values that are demoted now need no dictionary. The existing one stays while it is needed.
    let raw = figure(&mut client, "tier_dictionary_raw_bytes");
    put_cold(&mut client, 20_000..20_200);
    assert_eq!(figure(&mut client, "tier_dictionary_raw_bytes"), raw);
    ask(&mut client, &["CONFIG", "SET", "tier-compression", "auto"]);
    put_cold(&mut client, 20_200..20_400);
    assert!(figure(&mut client, "tier_dictionary_raw_bytes") > raw);
    check(&mut client, 20_000..20_400);
}

#[test]
fn a_start_without_a_dictionary_that_is_needed_is_refused_with_its_name() {
    let directory = Directory::new();
    let (server, mut client) = with_dictionary(&directory);
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    kill(&server);
    drop(server);
    let file = files_of(&directory.0.join("tier"), "dict").remove(0);
    let bytes = std::fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    damaged[1_000] ^= 1;
    let start = || refusal(&directory.0, &["--tier-path", ".", "--maxmemory", MEMORY]);
    std::fs::write(&file, &damaged).unwrap();
    let told = start();
    let name = file.file_stem().unwrap().to_str().unwrap();
    for what in ["14000 keys", "its sum is wrong", name] {
        assert!(told.contains(what), "{told}");
    }
    assert!(checked(&directory.0).contains("DAMAGED"));
    std::fs::remove_file(&file).unwrap();
    let told = start();
    assert!(
        told.contains("it is not there") && told.contains(name),
        "{told}"
    );
    std::fs::write(&file, &bytes).unwrap();
    let server = self::server(&directory, "auto");
    let mut client = server.client().unwrap();
    check(&mut client, (0..14_000).step_by(97));
}

#[test]
fn a_dictionary_that_nothing_needs_any_more_is_removed() {
    let directory = Directory::new();
    let (first, mut client) = with_dictionary(&directory);
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    kill(&first);
    drop(first);
    // The dictionary is from an earlier process, and all values that need it are overwritten or
    // deleted.
    let again = server(&directory, "lz4");
    let mut client = again.client().unwrap();
    assert_eq!(files_of(&directory.0.join("tier"), "dict").len(), 1);
    ask(&mut client, &["FLUSHALL"]);
    put_cold(&mut client, 0..10);
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    drop(client);
    drop(again);
    let last = server(&directory, "auto");
    let mut client = last.client().unwrap();
    assert_eq!(figure(&mut client, "tier_dictionaries"), 0);
    assert_eq!(files_of(&directory.0.join("tier"), "dict").len(), 0);
    check(&mut client, 0..10);
}

#[test]
fn values_that_have_nothing_in_common_are_left_as_they_are() {
    let directory = Directory::new();
    let server = server(&directory, "auto");
    let mut client = server.client().unwrap();
    let mut random = Prng::seeded(1);
    let memory = figure(&mut client, "tier_compression_memory");
    for _ in 0..5 {
        let requests = (0..2_000).flat_map(|number| {
            let mut noise = vec![0; 300];
            random.fill(&mut noise);
            let key = format!("noise:{number}").into_bytes();
            [
                vec![b"SET".to_vec(), key.clone(), noise],
                vec![b"DEBUG".to_vec(), b"DEMOTE".to_vec(), key],
            ]
        });
        let requests: Vec<_> = requests.collect();
        client.pipeline(&requests).unwrap();
    }
    eventually("training is over", || {
        figure(&mut client, "tier_compression_memory") == memory
    });
    assert_eq!(figure(&mut client, "tier_dictionaries"), 0);
}
