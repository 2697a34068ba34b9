//! Tests of the effects that a control group's decisions have on the data plane: the servers run in
//! this process, and the test acts as the group.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base::clock::SystemClock;
use cluster::message::Seal;
use cluster::state::CopyKind;
use cluster::{LogEnd, NodeId, Shard, ShardId};
use protocol::Value;
use reactor::InProcessPeer;
use server::cli::{self, Invocation};
use server::group::duty::{Duty, PrimaryAddress};
use server::in_process::InProcessServer;
use store::{Options, Store};
use testkit::client::{Client, Link};
use testkit::patience::Patience;
use testkit::process::{TemporaryDirectory, free_port};

use crate::recovery::run;

const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for any test.
const LONG_LEASE_MS: u64 = 3_600_000;

/// One copy of the shard.
struct Member {
    id: NodeId,
    link_port: u16,
    directory: TemporaryDirectory,
    args: Vec<String>,
    server: Option<InProcessServer>,
    duty: Option<Arc<Duty>>,
}

/// A connection inside the process that blocks where the original does not.
struct Waiting(InProcessPeer);

impl Waiting {
    fn wait<T>(
        &mut self,
        mut attempt: impl FnMut(&mut InProcessPeer) -> io::Result<T>,
    ) -> io::Result<T> {
        let patience = Patience::of(PATIENCE);
        loop {
            match attempt(&mut self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && patience.lasts() => {
                    std::thread::sleep(Duration::from_micros(50));
                }
                other => return other,
            }
        }
    }
}

impl Read for Waiting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(|peer| peer.read(buffer))
    }
}

impl Write for Waiting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|peer| peer.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Link for Waiting {
    fn set_blocking(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }
}

