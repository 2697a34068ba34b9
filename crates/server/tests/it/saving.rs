//! Tests of the built server's checkpoints: on request, automatic, and at shutdown; and of their
//! recovery.

use std::fs;
use std::process::Command;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory};

/// A directory that is removed after its test.
struct Directory(TemporaryDirectory);

impl Directory {
    fn new() -> Self {
        Self(TemporaryDirectory::new("saving").unwrap())
    }

    /// Starts a server that keeps its data here.
    fn server(&self, save: &str) -> Server {
        self.builder(save).start().unwrap()
    }

    fn builder(&self, save: &str) -> ServerBuilder {
        let dir = self.0.to_str().unwrap();
        ServerBuilder::iolite().args(&["--dir", dir, "--save", save])
    }
}

fn run(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    testkit::transcript::show(&client.command(&words).unwrap())
}

/// Returns a field of INFO persistence.
fn field(client: &mut Client, name: &str) -> String {
    let Value::Bulk(info) = client.command(&["INFO", "persistence"]).unwrap() else {
        panic!("INFO is a string");
    };
    let info = String::from_utf8(info).unwrap();
    let mut lines = info.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap().to_owned()
}

/// Waits until a field has a value.
fn wait_for(client: &mut Client, name: &str, value: &str) {
    let patience = Patience::of(Duration::from_secs(60));
    while field(client, name) != value {
        assert!(
            patience.lasts(),
            "{name} is {}, not {value}",
            field(client, name)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes the server end, and waits for that.
fn shut_down(server: Server, words: &[&str]) {
    let mut client = server.client().unwrap();
    assert!(client.command(words).is_err(), "there is no reply");
    wait_for_end(&server);
}

fn wait_for_end(server: &Server) {
    let socket = server.socket();
    let patience = Patience::of(Duration::from_secs(60));
    while socket.exists() {
        assert!(patience.lasts(), "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Otherwise the next start would recover the previously saved data.
#[test]
fn what_flushall_deletes_is_gone_from_the_disk_as_well() {
    let directory = Directory::new();
    let server = directory.server("3600 1000000");
    let mut client = server.client().unwrap();
    run(&mut client, "SET a 1");
    assert_eq!(run(&mut client, "SAVE"), "+OK");
    assert_eq!(run(&mut client, "FLUSHALL"), "+OK");
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "0");
    // No client waits for it.
    wait_for(&mut client, "rdb_saves", "2");
    // The server is killed.
    drop((client, server));
    let server = directory.server("");
    let mut client = server.client().unwrap();
    assert_eq!(run(&mut client, "DBSIZE"), ":0");
}

/// Redis saves before it answers FLUSHALL. Here that save runs in the background, and is slow
/// enough to be observed.
#[test]
fn saves_right_after_flushall_are_not_refused_for_it() {
    let begun = "+Background saving started";
    let asked = [
        ("SAVE", "+OK"),
        ("BGSAVE", begun),
        (
            "BGREWRITEAOF",
            "+Background append only file rewriting started",
        ),
    ];
    for (ask, answer) in asked {
        let directory = Directory::new();
        let server = directory.server("3600 1000000");
        let mut client = server.client().unwrap();
        // A tenth of a second for each key.
        run(&mut client, "CONFIG SET rdb-key-save-delay 100000");
        assert_eq!(run(&mut client, "MULTI"), "+OK");
        run(&mut client, "FLUSHALL");
        run(&mut client, "SET left 1");
        run(&mut client, "EXEC");
        run(&mut client, "SET after 1");
        assert_eq!(run(&mut client, ask), answer, "{ask}");
        if answer == begun {
            // If FLUSHALL's save has not begun yet, both are one save.
            wait_for(&mut client, "rdb_bgsave_in_progress", "0");
        }
        if ask != "BGREWRITEAOF" {
            assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "0");
        }
    }
}

#[test]
fn what_was_saved_comes_back() {
    let directory = Directory::new();
    let server = directory.server("");
    let mut client = server.client().unwrap();
    run(&mut client, "SET a 1");
    run(&mut client, "RPUSH list x y z");
    run(&mut client, "SELECT 3");
    run(&mut client, "SET b 2 EX 1000");
    assert_eq!(run(&mut client, "SAVE"), "+OK");
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "0");
    run(&mut client, "SET lost 1");
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "1");
    // The server is killed without notice.
    drop((client, server));
    let server = directory.server("");
    let mut client = server.client().unwrap();
    wait_for(&mut client, "loading", "0");
    assert_eq!(field(&mut client, "rdb_last_load_keys_loaded"), "3");
    assert_eq!(run(&mut client, "GET a"), "\"1\"");
    assert_eq!(run(&mut client, "GET lost"), "(nil)");
    assert_eq!(run(&mut client, "LRANGE list 0 -1"), r#"["x", "y", "z"]"#);
    run(&mut client, "SELECT 3");
    assert_eq!(run(&mut client, "GET b"), "\"2\"");
    assert_ne!(run(&mut client, "TTL b"), ":-1");
}

#[test]
fn the_background_saves_too() {
    let directory = Directory::new();
    let server = directory.server("");
    let mut client = server.client().unwrap();
    run(&mut client, "SET a 1");
    assert_eq!(run(&mut client, "BGSAVE"), "+Background saving started");
    wait_for(&mut client, "rdb_saves", "1");
    run(&mut client, "MULTI");
    run(&mut client, "SET a 2");
    run(&mut client, "BGSAVE");
    run(&mut client, "SET a 3");
    assert_eq!(
        run(&mut client, "EXEC"),
        "[+OK, +Background saving scheduled, +OK]"
    );
    wait_for(&mut client, "rdb_saves", "2");
    let rewriting = "+Background append only file rewriting started";
    assert_eq!(run(&mut client, "BGREWRITEAOF"), rewriting);
    wait_for(&mut client, "aof_rewrites", "1");
    drop((client, server));
    let server = directory.server("");
    let mut client = server.client().unwrap();
    wait_for(&mut client, "loading", "0");
    assert_eq!(run(&mut client, "GET a"), "\"3\"");
}

#[test]
fn a_save_point_saves_by_itself() {
    let directory = Directory::new();
    let server = directory.server("1 2");
    let mut client = server.client().unwrap();
    run(&mut client, "MSET a 1 b 2 c 3");
    wait_for(&mut client, "rdb_saves", "1");
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "0");
    assert!(server.log().contains("2 changes in 1 seconds. Saving..."));
}

#[test]
fn a_server_with_save_points_saves_on_its_way_down() {
    let directory = Directory::new();
    for (round, (words, kept)) in [
        (&["SHUTDOWN"][..], "1"),
        (&["SHUTDOWN", "NOSAVE"], "1"),
        (&["SHUTDOWN", "SAVE"], "3"),
    ]
    .into_iter()
    .enumerate()
    {
        let server = directory.server("3600 1");
        let mut client = server.client().unwrap();
        wait_for(&mut client, "loading", "0");
        run(&mut client, &format!("SET round {}", round + 1));
        shut_down(server, words);
        let server = directory.server("");
        let mut client = server.client().unwrap();
        wait_for(&mut client, "loading", "0");
        assert_eq!(run(&mut client, "GET round"), format!("\"{kept}\""));
    }
}

#[test]
fn a_signal_is_a_shutdown_with_the_words_of_its_directive() {
    let directory = Directory::new();
    for (round, (words, kept)) in [("default", "0"), ("nosave", "0"), ("save now", "2")]
        .into_iter()
        .enumerate()
    {
        let words = ["--shutdown-on-sigterm", words];
        let server = directory.builder("3600 1").args(&words).start().unwrap();
        let mut client = server.client().unwrap();
        run(&mut client, &format!("SET round {round}"));
        let pid = server.pid().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.unwrap().success());
        wait_for_end(&server);
        drop(server);
        let server = directory.server("");
        let mut client = server.client().unwrap();
        assert_eq!(run(&mut client, "GET round"), format!("\"{kept}\""));
    }
}

#[test]
fn when_nothing_can_be_saved_writes_are_refused_and_the_server_stays() {
    let directory = Directory::new();
    let in_the_way = directory.0.join("iolite-data");
    let server = directory.server("3600 1");
    fs::write(&in_the_way, "").unwrap();
    let mut client = server.client().unwrap();
    run(&mut client, "SET a 1");
    assert_eq!(run(&mut client, "SAVE"), "-ERR");
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "err");
    for line in ["SET a 2", "PING"] {
        let refused = run(&mut client, line);
        assert!(
            refused.starts_with("-MISCONF Redis is configured"),
            "{refused}"
        );
    }
    assert_eq!(run(&mut client, "GET a"), "\"1\"");
    let refused = "-ERR Errors trying to SHUTDOWN. Check logs.";
    assert_eq!(run(&mut client, "SHUTDOWN"), refused);
    run(&mut client, "CONFIG SET stop-writes-on-bgsave-error no");
    assert_eq!(run(&mut client, "SET a 3"), "+OK");
    run(&mut client, "CONFIG SET stop-writes-on-bgsave-error yes");
    assert!(run(&mut client, "SET a 4").starts_with("-MISCONF"));
    fs::remove_file(&in_the_way).unwrap();
    assert_eq!(run(&mut client, "SAVE"), "+OK");
    assert_eq!(run(&mut client, "SET a 5"), "+OK");
}

