//! Tests of MULTI and EXEC over sockets: memory, other clients, and limits of the queue.

use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

fn ask(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    show(&client.command(&words).unwrap())
}

fn start(args: &[&str]) -> Server {
    ServerBuilder::iolite().args(args).start().unwrap()
}

#[test]
fn memory_is_asked_for_when_queueing_and_once_by_exec() {
    const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    for server in [start(&[]), ServerBuilder::oracle().start().unwrap()] {
        let (mut client, mut other) = (server.client().unwrap(), server.client().unwrap());
        ask(&mut other, "CONFIG SET maxmemory 1");
        ask(&mut client, "MULTI");
        assert_eq!(ask(&mut client, "GET none"), format!("-{FULL}"));
        let aborted = "-EXECABORT Transaction discarded because of previous errors.";
        assert_eq!(ask(&mut client, "EXEC"), aborted);
        ask(&mut client, "MULTI");
        assert_eq!(ask(&mut client, "DISCARD"), "+OK");
        ask(&mut other, "CONFIG SET maxmemory 0");
        for line in ["MULTI", "SET a 1", "CONFIG SET maxmemory 1", "SET a 2"] {
            ask(&mut client, line);
        }
        assert_eq!(ask(&mut client, "EXEC"), "[+OK, +OK, +OK]");
        ask(&mut other, "CONFIG SET maxmemory 0");
        for line in ["MULTI", "SET a 3"] {
            ask(&mut client, line);
        }
        ask(&mut other, "CONFIG SET maxmemory 1");
        let aborted = format!("-EXECABORT Transaction discarded because of: {FULL}");
        assert_eq!(ask(&mut client, "EXEC"), aborted);
        assert_eq!(ask(&mut client, "GET a"), "\"2\"");
    }
}

#[test]
fn a_pause_of_writes_holds_exec_back() {
    let server = start(&[]);
    let (mut client, mut other) = (server.client().unwrap(), server.client().unwrap());
    ask(&mut client, "MULTI");
    ask(&mut client, "GET a");
    ask(&mut other, "CLIENT PAUSE 100000 WRITE");
    assert_eq!(ask(&mut client, "EXEC"), "[(nil)]");
    ask(&mut other, "CLIENT UNPAUSE");
    ask(&mut client, "MULTI");
    ask(&mut client, "SET a 1");
    ask(&mut other, "CLIENT PAUSE 100000 WRITE");
    client.send(&["EXEC"]).unwrap();
    super::limits::eventually("EXEC waits", || {
        ask(&mut other, "INFO clients").contains("blocked_clients:1\\r")
    });
    assert_eq!(ask(&mut other, "GET a"), "(nil)");
    ask(&mut other, "CLIENT UNPAUSE");
    assert_eq!(show(&client.receive().unwrap().unwrap()), "[+OK]");
}

#[test]
fn a_client_shows_what_it_has_queued() {
    let server = start(&[]);
    let (mut client, mut other) = (server.client().unwrap(), server.client().unwrap());
    let id = ask(&mut client, "CLIENT ID").replace(':', "");
    let field = |other: &mut Client, name: &str| {
        let line = ask(other, &format!("CLIENT LIST ID {id}"));
        let fields = line.split(' ').find_map(|field| field.strip_prefix(name));
        fields.unwrap_or_default().to_owned()
    };
    assert_eq!(field(&mut other, "multi="), "-1");
    ask(&mut client, "MULTI");
    assert_eq!(field(&mut other, "multi="), "0");
    ask(&mut client, &format!("SET a {}", "x".repeat(10_000)));
    assert_eq!(field(&mut other, "multi="), "1");
    assert_eq!(field(&mut other, "flags="), "xU");
    let queued: usize = field(&mut other, "multi-mem=").parse().unwrap();
    let held: usize = field(&mut other, "tot-mem=").parse().unwrap();
    assert!((10_000..12_000).contains(&queued) && held >= queued);
    ask(&mut client, "DISCARD");
    assert_eq!(field(&mut other, "multi="), "-1");
    assert_eq!(field(&mut other, "multi-mem="), "0");
}

#[test]
fn a_queue_counts_as_input() {
    let server = start(&["--client-query-buffer-limit", "1mb"]);
    let mut client = server.client().unwrap();
    ask(&mut client, "MULTI");
    let value = "x".repeat(100_000);
    for _ in 0..10 {
        assert_eq!(
            show(&client.command(&["SET", "a", &value]).unwrap()),
            "+QUEUED"
        );
    }
    let rest = client.command(&["SET", "a", &value]);
    assert!(rest.is_err(), "closed");
    let mut other = server.client().unwrap();
    assert_eq!(ask(&mut other, "GET a"), "(nil)");
    assert!(
        ask(&mut other, "INFO stats").contains("client_query_buffer_limit_disconnections:1\\r")
    );
}

