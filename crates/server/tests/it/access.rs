//! Tests of the users of a running server: their files, the effect of a change on connected
//! clients, renamed commands, and rules compared with the oracle.

use std::fs;

use base::random::Prng;
use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder, temporary_directory};
use testkit::transcript::show;

use crate::limits::eventually;

fn start(args: &[&str]) -> Server {
    ServerBuilder::iolite().args(args).start().unwrap()
}

fn ask(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    show(&client.command(&words).unwrap())
}

#[test]
fn users_are_loaded_from_their_file_and_saved_to_it() {
    let directory = temporary_directory("users").unwrap();
    let path = directory.join("users.acl");
    fs::write(
        &path,
        "user alice on >p ~a* &* +@all\nuser default on nopass ~* &* +@all\n",
    )
    .unwrap();
    let shown = path.to_str().unwrap();
    let server = start(&["--aclfile", shown]);
    let (mut first, mut alice) = (server.client().unwrap(), server.client().unwrap());
    assert_eq!(ask(&mut alice, "AUTH alice p"), "+OK");
    assert_eq!(ask(&mut first, "ACL SETUSER bob on nopass +ping"), "+OK");
    assert_eq!(ask(&mut first, "ACL SAVE"), "+OK");
    let saved = fs::read_to_string(&path).unwrap();
    let names: Vec<&str> = saved
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(names, ["alice", "bob", "default"]);
    fs::write(&path, format!("{saved}user bob off\nusers\n")).unwrap();
    let refused = ask(&mut first, "ACL LOAD");
    for part in [
        ":4: Duplicate user 'bob' found",
        ":5: should start with user",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(ask(&mut alice, "PING"), "+PONG");
    let mut bob = server.client().unwrap();
    assert_eq!(ask(&mut bob, "AUTH bob x"), "+OK");
    let mut listener = server.client().unwrap();
    assert_eq!(ask(&mut listener, "AUTH alice p"), "+OK");
    ask(&mut listener, "SUBSCRIBE news");
    fs::write(&path, "user alice on >q +ping\n").unwrap();
    assert_eq!(ask(&mut first, "ACL LOAD"), "+OK");
    for (who, client) in [
        ("whose user is gone", &mut bob),
        ("who may not hear it", &mut listener),
    ] {
        eventually(&format!("{who} is closed"), || {
            client.command(&["PING"]).is_err()
        });
    }
    // The other clients stay, under the rules of the file.
    assert_eq!(ask(&mut alice, "PING"), "+PONG");
    assert!(ask(&mut alice, "GET a").contains("NOPERM"));
    assert_eq!(ask(&mut first, "AUTH alice q"), "+OK");
}

#[test]
fn a_file_with_faults_stops_the_start() {
    let directory = temporary_directory("wrong-users").unwrap();
    let path = directory.join("users.acl");
    fs::write(&path, "user alice on +nothing\n").unwrap();
    let shown = path.to_str().unwrap();
    for args in [
        &["--aclfile", shown][..],
        &["--aclfile", "/does/not/exist"],
        &["--user", "alice", "on", "+nothing"],
        &["--user", "alice", "on", "--user", "alice", "off"],
        &["--rename-command", "NOTHING", "OTHER"],
    ] {
        assert!(
            ServerBuilder::iolite().args(args).start().is_err(),
            "{args:?}"
        );
    }
}

#[test]
fn who_loses_its_user_or_its_channels_is_closed() {
    let server = start(&[]);
    let mut first = server.client().unwrap();
    ask(&mut first, "ACL SETUSER u on nopass +@all &a &b");
    let mut clients: Vec<Client> = (0..3).map(|_| server.client().unwrap()).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "AUTH u x"), "+OK");
    }
    ask(&mut clients[0], "SUBSCRIBE a");
    ask(&mut clients[1], "SUBSCRIBE b");
    ask(&mut first, "ACL SETUSER u resetchannels &b");
    assert!(clients[0].receive().unwrap().is_none());
    // The other clients keep their rules.
    assert!(ask(&mut clients[1], "PING").contains("pong"));
    assert_eq!(ask(&mut clients[2], "PING"), "+PONG");
    assert_eq!(ask(&mut first, "ACL DELUSER u"), ":1");
    for client in &mut clients[1..] {
        assert!(client.receive().unwrap().is_none());
    }
}