#[test]
fn nobody_saves_over_the_data_of_another() {
    let directory = Directory::new();
    let (first, second) = (directory.server(""), directory.server(""));
    let (mut one, mut other) = (first.client().unwrap(), second.client().unwrap());
    run(&mut one, "SET a 1");
    run(&mut other, "SET a 2");
    assert_eq!(run(&mut one, "SAVE"), "+OK");
    assert_eq!(run(&mut other, "SAVE"), "-ERR");
    assert!(second.log().contains("Another server uses the data in"));
    drop((one, first));
    assert_eq!(run(&mut other, "SAVE"), "-ERR");
    assert!(
        second
            .log()
            .contains("data that this server has not loaded")
    );
    let third = directory.server("");
    let mut client = third.client().unwrap();
    wait_for(&mut client, "loading", "0");
    assert_eq!(run(&mut client, "GET a"), "\"1\"");
    let refused = directory.builder("").start().unwrap_err().to_string();
    assert!(
        refused.contains("Another server uses the data in"),
        "{refused}"
    );
}

#[test]
fn where_data_is_kept_stays_while_the_server_runs() {
    let (directory, other) = (Directory::new(), Directory::new());
    let protected = &["--enable-protected-configs", "yes"];
    let server = directory.builder("").args(protected).start().unwrap();
    let mut client = server.client().unwrap();
    let line = format!("CONFIG SET dir {}", other.0.display());
    assert_eq!(run(&mut client, &line), "+OK");
    assert_eq!(run(&mut client, "SAVE"), "+OK", "{}", server.log());
    assert!(other.0.join("iolite-data/MANIFEST").exists());
    let line = format!("CONFIG SET dir {}", directory.0.display());
    let refused = run(&mut client, &line);
    assert!(refused.ends_with("Data is kept in the present one while the server runs."));
}

