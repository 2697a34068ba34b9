//! A migration by replication: the target follows the source, and takes over if requested.

use std::io::Write as _;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::Duration;

use super::Options;
use super::link::{NO_KEY, is_known};
use crate::endpoint::{Address, Session, info_field};
use crate::error::BenchError;

/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(500);
/// Number of checks within which the link has to be up.
const LOOKS_MAX: u32 = 120;
/// How long the source may hold back writes until the target has all of them, in milliseconds.
const HAND_OVER_MS: &str = "10000";
/// Number of checks within which the target, which has all writes, has to take over. No writes are
/// possible meanwhile.
const TAKE_OVER_LOOKS_MAX: u32 = 10;

/// Returns the result, for people or programs.
pub(super) fn told(options: &Options, has_taken_over: bool) -> String {
    let (source, target) = (&options.source.address, &options.target.address);
    if options.is_json {
        let object = serde_json::json!({
            "source": source.to_string(),
            "target": target.to_string(),
            "has_taken_over": has_taken_over,
            "is_good": true,
        });
        return format!("{object}\n");
    }
    match has_taken_over {
        true => format!("{target} has taken over; {source} follows it\n"),
        false => format!(
            "{target} follows {source} and has all that it has. To take over: iolite migrate … --replicate --hand-over, or \
             FAILOVER TO at the source\n"
        ),
    }
}

/// Makes the target follow, and take over if requested. Returns whether it has taken over.
pub(super) fn run(options: &Options) -> Result<bool, BenchError> {
    let Address::Tcp(host, port) = &options.source.address else {
        return Err(BenchError::Usage(
            "--replicate needs a source with a port: a replica cannot use a Unix socket".to_owned(),
        ));
    };
    let mut source = options.source.connect()?;
    let mut target = options.target.connect()?;
    for session in [&mut source, &mut target] {
        let info = session.info("cluster")?;
        if info_field(&info, "cluster_enabled") == Some("1") {
            return Err(BenchError::Usage(
                "--replicate is for servers without cluster mode; without it, keys of clusters are copied".to_owned(),
            ));
        }
    }
    if !options.replaces && target.keys_count()? > 0 {
        return Err(BenchError::Usage(
            "the target has keys, which it loses when it follows; --replace allows that".to_owned(),
        ));
    }
    let_in(&mut target, options.source.credentials.as_ref())?;
    target.demand("REPLICAOF", &["REPLICAOF", host, &port.to_string()])?;
    wait(options, &mut source, &mut target)?;
    if is_known(&source.ask(&["PTTL", NO_KEY, "member"])?) {
        // Without standard error the message is lost.
        let _told = writeln!(
            std::io::stderr(),
            "deadlines of members of sets and sorted sets, if there are any, are left out: the log of the target counts them"
        );
    }
    if !options.hands_over {
        return Ok(false);
    }
    hand_over(options, &mut source, &mut target).map(|()| true)
}

/// Sets the credentials that a server uses when it follows.
fn let_in(
    follower: &mut Session,
    credentials: Option<&(Option<String>, String)>,
) -> Result<(), BenchError> {
    let Some((user, password)) = credentials else {
        return Ok(());
    };
    if let Some(user) = user {
        let words = ["CONFIG", "SET", "masteruser", user];
        follower.demand("CONFIG SET masteruser", &words)?;
    }
    let words = ["CONFIG", "SET", "masterauth", password];
    follower.demand("CONFIG SET masterauth", &words)?;
    Ok(())
}

/// Makes the source hand its role to the target, and follow it.
fn hand_over(
    options: &Options,
    source: &mut Session,
    target: &mut Session,
) -> Result<(), BenchError> {
    let Address::Tcp(host, port) = &options.target.address else {
        return Err(BenchError::Usage(
            "--hand-over needs a target with a port, which the source will follow".to_owned(),
        ));
    };
    let_in(source, options.target.credentials.as_ref())?;
    let (host, port) = known_as(&source.info("replication")?, host, *port);
    order_failover(
        source,
        &["FAILOVER", "TO", &host, &port, "TIMEOUT", HAND_OVER_MS],
    )?;
    let (mut looks, mut is_over) = (0, false);
    while !is_over && looks < TAKE_OVER_LOOKS_MAX {
        let info = target.info("replication")?;
        if info_field(&info, "role") == Some("master") {
            return Ok(());
        }
        let info = source.info("replication")?;
        match info_field(&info, "master_failover_state") {
            Some("waiting-for-sync") => {}
            Some("no-failover") => is_over = true,
            _ => looks += 1,
        }
        std::thread::sleep(PAUSE);
    }
    // Otherwise the source would hold back writes until it reaches the target. It refuses this if
    // it has given up by itself.
    let _aborted = source.ask(&["FAILOVER", "ABORT"])?;
    let info = target.info("replication")?;
    if info_field(&info, "role") == Some("master") {
        return Ok(());
    }
    Err(BenchError::Refused {
        request: "FAILOVER".to_owned(),
        reply: format!(
            "the target did not take over, and the source goes on; it has to reach the target at {host}:{port}"
        ),
    })
}