#[test]
fn users_of_the_configuration_are_written_back_to_it() {
    let directory = temporary_directory("configured-users").unwrap();
    let path = directory.join("iolite.conf");
    let line = "user default on nopass ~* &* +@all -flushdb\n";
    fs::write(&path, format!("{line}user alice on nopass ~a +@read\n")).unwrap();
    let server = ServerBuilder::iolite().file(&path).start().unwrap();
    let mut client = server.client().unwrap();
    assert!(ask(&mut client, "FLUSHDB").contains("NOPERM"));
    ask(&mut client, "ACL SETUSER bob on nopass +ping");
    ask(&mut client, "ACL DELUSER alice");
    assert_eq!(ask(&mut client, "CONFIG REWRITE"), "+OK");
    drop(server);
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("user bob on nopass") && !text.contains("alice"),
        "{text}"
    );
    // The directory of the first server is gone.
    let lines = text.lines().filter(|line| line.starts_with("user "));
    let text: Vec<&str> = lines.collect();
    fs::write(&path, text.join("\n")).unwrap();
    let server = ServerBuilder::iolite().file(&path).start().unwrap();
    let mut client = server.client().unwrap();
    assert!(ask(&mut client, "FLUSHDB").contains("NOPERM"));
    assert_eq!(ask(&mut client, "AUTH bob x"), "+OK");
}

#[test]
fn commands_go_by_the_names_they_are_given() {
    let directory = temporary_directory("renamed").unwrap();
    let path = directory.join("iolite.conf");
    fs::write(
        &path,
        "rename-command GET fetch\nrename-command FLUSHALL \"\"\n",
    )
    .unwrap();
    let server = ServerBuilder::iolite().file(&path).start().unwrap();
    let mut client = server.client().unwrap();
    ask(&mut client, "SET k v");
    assert_eq!(ask(&mut client, "FETCH k"), "\"v\"");
    assert_eq!(ask(&mut client, "Fetch k"), "\"v\"");
    for line in ["GET k", "get k", "FLUSHALL"] {
        assert!(ask(&mut client, line).contains("unknown command"), "{line}");
    }
    // Rules refer to the command by its original name.
    ask(&mut client, "ACL SETUSER u on nopass ~* +get");
    ask(&mut client, "AUTH u x");
    assert_eq!(ask(&mut client, "FETCH k"), "\"v\"");
}

/// Returns whether this version is known to differ from the oracle in this command. Redis 7.2 gives
/// two more arguments to ZRANK, takes COMMAND GETKEYS without arguments, and blocks in WAIT. Redis
/// 7.0 ignores the key of a PFMERGE without sources. REPLICAOF takes FORCE here.
fn is_known(request: &[String]) -> bool {
    let words: Vec<&str> = request.iter().map(String::as_str).collect();
    matches!(
        words.as_slice(),
        ["zrank" | "zrevrank" | "wait" | "replicaof" | "slaveof", ..]
            | ["command", "getkeys" | "getkeysandflags", ..]
            | ["pfmerge", _]
    )
}

/// Returns the commands of both servers with the smallest number of arguments that they take.
fn commands_of(client: &mut Client) -> Vec<(Vec<String>, usize)> {
    fn text(value: &Value) -> String {
        match value {
            Value::Bulk(text) | Value::Simple(text) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        }
    }
    fn rows(value: &Value, found: &mut Vec<(Vec<String>, usize)>) {
        let Value::Array(rows_here) = value else {
            return;
        };
        for row in rows_here {
            let Value::Array(fields) = row else { continue };
            match fields.get(9) {
                Some(subcommands @ Value::Array(all)) if !all.is_empty() => {
                    rows(subcommands, found);
                }
                _ => {
                    let name = text(&fields[0]).split('|').map(str::to_owned).collect();
                    let Value::Integer(arity) = fields[1] else {
                        continue;
                    };
                    let least = usize::try_from(arity.unsigned_abs()).unwrap();
                    found.push((name, least));
                }
            }
        }
    }
    let mut found = Vec::new();
    rows(&client.command(&["COMMAND"]).unwrap(), &mut found);
    found
}