#[test]
fn everything_is_forgotten_and_loaded_again() {
    let directory = Directory::new();
    let debugging = &["--enable-debug-command", "yes"];
    let server = directory.builder("").args(debugging).start().unwrap();
    let mut client = server.client().unwrap();
    run(&mut client, "SET a 1");
    run(&mut client, "HSET hash f v");
    assert_eq!(run(&mut client, "DEBUG RELOAD"), "+OK");
    assert_eq!(run(&mut client, "GET a"), "\"1\"");
    assert_eq!(run(&mut client, "HGET hash f"), "\"v\"");
    run(&mut client, "SET a 2");
    assert_eq!(run(&mut client, "DEBUG RELOAD NOSAVE"), "+OK");
    assert_eq!(run(&mut client, "GET a"), "\"1\"");
    assert_eq!(run(&mut client, "DBSIZE"), ":2");
    run(&mut client, "SET a 3");
    assert_eq!(run(&mut client, "SAVE"), "+OK");
}

/// As in Redis, NOFLUSH keeps the current data. A key that exists twice is then an error, unless
/// the data is to be merged.
#[test]
fn reloading_merges_what_is_there_if_asked_to() {
    let directory = Directory::new();
    let debugging = &["--enable-debug-command", "yes"];
    let server = directory.builder("").args(debugging).start().unwrap();
    let mut client = server.client().unwrap();
    let load = |client: &mut Client, name: &str, value: &str| {
        let code = format!(
            "#!lua name={name}\nredis.register_function('{name}', function() return {value} end)"
        );
        client
            .command(&["FUNCTION", "LOAD", "REPLACE", &code])
            .unwrap()
    };
    for line in [
        "SET a saved",
        "HSET b f saved",
        "SET c 17",
        "SELECT 3",
        "SET d saved",
    ] {
        run(&mut client, line);
    }
    load(&mut client, "first", "1");
    assert_eq!(run(&mut client, "SAVE"), "+OK");
    run(&mut client, "SET d changed");
    run(&mut client, "SELECT 0");
    for line in [
        "SET a changed",
        "DEL b",
        "SADD b changed",
        "DEL c",
        "SET later there",
    ] {
        run(&mut client, line);
    }
    load(&mut client, "second", "2");
    let refused = run(&mut client, "DEBUG RELOAD NOSAVE NOFLUSH");
    assert!(
        refused.starts_with("-ERR Error trying to load the RDB dump"),
        "{refused}"
    );
    assert_eq!(run(&mut client, "GET a"), "\"changed\"");
    assert_eq!(run(&mut client, "DEBUG RELOAD NOSAVE NOFLUSH MERGE"), "+OK");
    for (line, reply) in [
        ("GET a", "\"saved\""),
        ("HGET b f", "\"saved\""),
        ("GET c", "\"17\""),
        ("GET later", "\"there\""),
        ("FCALL first 0", ":1"),
        ("FCALL second 0", ":2"),
        ("DBSIZE", ":4"),
    ] {
        assert_eq!(run(&mut client, line), reply, "{line}");
    }
    assert_eq!(run(&mut client, "DEBUG RELOAD NOSAVE"), "+OK");
    assert_eq!(run(&mut client, "DBSIZE"), ":3");
    assert!(run(&mut client, "FCALL second 0").starts_with("-ERR Function not found"));
    assert_eq!(run(&mut client, "DEBUG RELOAD NOFLUSH MERGE"), "+OK");
    assert_eq!(run(&mut client, "DBSIZE"), ":3");
}