/// Requests the failover, and repeats it until the source counts the target as online. That begins
/// with an acknowledgement, which may come after the target has all data.
fn order_failover(source: &mut Session, words: &[&str]) -> Result<(), BenchError> {
    let mut looks = 0;
    loop {
        let ordered = source.demand("FAILOVER", words);
        match &ordered {
            Err(BenchError::Refused { reply, .. })
                if reply.contains("not online") && looks < TAKE_OVER_LOOKS_MAX =>
            {
                looks += 1;
            }
            _ => return ordered.map(|_accepted| ()),
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the target's address as the source knows it. FAILOVER requires the address that the
/// replica announced, not a host name.
fn known_as(info: &str, host: &str, port: u16) -> (String, String) {
    let replicas: Vec<(&str, &str)> = info
        .lines()
        .filter_map(|line| line.strip_prefix("slave")?.split_once(":ip="))
        .filter_map(|(_, fields)| {
            let (ip, rest) = fields.split_once(",port=")?;
            Some((ip, rest.split(',').next()?))
        })
        .collect();
    let addresses = (host, port).to_socket_addrs();
    let addresses: Vec<IpAddr> = addresses.map_or_else(
        |_| Vec::new(),
        |found| found.map(|address| address.ip()).collect(),
    );
    let is_it = |(ip, its_port): &&(&str, &str)| {
        let ip_is = *ip == host || ip.parse().is_ok_and(|ip: IpAddr| addresses.contains(&ip));
        ip_is && its_port.parse() == Ok(port)
    };
    let found = match (replicas.iter().find(is_it), replicas.as_slice()) {
        (Some(found), _) => Some(*found),
        // The replica announces another address than the one known on this machine.
        (None, [only]) => Some(*only),
        (None, _) => None,
    };
    let (ip, port) = found.map_or_else(
        || (host.to_owned(), port.to_string()),
        |(ip, port)| (ip.to_owned(), port.to_owned()),
    );
    (ip, port)
}

/// Waits until the target has all data of the source.
fn wait(options: &Options, source: &mut Session, target: &mut Session) -> Result<(), BenchError> {
    let mut looks = 0;
    loop {
        let info = target.info("replication")?;
        let field = |name| info_field(&info, name).unwrap_or_default();
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        let is_up = field("master_link_status") == "up";
        let own = number(field("slave_repl_offset"));
        let behind = {
            let info = source.info("replication")?;
            number(info_field(&info, "master_repl_offset").unwrap_or_default()).saturating_sub(own)
        };
        if is_up && behind == 0 {
            return Ok(());
        }
        let reason = field("master_link_refused_reason");
        if !is_up && !reason.is_empty() {
            return Err(BenchError::Refused {
                request: "REPLICAOF".to_owned(),
                reply: reason.to_owned(),
            });
        }
        looks = if is_up || field("master_sync_in_progress") == "1" {
            0
        } else {
            looks + 1
        };
        if looks > LOOKS_MAX {
            return Err(BenchError::Refused {
                request: "REPLICAOF".to_owned(),
                reply: "the link does not come up; the log of the target says why".to_owned(),
            });
        }
        if !options.is_quiet {
            // Without standard error the message is lost.
            let _told = writeln!(
                std::io::stderr(),
                "link {}, {} behind",
                field("master_link_status"),
                base::memory_size::human(behind)
            );
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_as_the_source_knows_it() {
        let known = |info: &str, host: &str| {
            let (host, port) = known_as(info, host, 7);
            format!("{host}:{port}")
        };
        let two = "role:master\r\nslave0:ip=10.0.0.2,port=7,state=online\r\nslave1:ip=127.0.0.1,port=7,state=online\r\n";
        assert_eq!(known(two, "127.0.0.1"), "127.0.0.1:7");
        assert_eq!(known(two, "localhost"), "127.0.0.1:7");
        assert_eq!(known(two, "10.0.0.3"), "10.0.0.3:7");
        let one = "slave0:ip=10.0.0.2,port=9,state=online\r\n";
        assert_eq!(known(one, "10.0.0.3"), "10.0.0.2:9");
        let named = "slave0:ip=db2.example,port=7\r\nslave1:ip=db3.example,port=7\r\n";
        assert_eq!(known(named, "db3.example"), "db3.example:7");
        assert_eq!(known("", "10.0.0.3"), "10.0.0.3:7");
    }
}
