//! A typical job queue, with workers whose connections are killed at random.
//!
//! ```text
//!   open (hash: job -> priority)    every job not yet done
//!   jobs (sorted set)               those that wait, by priority; BZPOPMIN takes one
//!   claim:JOB (string, PX)          who works on it, for so long
//!   reaper (string, NX PX)          who looks for open jobs that neither wait nor are claimed
//! ```
//!
//! A job is finished in a transaction that watches its claim. A worker that has lost the claim,
//! because it expired or because another worker has it, finishes nothing. So every job is done
//! once, whatever happens to connections. A worker may vanish between taking a job and claiming it,
//! and at any other point.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use base::random::Prng;
use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder};

const JOBS_COUNT: usize = 600;
const WORKERS_COUNT: usize = 6;
/// Lifetime of a claim: short, so that some expire while their owner is alive.
const CLAIM_MS: u64 = 30;
const REAPER_MS: u64 = 40;
/// Time after which the lifetimes of claims and of connections double, repeatedly: on a very slow
/// machine, no job would otherwise ever be done.
const DOUBLES_AFTER: Duration = Duration::from_secs(10);
/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(180);

/// The state that all threads share.
struct Shop {
    server: Server,
    closed: AtomicBool,
    /// The id of each worker's current connection.
    connections: [AtomicI64; WORKERS_COUNT],
    kills_count: AtomicU64,
    lost_claims_count: AtomicU64,
    /// The factor by which times are longer than at the start.
    slowness: AtomicU64,
}

#[test]
fn no_job_is_lost_and_none_is_done_twice() {
    let server = ServerBuilder::iolite().args(&["--io-threads", "4"]);
    let shop = Shop {
        server: server.start().unwrap(),
        closed: AtomicBool::new(false),
        connections: Default::default(),
        kills_count: AtomicU64::new(0),
        lost_claims_count: AtomicU64::new(0),
        slowness: AtomicU64::new(1),
    };
    let mut client = shop.server.client().unwrap();
    std::thread::scope(|scope| {
        for worker in 0..WORKERS_COUNT {
            let shop = &shop;
            scope.spawn(move || shop.run_worker(worker));
        }
        scope.spawn(|| shop.kill_workers());
        shop.offer_jobs(&mut client);
        let done = shop.await_all(&mut client);
        shop.closed.store(true, Ordering::Relaxed);
        assert!(done, "{}", shop.state(&mut client));
    });
    let times = client.command(&["HVALS", "times"]).unwrap();
    let once = Value::Array(vec![Value::Bulk(b"1".to_vec()); JOBS_COUNT]);
    assert_eq!(times, once, "{}", shop.state(&mut client));
    println!(
        "{JOBS_COUNT} jobs, {} connections killed, {} claims lost",
        shop.kills_count.load(Ordering::Relaxed),
        shop.lost_claims_count.load(Ordering::Relaxed)
    );
}

impl Shop {
    fn offer_jobs(&self, client: &mut Client) {
        for job in 0..JOBS_COUNT {
            let (job, priority) = (job.to_string(), (job % 7).to_string());
            let offered = client.pipeline(&[
                ["MULTI"].as_slice(),
                &["HSET", "open", &job, &priority],
                &["ZADD", "jobs", &priority, &job],
                &["EXEC"],
            ]);
            offered.unwrap();
        }
    }