/// Returns the number of pairs of a user and a request to try. The variable sets a longer run.
fn pairs_count() -> usize {
    let asked = std::env::var("IOLITE_ACCESS_PAIRS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(20_000)
}

struct Draw {
    random: Prng,
    commands: Vec<(Vec<String>, usize)>,
}

const CATEGORIES: [&str; 12] = [
    "read",
    "write",
    "keyspace",
    "string",
    "list",
    "hash",
    "set",
    "sortedset",
    "fast",
    "slow",
    "dangerous",
    "pubsub",
];
const PATTERNS: [&str; 10] = [
    "a", "a*", "foo:*", "*b", "?", "[a-c]*", "\\*", "k[*]", "*", "[^a]*",
];
const WORDS: [&str; 26] = [
    "a",
    "b",
    "ab",
    "foo:1",
    "bar",
    "",
    "k*",
    "news",
    "1",
    "2",
    "GET",
    "STORE",
    "BY",
    "KEYS",
    "STREAMS",
    "COUNT",
    "WEIGHTS",
    "STOREDIST",
    "EX",
    "-1",
    "LEFT",
    "ASC",
    "AUTH",
    "incrby",
    "u8",
    "SET",
];

impl Draw {
    fn pick<'w>(&mut self, words: &[&'w str]) -> &'w str {
        words[self.random.index(words.len())]
    }

    fn command(&mut self) -> (Vec<String>, usize) {
        let at = self.random.index(self.commands.len());
        self.commands[at].clone()
    }

    fn rule(&mut self) -> String {
        let sign = self.pick(&["+", "+", "-"]);
        match self.random.below(6) {
            0 => {
                let mut name = self.command().0;
                name.truncate(1 + self.random.index(2));
                format!("{sign}{}", name.join("|"))
            }
            1 => format!("{sign}@{}", self.pick(&CATEGORIES)),
            2 => {
                let words = [
                    "+@all",
                    "-@all",
                    "allkeys",
                    "resetkeys",
                    "allchannels",
                    "+select|0",
                ];
                self.pick(&words).to_owned()
            }
            3 | 4 => {
                let sign = self.pick(&["~", "%R~", "%W~", "%RW~"]);
                format!("{sign}{}", self.pick(&PATTERNS))
            }
            _ => format!("&{}", self.pick(&["news", "n*", "*", "a"])),
        }
    }

    fn rules(&mut self) -> Vec<String> {
        let count = 1 + self.random.index(8);
        let mut rules: Vec<String> = (0..count).map(|_| self.rule()).collect();
        if self.random.below(3) == 0 {
            let selector: Vec<String> = (0..3).map(|_| self.rule()).collect();
            rules.push(format!("({})", selector.join(" ")));
        }
        rules
    }

    fn request(&mut self) -> Vec<String> {
        let (mut words, least) = self.command();
        let more = self.random.index(5);
        while words.len() < least + more {
            words.push(self.pick(&WORDS).to_owned());
        }
        words
    }
}

/// Returns the part of a denial that both versions word alike.
fn verdict(reply: &Value) -> String {
    let shown = show(reply);
    let end = shown.split_once(" has no permissions to ");
    end.map_or_else(|| shown.clone(), |(_, what)| what.to_owned())
}

#[test]
fn rules_allow_what_they_allow_at_the_oracle() {
    let (oracle, ours) = (ServerBuilder::oracle().start().unwrap(), start(&[]));
    let mut clients = [oracle.client().unwrap(), ours.client().unwrap()];
    let [known, mut commands] = [0, 1].map(|at| commands_of(&mut clients[at]));
    commands.retain(|(name, _)| known.iter().any(|(other, _)| other == name));
    assert!(commands.len() > 250, "{} commands", commands.len());
    let mut draw = Draw {
        random: Prng::seeded(7),
        commands,
    };
    for _ in 0..pairs_count() / 100 {
        let rules = draw.rules();
        let mut lines: Vec<Vec<String>> =
            vec![["ACL", "SETUSER", "u", "reset"].map(String::from).into()];
        lines.extend(
            rules
                .iter()
                .map(|rule| ["ACL", "SETUSER", "u", rule].map(String::from).into()),
        );
        let setting = lines.len();
        lines.extend(
            (0..100)
                .map(|_| draw.request())
                .filter(|request| !is_known(request))
                .map(|request| {
                    [["ACL", "DRYRUN", "u"].map(String::from).to_vec(), request].concat()
                }),
        );
        let [theirs, ours] = clients
            .each_mut()
            .map(|client| client.pipeline(&lines).unwrap());
        for (at, (line, (theirs, ours))) in lines.iter().zip(theirs.iter().zip(&ours)).enumerate() {
            let is_same = verdict(theirs) == verdict(ours);
            let what = if at < setting { "rule" } else { "request" };
            assert!(
                is_same,
                "{what} {line:?} of {rules:?}: {theirs:?} and {ours:?}"
            );
        }
    }
}