impl Member {
    fn new(name: u8, args: &[&str]) -> Self {
        let mut member = Self {
            id: NodeId([name; 20]),
            link_port: free_port().unwrap(),
            directory: TemporaryDirectory::new("duty").unwrap(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            server: None,
            duty: None,
        };
        member.start();
        member
    }

    fn start(&mut self) {
        let directory = self.directory.join("");
        let link_port = self.link_port.to_string();
        let words = [
            "iolite",
            "--threads",
            "1",
            "--save",
            "",
            "--durability",
            "os",
            "--repl-port",
            &link_port,
            "--dir",
            directory.to_str().unwrap(),
        ];
        let words = words.into_iter().map(str::to_owned);
        let words = words.chain(self.args.iter().cloned()).map(Into::into);
        let Ok(Invocation::Serve(startup)) =
            cli::read(words.collect(), std::iter::empty(), &mut io::empty())
        else {
            panic!("the command line is valid");
        };
        let store = Store::new(&Options::default()).unwrap();
        let clock = Arc::new(SystemClock::new());
        let (id, mut duty) = (self.id, None);
        let server = InProcessServer::start_loaded(store, startup.settings, clock, &mut |node| {
            duty = Some(Duty::begin(node, id)?);
            Ok(())
        });
        (self.server, self.duty) = (Some(server.unwrap()), duty);
    }

    fn stop(&mut self) {
        self.duty = None;
        if let Some(server) = self.server.take() {
            server.stop().unwrap();
        }
    }

    fn duty(&self) -> &Duty {
        self.duty.as_ref().unwrap()
    }

    fn client(&self) -> Client {
        let server = self.server.as_ref().unwrap();
        Client::over(Box::new(Waiting(server.connect())))
    }

    fn run(&self, line: &str) -> Value {
        run(&mut self.client(), line)
    }

    fn address(&self) -> PrimaryAddress {
        PrimaryAddress {
            host: "127.0.0.1".to_owned(),
            client_port: 1,
            link_port: self.link_port,
        }
    }

    fn begin_seal(&self, term: u64) -> Receiver<bool> {
        let (sender, done) = channel();
        let seal = Seal {
            shard: ShardId(1),
            term,
            epoch: 1,
        };
        let tell = move |is_certain| sender.send(is_certain).unwrap();
        self.duty().seal(seal, Box::new(tell));
        done
    }

    fn seal(&self, term: u64) -> bool {
        self.begin_seal(term).recv_timeout(PATIENCE).unwrap()
    }

    fn take_office(&self, term: u64) -> bool {
        let (sender, done) = channel();
        let tell = move |has_begun| sender.send(has_begun).unwrap();
        self.duty().take_office(term, Box::new(tell));
        done.recv_timeout(PATIENCE).unwrap()
    }

    fn lease(&self, ms: u64) {
        self.duty().set_lease_until_ms(self.duty().now_ms() + ms);
    }

    fn end(&self) -> LogEnd {
        self.duty().log_end().0
    }

    fn get(&self, key: &str) -> Value {
        self.run(&format!("GET {key}"))
    }

    fn wait_for_value(&self, key: &str, value: &str) {
        let expected = Value::Bulk(value.into());
        eventually(key, || self.get(key) == expected);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop();
    }
}

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Patience::of(PATIENCE);
    while !is_so() {
        assert!(patience.lasts(), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn shard(members: &[Member]) -> Shard {
    Shard {
        members: members
            .iter()
            .map(|member| (member.id, CopyKind::Data))
            .collect(),
        is_quorum: true,
        ..Shard::default()
    }
}

/// Starts three members, the first of which holds the office of term 1.
fn group(args: &[&str]) -> Vec<Member> {
    let members: Vec<Member> = (1..=3).map(|name| Member::new(name, args)).collect();
    promote(&members, 0, 1);
    members
}

/// Makes a member the primary of a term. The others follow it.
fn promote(members: &[Member], at: usize, term: u64) {
    for member in members {
        member.duty().set_members(&shard(members));
    }
    assert!(members[at].take_office(term));
    members[at].lease(LONG_LEASE_MS);
    for (other, member) in members.iter().enumerate() {
        if other != at {
            member.duty().follow(term, &members[at].address());
        }
    }
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn error_of(value: &Value) -> String {
    match value {
        Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_is_in_no_office_takes_no_writes() {
    let member = Member::new(1, &[]);
    let refused = error_of(&member.run("SET a 1"));
    assert!(refused.starts_with("READONLY"), "{refused}");
    assert!(member.take_office(1));
    member.lease(LONG_LEASE_MS);
    eventually("it writes", || member.run("SET a 1") == ok());
    assert_eq!(member.end().term, 1);
    member.duty().leave_office();
    let refused = error_of(&member.run("SET a 2"));
    assert!(refused.starts_with("READONLY"), "{refused}");
    assert_eq!(member.get("a"), Value::Bulk(b"1".to_vec()));
}

#[test]
fn a_replica_that_is_promoted_has_all_and_the_old_primary_follows_it() {
    let members = group(&[]);
    let mut client = members[0].client();
    for number in 0..100 {
        assert_eq!(
            run(&mut client, &format!("SET key:{number} {number}")),
            ok()
        );
    }
    members[1].wait_for_value("key:99", "99");
    members[2].wait_for_value("key:99", "99");
    // The group no longer reaches the first member. The others promise to accept nothing of term 1.
    assert!(members[1].seal(2) && members[2].seal(2));
    let end = members[1].end();
    assert_eq!(end.term, 1);
    assert_eq!(
        run(&mut client, "SET lost 1"),
        ok(),
        "its lease stands still"
    );
    assert!(members[1].take_office(2));
    members[1].lease(LONG_LEASE_MS);
    members[2].duty().follow(2, &members[1].address());
    eventually("the new primary writes", || {
        members[1].run("SET new 2") == ok()
    });
    members[2].wait_for_value("new", "2");
    assert_eq!(members[1].get("lost"), Value::Null);
    assert_eq!(members[1].end().term, 2);
    // The first member returns. It gives up the writes that no other member had.
    members[0].duty().follow(2, &members[1].address());
    let refused = error_of(&members[0].run("SET lost 3"));
    assert!(refused.starts_with("READONLY"), "{refused}");
    members[0].wait_for_value("new", "2");
    assert_eq!(members[0].get("lost"), Value::Null);
    assert_eq!(members[0].get("key:99"), Value::Bulk(b"99".to_vec()));
    eventually("equal ends", || members[0].end() == members[1].end());
}

#[test]
fn a_seal_outlives_the_process_and_refuses_older_terms() {
    let mut members = group(&[]);
    assert_eq!(members[0].run("SET a 1"), ok());
    members[1].wait_for_value("a", "1");
    assert!(members[1].seal(5));
    let end = members[1].end();
    members[1].stop();
    members[1].start();
    assert_eq!(members[1].duty().seal_term(), 5);
    assert_eq!(members[1].end(), end);
    assert!(!members[1].duty().accept(4));
    assert!(!members[1].take_office(4), "it promised to");
    members[1].duty().follow(1, &members[0].address());
    assert_eq!(members[0].run("SET a 2"), ok());
    assert_eq!(members[1].get("a"), Value::Bulk(b"1".to_vec()));
    assert_eq!(members[1].end(), end);
    assert!(members[1].take_office(6));
    assert_eq!(members[1].end().term, 6);
}

#[test]
fn a_reply_at_quorum_waits_for_a_majority_and_never_leaves_after_the_office() {
    let members = group(&[]);
    let mut quorum = members[0].client();
    eventually("a majority is there", || {
        run(&mut quorum, "CLIENT DURABILITY QUORUM");
        run(&mut quorum, "SET a 1") == ok()
    });
    members[1].wait_for_value("a", "1");
    members[2].wait_for_value("a", "1");
    // The others append nothing any more, and the first member does not know it.
    assert!(members[1].seal(2) && members[2].seal(2));
    let mut other = members[0].client();
    assert_eq!(run(&mut other, "SET b 1"), ok(), "other levels go on");
    quorum.send(&["GET", "b"]).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    members[0].duty().leave_office();
    let told = error_of(&quorum.receive().unwrap().unwrap());
    assert!(told.starts_with("NOREPLICAS"), "{told}");
    assert!(
        !matches!(quorum.receive(), Ok(Some(_))),
        "its connection ends"
    );
}

#[test]
fn without_a_majority_writes_at_quorum_are_refused_before_anything_changes() {
    let members = group(&[]);
    let mut quorum = members[0].client();
    eventually("a majority is there", || {
        run(&mut quorum, "CLIENT DURABILITY QUORUM");
        run(&mut quorum, "SET a 1") == ok()
    });
    for member in &members[1..] {
        // The member may not know yet that it has everything committed.
        let _is_certain = member.seal(2);
    }
    let mut told = String::new();
    eventually("the links are gone", || {
        let refusals = &members[0]
            .server
            .as_ref()
            .unwrap()
            .node()
            .core
            .shared
            .refusals;
        refusals.has_no_majority()
    });
    for line in ["SET a 2", "DEL a", "INCR a"] {
        told = error_of(&run(&mut quorum, line));
        assert!(told.starts_with("NOREPLICAS Not enough"), "{told}");
    }
    assert_eq!(members[0].get("a"), Value::Bulk(b"1".to_vec()), "{told}");
    assert_eq!(members[0].run("SET a 3"), ok(), "other levels go on");
}

#[test]
fn without_a_lease_no_write_begins_and_no_reply_at_quorum_leaves() {
    let members: Vec<Member> = (1..=3).map(|name| Member::new(name, &[])).collect();
    promote(&members, 0, 1);
    let mut quorum = members[0].client();
    eventually("a majority is there", || {
        run(&mut quorum, "CLIENT DURABILITY QUORUM");
        run(&mut quorum, "SET a 1") == ok()
    });
    let fence = &members[0].server.as_ref().unwrap().node().replication.fence;
    fence.give_lease_back();
    let refused = error_of(&members[0].run("SET a 2"));
    assert!(refused.starts_with("READONLY"), "{refused}");
    let told = error_of(&run(&mut quorum, "GET a"));
    assert!(told.starts_with("NOREPLICAS"), "{told}");
    members[0].lease(LONG_LEASE_MS);
    assert_eq!(members[0].run("SET a 3"), ok());
}