    fn await_all(&self, client: &mut Client) -> bool {
        let patience = Patience::of(PATIENCE);
        let mut pace = Patience::of(DOUBLES_AFTER);
        while patience.lasts() {
            if !pace.lasts() {
                self.slowness.fetch_add(self.slower(1), Ordering::Relaxed);
                pace = Patience::of(DOUBLES_AFTER);
            }
            if client.command(&["HLEN", "open"]).unwrap() == Value::Integer(0) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Returns a number of milliseconds, adjusted to a slow machine.
    fn slower(&self, ms: u64) -> u64 {
        ms * self.slowness.load(Ordering::Relaxed)
    }

    fn state(&self, client: &mut Client) -> String {
        let requests = [
            ["HGETALL", "open"].as_slice(),
            &["ZRANGE", "jobs", "0", "-1"],
            &["KEYS", "*"],
            &["HGETALL", "times"],
        ];
        format!("{:?}", client.pipeline(&requests))
    }

    /// Works until the shop closes, on a new connection whenever the old one is closed.
    fn run_worker(&self, worker: usize) {
        let mut random = Prng::seeded(worker as u64);
        while !self.closed.load(Ordering::Relaxed) {
            let worked = self.connect(worker).and_then(|mut client| {
                while !self.closed.load(Ordering::Relaxed) {
                    // Sometimes a worker vanishes at this point.
                    if random.below(20) == 0 {
                        client.send(&["BZPOPMIN", "jobs", "0.02"])?;
                        break;
                    }
                    self.reap(&mut client, worker)?;
                    self.work(&mut client, worker, &mut random)?;
                }
                Ok(())
            });
            assert!(worked.is_ok() || is_end(worked.as_ref().unwrap_err()));
        }
    }

    fn connect(&self, worker: usize) -> io::Result<Client> {
        let mut client = self.server.client()?;
        if let Value::Integer(id) = client.command(&["CLIENT", "ID"])? {
            self.connections[worker].store(id, Ordering::Relaxed);
        }
        Ok(client)
    }

    fn work(&self, client: &mut Client, worker: usize, random: &mut Prng) -> io::Result<()> {
        let Value::Array(taken) = client.command(&["BZPOPMIN", "jobs", "0.02"])? else {
            return Ok(());
        };
        let Value::Bulk(job) = &taken[1] else {
            panic!("BZPOPMIN: {taken:?}");
        };
        let job = String::from_utf8_lossy(job).into_owned();
        let (claim, me) = (format!("claim:{job}"), worker.to_string());
        let holds_ms = self.slower(CLAIM_MS).to_string();
        let claimed = client.command(&["SET", &claim, &me, "NX", "PX", &holds_ms])?;
        if claimed == Value::Null {
            return Ok(());
        }
        // The work sometimes takes longer than the claim lives.
        std::thread::sleep(Duration::from_millis(random.below(20) * random.below(3)));
        if !self.finish(client, &claim, &job, &me)? {
            self.lost_claims_count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Finishes a job. Returns whether the job was still this worker's.
    fn finish(&self, client: &mut Client, claim: &str, job: &str, me: &str) -> io::Result<bool> {
        client.command(&["WATCH", claim])?;
        let owner = client.command(&["GET", claim])?;
        let is_open = client.command(&["HEXISTS", "open", job])? == Value::Integer(1);
        if owner != Value::Bulk(me.as_bytes().to_vec()) || !is_open {
            client.command(&["UNWATCH"])?;
            return Ok(false);
        }
        let replies = client.pipeline(&[
            ["MULTI"].as_slice(),
            &["HDEL", "open", job],
            &["HINCRBY", "times", job, "1"],
            &["DEL", claim],
            &["EXEC"],
        ])?;
        Ok(matches!(replies[4], Value::Array(_)))
    }

    /// Puts back jobs that were taken and not finished, if this worker is elected to do so.
    fn reap(&self, client: &mut Client, worker: usize) -> io::Result<()> {
        let me = worker.to_string();
        let holds_ms = self.slower(REAPER_MS).to_string();
        if client.command(&["SET", "reaper", &me, "NX", "PX", &holds_ms])? == Value::Null {
            return Ok(());
        }
        let Value::Array(open) = client.command(&["HGETALL", "open"])? else {
            return Ok(());
        };
        for pair in open.chunks(2) {
            let [Value::Bulk(job), Value::Bulk(priority)] = pair else {
                panic!("HGETALL: {pair:?}");
            };
            let job = String::from_utf8_lossy(job);
            let priority = String::from_utf8_lossy(priority);
            let claimed = client.command(&["EXISTS", &format!("claim:{job}")])?;
            if claimed == Value::Integer(0) {
                client.command(&["ZADD", "jobs", "NX", &priority, &job])?;
            }
        }
        Ok(())
    }

    fn kill_workers(&self) {
        let mut client = self.server.client().unwrap();
        let mut random = Prng::seeded(99);
        while !self.closed.load(Ordering::Relaxed) {
            let id = self.connections[random.index(WORKERS_COUNT)].load(Ordering::Relaxed);
            let killed = client.command(&["CLIENT", "KILL", "ID", &id.to_string()]);
            if killed.unwrap() == Value::Integer(1) {
                self.kills_count.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(self.slower(random.below(8))));
        }
    }
}

/// Returns whether an error means that the connection was closed.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