/// A save takes as long as its keys do together, and ends at once if it is no longer wanted.
#[test]
fn keys_are_saved_as_slowly_as_a_test_wants() {
    let directory = Directory::new();
    let server = directory.server("");
    let mut client = server.client().unwrap();
    for number in 0..10 {
        run(&mut client, &format!("SET {number} v"));
    }
    assert_eq!(
        run(&mut client, "CONFIG SET rdb-key-save-delay 20000"),
        "+OK"
    );
    let started = SystemClock::new();
    let before_ns = started.monotonic_ns();
    assert_eq!(run(&mut client, "SAVE"), "+OK");
    assert!(started.monotonic_ns() - before_ns >= 10 * 20_000_000);
    assert_eq!(
        run(&mut client, "CONFIG SET rdb-key-save-delay 200000000"),
        "+OK"
    );
    assert_eq!(run(&mut client, "BGSAVE"), "+Background saving started");
    assert_eq!(field(&mut client, "rdb_bgsave_in_progress"), "1");
    assert!(run(&mut client, "BGSAVE").starts_with("-ERR Background save already in progress"));
    assert_eq!(
        run(&mut client, "CONFIG SET rdb-key-save-delay -1000"),
        "+OK"
    );
    shut_down(server, &["SHUTDOWN", "SAVE"]);
}
