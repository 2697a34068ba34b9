//! Faults after which another node becomes the primary, or the primary returns with nothing: which
//! node keeps what, and what is reported about discarded writes.

use super::*;

/// Returns the number of expired keys, whose removals are writes of the primary, too.
fn expired(node: &Node) -> u64 {
    let info = run(&mut node.client(), "INFO stats");
    let Value::Bulk(text) = info else {
        panic!("{info:?}")
    };
    let text = String::from_utf8(text).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("expired_keys:"));
    line.unwrap().parse().unwrap()
}

/// Makes writes, each of which is one step and changes something.
fn write_some(node: &Node, random: &mut Prng, count: u64) {
    let mut client = node.client();
    let good = |reply: &Value| assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
    for number in 0..count {
        let key = format!("lost:{number}");
        match random.below(5) {
            0 => {
                for line in ["MULTI", "SET lost:a 1", "RPUSH lost:list 1", "EXEC"] {
                    good(&run(&mut client, line));
                }
            }
            1 => {
                let script = "redis.call('INCR', KEYS[1]) redis.call('INCR', KEYS[2])";
                let reply = client.command(&["EVAL", script, "2", "lost:b", "lost:c"]);
                good(&reply.unwrap());
            }
            2 => good(
                &client
                    .command(&["MSET", &key, "1", "lost:d", &key])
                    .unwrap(),
            ),
            3 => good(&client.command(&["SET", &key, &"v".repeat(10_000)]).unwrap()),
            _ => good(&client.command(&["RPUSH", "lost:list", &key]).unwrap()),
        }
    }
}

impl World {
    /// Makes a replica take the office, and all followers of the old primary follow it.
    fn promote(&mut self, new: usize) {
        let old = self.primary;
        self.order(new, "REPLICAOF NO ONE");
        self.until("the replica is a primary", || {
            self.node(new).field("role") == "master"
        });
        self.primary = new;
        self.places[new].follows = None;
        self.load.turn_to(self.node(new).port, false);
        for at in (0..PLACES).filter(|at| ![old, new].contains(at)) {
            if self.places[at].follows == Some(old) {
                self.follow(at, new);
            } else if self.places[at].follows == Some(new) {
                // Old and new may have begun a term of the same number: an operator decides that
                // the new one's data counts.
                let port = self.places[new].clients.port();
                self.order(at, &format!("REPLICAOF 127.0.0.1 {port} FORCE"));
            }
        }
        self.redis_follows();
    }

    /// The primary is killed, and the replica that takes the office may have less.
    pub(super) fn kill_and_promote(&mut self) {
        let (old, new) = (self.primary, self.a_replica());
        self.note(format!("kill {old}, promote {new}"));
        self.places[old].kill();
        let acknowledged = self.load.acknowledged();
        let told = self.places[old].reported().len();
        self.promote(new);
        let has = counters(self.node(new));
        // Counters written at the new primary since then may be higher.
        let lost = (0..WRITERS).map(|writer| acknowledged[writer].saturating_sub(has[writer]));
        let lost: u64 = lost.sum();
        self.sleep(300);
        self.places[old].follows = Some(new);
        self.start(old);
        self.until("it is heard or refused", || {
            let state = self.node(old).field("iolite_state");
            state == "connected" || state == "refused"
        });
        if self.node(old).field("iolite_state") == "refused" {
            // Both may have begun a term of the same number: an operator has to decide whose data
            // counts.
            let port = self.places[new].clients.port();
            self.order(old, &format!("REPLICAOF 127.0.0.1 {port} FORCE"));
        }
        self.settle();
        let reported: u64 = self.places[old].reported()[told..].iter().sum();
        if reported < lost && self.places[old].told_of_more() == 0 {
            self.fail(&format!("{lost} writes were lost, {reported} were told of"));
        }
    }

    /// An isolated primary continues while another node has its office, and then follows that node.
    pub(super) fn depose(&mut self) {
        self.settle();
        let (old, new) = (self.primary, self.a_replica());
        let (count, saves) = (self.random.below(40), self.below(4));
        let (restarts, is_older) = (self.below(3) == 0, self.below(2) == 0);
        let by_start = self.below(2) == 0;
        self.note(format!(
            "depose {old} for {new}: {count} writes, saves {saves}, restarts {restarts}, older {is_older}, by a start {by_start}"
        ));
        self.places[old].shut(true);
        self.promote(new);
        let before = expired(self.node(old));
        if saves == 1 {
            let _saved = run(&mut self.node(old).client(), "SAVE");
        }
        write_some(&self.places[old].node, &mut self.random, count);
        if saves == 2 {
            let _saved = run(&mut self.node(old).client(), "SAVE");
        }
        let mut gone = expired(self.node(old)) - before;
        if restarts {
            self.places[old].kill();
            self.start(old);
        }
        self.load.begin();
        self.sleep(400);
        if is_older {
            self.follow_who_is_older(old, new);
        }
        let told = self.places[old].reported().len();
        let told_of_more = self.places[old].told_of_more();
        gone += expired(self.node(old));
        if !restarts {
            gone -= before;
        }
        self.places[old].heal();
        self.places[old].follows = Some(new);
        if by_start {
            self.places[old].kill();
            self.start(old);
            if restarts {
                self.is_refused(old);
            }
        }
        if restarts && by_start {
            // A node that follows already does not start anew without FORCE.
            let port = self.places[new].clients.port();
            self.order(old, &format!("REPLICAOF 127.0.0.1 {port} FORCE"));
        } else if !by_start {
            self.follow(old, new);
        }
        self.settle();
        let reported = self.places[old].reported()[told..].to_vec();
        let sum: u64 = reported.iter().sum();
        // If no replica needs the log, it may hold less than what is discarded.
        let has_more = self.places[old].told_of_more() > told_of_more;
        if (sum < count && !has_more) || sum > count + gone + 1 || reported.len() > 1 {
            self.fail(&format!(
                "{count} writes were lost and {gone} keys had expired, told of: {reported:?}"
            ));
        }
    }

