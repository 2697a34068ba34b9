//! Tests of clients that wait for keys, on several workers, with the same schedules on Redis.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

/// Maximum time for anything that should happen at once.
const AT_ONCE: Duration = Duration::from_secs(120);

fn start(args: &[&str]) -> Server {
    let server = ServerBuilder::iolite().args(&["--io-threads", "4"]);
    server.args(args).start().unwrap()
}

/// Starts Redis and this server, or only this server if there is no Redis.
fn both() -> Vec<Server> {
    let oracle = ServerBuilder::oracle().start();
    oracle.into_iter().chain([start(&[])]).collect()
}

fn ask(client: &mut Client, line: &str) -> String {
    show(&client.command(&words(line)).unwrap())
}

fn send(client: &mut Client, line: &str) {
    client.send(&words(line)).unwrap();
}

fn hear(client: &mut Client) -> String {
    show(&client.receive().unwrap().unwrap())
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Returns a field of INFO.
fn field(client: &mut Client, section: &str, name: &str) -> u64 {
    let Value::Bulk(text) = client.command(&["INFO", section]).unwrap() else {
        panic!("INFO {section} is no text");
    };
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap().parse().unwrap()
}

fn until_blocked(client: &mut Client, count: u64) {
    until(client, "blocked_clients", count);
}

/// Waits until a field of the clients' section has a value.
fn until(client: &mut Client, name: &str, value: u64) {
    let patience = Patience::of(AT_ONCE);
    while field(client, "clients", name) != value {
        assert!(patience.lasts(), "{name} is never {value}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether a new client sees this number of blocked clients.
fn are_blocked(server: &Server, count: u64) -> bool {
    let reply = server.client().unwrap().command(&["INFO", "clients"]);
    let Ok(Value::Bulk(text)) = reply else {
        return false;
    };
    String::from_utf8_lossy(&text).contains(&format!("\r\nblocked_clients:{count}\r\n"))
}

/// Sends a blocking request, and waits until its client is blocked.
fn block(server: &Server, watcher: &mut Client, count: u64, line: &str) -> Client {
    let mut client = server.client().unwrap();
    send(&mut client, line);
    until_blocked(watcher, count);
    client
}

fn id_of(client: &mut Client) -> String {
    ask(client, "CLIENT ID").trim_start_matches(':').to_owned()
}

#[test]
fn the_first_to_come_is_served_first_whatever_its_worker() {
    for server in both() {
        let mut main = server.client().unwrap();
        let mut pushers: Vec<Client> = (0..4).map(|_| server.client().unwrap()).collect();
        let mut waiters = Vec::new();
        for count in 1..=12 {
            let line = match count % 3 {
                0 => "BLPOP none k 0",
                1 => "BRPOP k 6000",
                _ => "BLMPOP 0 2 none k LEFT COUNT 1",
            };
            waiters.push(block(&server, &mut main, count, line));
        }
        for number in 0..12_u32 {
            let pusher = &mut pushers[usize::try_from(number % 4).unwrap()];
            assert_eq!(ask(pusher, &format!("RPUSH k e{number}")), ":1");
            assert_eq!(ask(pusher, "EXISTS k"), ":0");
        }
        for (number, waiter) in waiters.iter_mut().enumerate() {
            assert!(hear(waiter).contains(&format!("\"e{number}\"")));
        }
        until_blocked(&mut main, 0);
    }
}

#[test]
fn a_transaction_serves_behind_its_end() {
    for server in both() {
        let mut main = server.client().unwrap();
        let mut one = block(&server, &mut main, 1, "BLPOP a b 0");
        let mut two = block(&server, &mut main, 2, "BLMOVE b c LEFT RIGHT 0");
        let mut three = block(&server, &mut main, 3, "BLPOP c 0");
        for line in ["MULTI", "RPUSH a 1", "RPUSH b 2", "LLEN a", "BLPOP none 0"] {
            ask(&mut main, line);
        }
        assert_eq!(ask(&mut main, "EXEC"), "[:1, :1, :1, (nil-array)]");
        assert_eq!(hear(&mut one), "[\"a\", \"1\"]");
        assert_eq!(hear(&mut two), "\"2\"");
        assert_eq!(hear(&mut three), "[\"c\", \"2\"]");
        // An element that is added and removed in one step was never there.
        let mut four = block(&server, &mut main, 1, "BLPOP d 0");
        for line in ["MULTI", "RPUSH d 1", "DEL d", "EXEC", "RPUSH d 2"] {
            ask(&mut main, line);
        }
        assert_eq!(hear(&mut four), "[\"d\", \"2\"]");
    }
}

#[test]
fn others_can_end_a_wait() {
    for server in both() {
        let mut main = server.client().unwrap();
        let mut waiter = server.client().unwrap();
        let id = id_of(&mut waiter);
        let unblock = format!("CLIENT UNBLOCK {id}");
        assert_eq!(ask(&mut main, &unblock), ":0");
        for (line, how, heard) in [
            ("BLPOP k 0", "", "(nil-array)"),
            ("BRPOPLPUSH k l 0", " TIMEOUT", "(nil-array)"),
            ("XREAD BLOCK 0 STREAMS s $", "", "(nil-array)"),
            ("WAIT 3 0", "", ":0"),
            (
                "BZPOPMIN z 10000",
                " ERROR",
                "-UNBLOCKED client unblocked via CLIENT UNBLOCK",
            ),
        ] {
            send(&mut waiter, line);
            until_blocked(&mut main, 1);
            assert_eq!(ask(&mut main, &format!("{unblock}{how}")), ":1");
            assert_eq!(ask(&mut main, &unblock), ":0");
            assert_eq!(hear(&mut waiter), heard);
        }
        assert_eq!(ask(&mut main, "RPUSH k 1"), ":1");
        assert_eq!(ask(&mut main, "LLEN k"), ":1");
    }
}

#[test]
fn nothing_is_taken_for_who_is_gone() {
    for server in both() {
        let mut main = server.client().unwrap();
        let mut waiter = server.client().unwrap();
        let id = id_of(&mut waiter);
        send(&mut waiter, "BLPOP k 0");
        until_blocked(&mut main, 1);
        ask(&mut main, &format!("CLIENT KILL ID {id}"));
        assert_eq!(ask(&mut main, "RPUSH k 1"), ":1");
        assert_eq!(ask(&mut main, "LLEN k"), ":1");
        assert!(!matches!(waiter.receive(), Ok(Some(_))));
        drop(block(&server, &mut main, 1, "BLPOP j 0"));
        until_blocked(&mut main, 0);
        ask(&mut main, "RPUSH j 1");
        assert_eq!(ask(&mut main, "LLEN j"), ":1");
    }
}

#[test]
fn the_wait_is_not_shorter_than_was_asked() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    for (line, ms) in [
        ("BLPOP k 0.03", 30),
        ("BZPOPMAX k 0.0295", 30),
        ("XREAD BLOCK 25 STREAMS s 0", 25),
        ("WAIT 1 7", 7),
        ("BLMOVE k l LEFT LEFT 0.001", 1),
    ] {
        let patience = Patience::of(Duration::from_millis(ms));
        ask(&mut client, line);
        assert!(!patience.lasts(), "{line}");
    }
}

#[test]
fn a_pause_holds_pushers_and_not_the_end_of_a_wait() {
    for server in both() {
        let mut main = server.client().unwrap();
        let mut waiter = block(&server, &mut main, 1, "BLPOP k 0");
        let mut brief = server.client().unwrap();
        ask(&mut main, "CLIENT PAUSE 60000 WRITE");
        let mut pusher = server.client().unwrap();
        send(&mut pusher, "RPUSH k 1");
        until_blocked(&mut main, 2);
        send(&mut brief, "BLPOP j 0.01");
        ask(&mut main, "CLIENT UNPAUSE");
        assert_eq!(hear(&mut pusher), ":1");
        assert_eq!(hear(&mut waiter), "[\"k\", \"1\"]");
        assert_eq!(hear(&mut brief), "(nil-array)");
    }
}

#[test]
fn who_waits_is_shown_and_is_not_idle() {
    for server in both() {
        let mut main = server.client().unwrap();
        ask(&mut main, "XGROUP CREATE s g $ MKSTREAM");
        let _one = block(&server, &mut main, 1, "BLPOP a b 0");
        let group = "XREADGROUP GROUP g c BLOCK 100000 STREAMS s >";
        let _two = block(&server, &mut main, 2, group);
        let list = ask(&mut main, "CLIENT LIST");
        assert!(list.contains("flags=b") && list.contains("cmd=blpop"));
        assert_eq!(field(&mut main, "clients", "clients_in_timeout_table"), 1);
        if server.name() != "oracle" {
            // These fields are newer than the oracle.
            assert_eq!(field(&mut main, "clients", "total_blocking_keys"), 3);
            let on_no_key = field(&mut main, "clients", "total_blocking_keys_on_nokey");
            assert_eq!(on_no_key, 1);
        }
        assert_eq!(ask(&mut main, "CONFIG SET timeout 1"), "+OK");
        thread::sleep(Duration::from_millis(2_500));
        // The asking client is idle, too, and may be closed between two requests.
        let patience = Patience::of(AT_ONCE);
        while !are_blocked(&server, 2) {
            assert!(patience.lasts(), "somebody does not wait any more");
        }
    }
}

#[test]
fn who_waits_is_monitored_when_it_came_and_logged_when_it_is_served() {
    for server in both() {
        let mut main = server.client().unwrap();
        ask(&mut main, "CONFIG SET slowlog-log-slower-than 0");
        let mut monitor = server.client().unwrap();
        assert_eq!(ask(&mut monitor, "MONITOR"), "+OK");
        let mut next = |word: &str| loop {
            let line = hear(&mut monitor);
            if !line.contains("\"INFO\"") {
                break assert!(line.contains(word), "{line} instead of {word}");
            }
        };
        let mut waiter = block(&server, &mut main, 1, "BLPOP k 0");
        // The time is so short that it may be over before any client has seen it wait.
        let mut overdue = server.client().unwrap();
        send(&mut overdue, "BLMOVE j k LEFT LEFT 0.05");
        next("\"BLPOP\" \"k\" \"0\"");
        next("\"BLMOVE\"");
        let log = ask(&mut main, "SLOWLOG GET");
        assert!(!log.contains("BLPOP"), "{log}");
        assert_eq!(hear(&mut overdue), "(nil-array)");
        ask(&mut main, "RPUSH k 1");
        assert_eq!(hear(&mut waiter), "[\"k\", \"1\"]");
        ask(&mut main, "RPUSH k 2");
        next("\"RPUSH\" \"k\" \"1\"");
        next("\"RPUSH\" \"k\" \"2\"");
        let log = ask(&mut main, "SLOWLOG GET");
        assert_eq!(log.matches("\"BLPOP\"").count(), 1, "{log}");
        assert!(!log.contains("BLMOVE"), "{log}");
        let address = ask(&mut waiter, "CLIENT INFO");
        let address = address.split("addr=").nth(1).unwrap();
        let address = address.split(' ').next().unwrap();
        let entry = log.split("\"BLPOP\"").nth(1).unwrap();
        assert!(entry.contains(address), "{address} is not in {entry}");
    }
}

#[test]
fn a_request_of_many_keys_waits_too() {
    let server = start(&[]);
    let mut main = server.client().unwrap();
    let mut waiter = server.client().unwrap();
    let keys = (0..10_000).map(|number| format!("k{number}"));
    let mut request = vec!["BLPOP".to_owned()];
    request.extend(keys);
    request.push("0".to_owned());
    waiter.send(&request).unwrap();
    until_blocked(&mut main, 1);
    until(&mut main, "total_blocking_keys", 10_000);
    assert_eq!(ask(&mut main, "RPUSH k7777 x"), ":1");
    assert_eq!(hear(&mut waiter), "[\"k7777\", \"x\"]");
    // The other keys drop the waiter after the reply.
    until(&mut main, "total_blocking_keys", 0);
    waiter.send(&request).unwrap();
    until_blocked(&mut main, 1);
    drop(waiter);
    until_blocked(&mut main, 0);
    until(&mut main, "total_blocking_keys", 0);
}

/// Elements pass through two queues, with timeouts of a millisecond and pollers in between: none is
/// lost, none is seen twice.
#[test]
fn no_element_is_lost_between_workers() {
    const ELEMENTS: u64 = 4_000;
    let server = start(&[]);
    let (sum, count, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let take = |client: &mut Client, line: &str| {
        let heard = match client.command(&words(line)).unwrap() {
            Value::Array(mut items) => items.pop().unwrap(),
            other => other,
        };
        if let Value::Bulk(text) = heard {
            let number: u64 = String::from_utf8(text).unwrap().parse().unwrap();
            sum.fetch_add(number, Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let lines = [
            "BLPOP b c 0.001",
            "BLPOP c b 0.5",
            "BRPOP b 0.002",
            "LPOP b",
            "BLMPOP 1 2 c b LEFT",
        ];
        for line in lines {
            let mut client = server.client().unwrap();
            let (take, done) = (&take, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    // BLMPOP replies with a nested array of elements, which `take` does not read.
                    match line.starts_with("BLMPOP") {
                        true => {
                            client
                                .command(&["BLMOVE", "a", "c", "LEFT", "RIGHT", "0.001"])
                                .unwrap();
                        }
                        false => take(&mut client, line),
                    }
                }
            });
        }
        for _ in 0..2 {
            let (mut client, done) = (server.client().unwrap(), &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    client
                        .command(&words("BLMOVE a b RIGHT LEFT 0.003"))
                        .unwrap();
                }
            });
        }
        let mut pusher = server.client().unwrap();
        for number in 0..ELEMENTS {
            let key = if number % 3 == 0 { "c" } else { "a" };
            ask(&mut pusher, &format!("RPUSH {key} {number}"));
        }
        let patience = Patience::of(AT_ONCE);
        while count.load(Ordering::Relaxed) < ELEMENTS && patience.lasts() {
            thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(count.into_inner(), ELEMENTS);
    assert_eq!(sum.into_inner(), ELEMENTS * (ELEMENTS - 1) / 2);
    let mut main = server.client().unwrap();
    assert_eq!(ask(&mut main, "EXISTS a b c"), ":0");
    until(&mut main, "total_blocking_keys", 0);
}

/// Returns the milliseconds of processor time that a process has used.
fn processor_ms(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|one| one.parse::<u64>().unwrap())
        .sum();
    ticks * 10
}

/// Returns the number that a client got from a list.
fn heard_number(client: &mut UnixStream) -> usize {
    let mut heard = Vec::new();
    let mut byte = [0];
    while heard.iter().filter(|byte| **byte == b'\n').count() < 5 {
        client.read_exact(&mut byte).unwrap();
        heard.extend(byte);
    }
    let text = String::from_utf8(heard).unwrap();
    text.lines().last().unwrap().parse().unwrap()
}

/// A client that knows that another client waits, or has ended its wait, finds this in INFO at
/// once, whichever workers serve the two.
#[test]
fn figures_of_those_who_wait_lag_behind_nothing() {
    for (server, is_oracle) in both().into_iter().rev().zip([false, true]) {
        let mut other = server.client().unwrap();
        let mut waiting: Vec<Client> = (0..8).map(|_| server.client().unwrap()).collect();
        let waits = [
            ("BLPOP q 0", "RPUSH q 1", 0),
            ("BLMOVE q r LEFT LEFT 0", "RPUSH q 1", 0),
            ("BLPOP q 0", "CLIENT UNBLOCK", 0),
            ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "DEL s", 1),
        ];
        for round in 0..200 {
            let client = &mut waiting[round % 8];
            ask(&mut other, "DEL q r s");
            ask(&mut other, "XGROUP CREATE s g $ MKSTREAM");
            let id = ask(client, "CLIENT ID").replace(':', "");
            let (wait, end, known) = waits[round % 4];
            send(client, wait);
            until_blocked(&mut other, 1);
            // Redis 7.0 counts only clients.
            let keys = |other: &mut Client| {
                ["total_blocking_keys", "total_blocking_keys_on_nokey"]
                    .map(|name| field(other, "clients", name))
            };
            assert!(is_oracle || keys(&mut other) == [1, known], "{wait}");
            match end {
                "CLIENT UNBLOCK" => ask(&mut other, &format!("{end} {id}")),
                end => ask(&mut other, end),
            };
            assert_eq!(field(&mut other, "clients", "blocked_clients"), 0, "{end}");
            assert!(is_oracle || keys(&mut other) == [0, 0], "{end}");
            hear(client);
        }
    }
}

/// Many waiting clients cost memory but no processor time.
#[test]
fn ten_thousand_clients_wait_at_no_cost() {
    const CLIENTS: usize = 10_000;
    const CLIENT_BYTES_MAX: u64 = 2_048;
    // Memory of partly filled pages and of the allocator's own tables, which matters if there are
    // few clients.
    const BESIDE_BYTES: u64 = 256 << 10;
    // If the process may open fewer files, half of them: concurrent tests need some, too.
    let files = base::process::raise_open_files(2 * CLIENTS as u64).unwrap();
    let count = CLIENTS.min(usize::try_from(files.now).unwrap() / 2);
    let server = start(&["--maxclients", "20000"]);
    let mut main = server.client().unwrap();
    let connect = |number: usize| {
        let mut client = UnixStream::connect(server.socket()).unwrap();
        let request = format!("BLPOP q{} all 1000\r\n", number % 100);
        std::io::Write::write_all(&mut client, request.as_bytes()).unwrap();
        client
    };
    // The server makes its one-time allocations before it is measured.
    let first = count / 10;
    let mut clients: Vec<UnixStream> = (0..first).map(connect).collect();
    until_blocked(&mut main, first as u64);
    let before = server.rss_bytes().unwrap();
    clients.extend((first..count).map(connect));
    until_blocked(&mut main, count as u64);
    let grown = server.rss_bytes().unwrap().saturating_sub(before);
    let each = grown.saturating_sub(BESIDE_BYTES) / (count - first) as u64;
    let before_ms = processor_ms(&server);
    let patience = Patience::of(Duration::from_secs(1));
    while patience.lasts() {
        thread::sleep(Duration::from_millis(20));
    }
    let took_ms = processor_ms(&server) - before_ms;
    println!("{count} clients: {each} bytes each, {took_ms} ms a second");
    assert!(each <= CLIENT_BYTES_MAX, "{each} bytes each");
    assert!(took_ms <= 200, "{took_ms} ms a second");
    for number in 0..count {
        ask(&mut main, &format!("RPUSH all {number}"));
    }
    let mut taken: Vec<usize> = clients.iter_mut().map(heard_number).collect();
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..count));
    until(&mut main, "total_blocking_keys", 0);
    until(&mut main, "clients_in_timeout_table", 0);
}