/// Four clients move amounts between accounts, in transactions some of which conflict. A fifth
/// client reads all accounts at once.
#[test]
fn no_half_of_a_transaction_is_seen() {
    const ACCOUNTS: usize = 8;
    const SUM: i64 = 8 * 1000;
    let server = start(&["--threads", "4"]);
    let mut first = server.client().unwrap();
    for account in 0..ACCOUNTS {
        ask(&mut first, &format!("SET account{account} 1000"));
    }
    std::thread::scope(|scope| {
        for mover in 0..4 {
            let mut client = server.client().unwrap();
            scope.spawn(move || {
                for round in 0..300 {
                    let from = (round * 7 + mover * 3) % ACCOUNTS;
                    let to = (from + 1 + round % (ACCOUNTS - 1)) % ACCOUNTS;
                    let lines = [
                        "MULTI".to_owned(),
                        format!("DECRBY account{from} 5"),
                        format!("INCRBY account{to} 5"),
                        "EXEC".to_owned(),
                    ];
                    for line in &lines {
                        ask(&mut client, line);
                    }
                }
            });
        }
        for _ in 0..300 {
            ask(&mut first, "MULTI");
            for account in 0..ACCOUNTS {
                ask(&mut first, &format!("GET account{account}"));
            }
            let balances = ask(&mut first, "EXEC");
            let numbers = balances
                .split('"')
                .filter_map(|part| part.parse::<i64>().ok());
            assert_eq!(numbers.sum::<i64>(), SUM, "{balances}");
        }
    });
}

#[test]
fn what_is_watched_is_shown_and_forgotten() {
    let server = start(&[]);
    let (mut client, mut other) = (server.client().unwrap(), server.client().unwrap());
    let watching = |other: &mut Client| {
        let info = ask(other, "INFO clients");
        let field = |name: &str| {
            let line = info
                .split("\\r\\n")
                .find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().parse::<u32>().unwrap()
        };
        (field("watching_clients:"), field("total_watched_keys:"))
    };
    assert_eq!(watching(&mut other), (0, 0));
    ask(&mut client, "WATCH a b a");
    assert_eq!(watching(&mut other), (1, 2));
    ask(&mut other, "WATCH c");
    assert_eq!(watching(&mut other), (2, 3));
    assert!(ask(&mut other, "CLIENT INFO").contains(" watch=1 "));
    ask(&mut client, "SET c 1");
    assert!(ask(&mut other, "CLIENT INFO").contains(" flags=dU "));
    ask(&mut other, "UNWATCH");
    assert!(ask(&mut other, "CLIENT INFO").contains(" flags=U "));
    assert_eq!(watching(&mut other), (1, 2));
    drop(client);
    super::limits::eventually("who is gone watches nothing", || {
        watching(&mut other) == (0, 0)
    });
    ask(&mut other, "SET a 1");
}

#[test]
fn a_key_that_is_evicted_is_changed() {
    let server = start(&["--maxmemory-policy", "allkeys-random"]);
    let (mut client, mut other) = (server.client().unwrap(), server.client().unwrap());
    ask(&mut client, "SET watched 1");
    ask(&mut client, "WATCH watched");
    ask(&mut other, "CONFIG SET maxmemory 1");
    super::limits::eventually("the key is gone", || {
        ask(&mut other, "EXISTS watched") == ":0"
    });
    ask(&mut other, "CONFIG SET maxmemory 0");
    ask(&mut client, "MULTI");
    ask(&mut client, "PING");
    assert_eq!(ask(&mut client, "EXEC"), "(nil-array)");
}

/// Two clients each watch what the other writes: at most one of their transactions runs.
#[test]
fn transactions_that_watch_each_other_do_not_both_run() {
    let server = start(&["--threads", "4"]);
    for round in 0..200 {
        let ran: usize = std::thread::scope(|scope| {
            let barrier = std::sync::Arc::new(std::sync::Barrier::new(2));
            let both = [("left", "right"), ("right", "left")].map(|(watched, written)| {
                let mut client = server.client().unwrap();
                let barrier = std::sync::Arc::clone(&barrier);
                scope.spawn(move || {
                    ask(&mut client, &format!("WATCH {watched}"));
                    ask(&mut client, "MULTI");
                    ask(&mut client, &format!("SET {written} {round}"));
                    barrier.wait();
                    usize::from(ask(&mut client, "EXEC") == "[+OK]")
                })
            });
            both.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(ran, 1);
    }
}