    /// A replica of the new primary is started as a replica of the deposed one: it keeps what it
    /// has.
    fn follow_who_is_older(&mut self, old: usize, new: usize) {
        self.load.end();
        let others: Vec<usize> = (0..PLACES).filter(|at| ![old, new].contains(at)).collect();
        let at = others[self.below(2)];
        self.note(format!("{at} is started as a replica of {old}"));
        // With this write, the replica has something of the new reign.
        let mark = format!("SET mark {}", self.done.len());
        self.order(new, &mark);
        self.until("it has all of the new primary", || {
            self.node(at).field("master_link_status") == "up"
                && self.node(at).digest() == self.node(new).digest()
        });
        let follows = self.places[at].follows;
        self.places[at].kill();
        self.places[at].follows = Some(old);
        self.places[old].shut(false);
        self.start(at);
        self.is_refused(at);
        if self.node(at).digest() != self.node(new).digest() {
            self.fail("an older primary took something away");
        }
        self.places[old].shut(true);
        self.places[at].kill();
        self.places[at].follows = follows;
        self.start(at);
        self.load.begin();
    }

    fn is_primary(&self, at: usize) -> bool {
        self.node(at).field("role") == "master"
    }

    fn is_refused(&self, at: usize) {
        self.until(&format!("{at} is refused"), || {
            self.node(at).field("iolite_state") == "refused"
        });
    }

    /// Hands the office over. Something may happen meanwhile.
    pub(super) fn fail_over(&mut self) {
        let old = self.primary;
        let direct = self.replicas().into_iter();
        let direct: Vec<usize> = direct
            .filter(|at| self.places[*at].follows == Some(old))
            .collect();
        let Some(&new) = direct.get(self.below(direct.len().max(1) as u64)) else {
            return;
        };
        let meanwhile = self.below(8);
        self.note(format!(
            "fail over from {old} to {new}, meanwhile {meanwhile}"
        ));
        let port = self.places[new].clients.port();
        let told = self.places[new]
            .said()
            .matches("the primary handed over")
            .count();
        let order = format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 5000");
        let begun = run(&mut self.node(old).client(), &order);
        if begun != Value::Simple(OK.to_vec()) {
            return self.note(format!("{begun:?}"));
        }
        self.disturb(old, new, meanwhile);
        self.until("the failover is over", || {
            self.node(old).field("master_failover_state") == "no-failover"
        });
        let took = self.places[new]
            .said()
            .matches("the primary handed over")
            .count()
            > told;
        if took && self.is_primary(old) {
            self.fail("two have the office");
        }
        match (self.is_primary(old), took) {
            (true, _) => return,
            // The chosen successor did not get the message: only an operator can decide.
            (false, false) => {
                self.note("nobody took over");
                self.promote(old);
                self.places[old].follows = None;
                return;
            }
            (false, true) => {}
        }
        if !self.is_primary(new) {
            self.note("it was killed in office");
            self.order(new, "REPLICAOF NO ONE");
        }
        self.until("the replica is a primary", || self.is_primary(new));
        self.primary = new;
        self.places[new].follows = None;
        self.places[old].follows = Some(new);
        self.load.turn_to(self.node(new).port, true);
        self.redis_follows();
    }

    /// Causes a fault while the office is handed over.
    fn disturb(&mut self, old: usize, new: usize, what: usize) {
        self.sleep(30);
        match what {
            0 => {
                self.places[new].kill();
                self.start(new);
            }
            1 => self.places[old].links.cut(),
            2 => {
                self.node(new).signal("-STOP");
                self.sleep(1_000);
                self.node(new).signal("-CONT");
            }
            3 => {
                self.places[old].links.hold(true);
                self.sleep(4_500);
                self.places[old].links.hold(false);
            }
            _ => {}
        }
    }

    /// The primary returns with nothing, or with other data: no replica takes that.
    pub(super) fn begin_empty(&mut self) {
        self.settle();
        let (at, count) = (self.primary, self.random.below(2) * 20);
        self.note(format!("{at} begins with nothing, {count} writes"));
        // Keys that expire soon are gone before the comparison.
        std::thread::sleep(Duration::from_millis(400));
        let before = self.node(at).digest();
        self.places[at].kill();
        let (kept, away) = (
            self.places[at].kept(),
            self.places[at].node.data.join("away"),
        );
        std::fs::rename(&kept, &away).unwrap();
        self.start(at);
        write_some(&self.places[at].node, &mut self.random, count);
        for replica in self.replicas() {
            if self.places[replica].follows == Some(at) {
                self.is_refused(replica);
            }
        }
        self.sleep(300);
        for replica in self.replicas() {
            if self.node(replica).digest() != before {
                self.fail(&format!(
                    "a primary that begins anew took something from {replica}"
                ));
            }
        }
        self.places[at].kill();
        std::fs::remove_dir_all(&kept).unwrap();
        std::fs::rename(&away, &kept).unwrap();
        self.start(at);
    }
}
