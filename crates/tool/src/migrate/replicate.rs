//! A migration by replication: the target follows the source, and takes over where that is wanted.

use std::io::Write as _;
use std::time::Duration;

use super::Options;
use crate::endpoint::{Address, Session, info_field};
use crate::error::BenchError;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// The link has to come up within so many looks.
const LOOKS_MAX: u32 = 120;
/// How long the source may hold writes back, in milliseconds.
const HAND_OVER_MS: &str = "10000";

/// What was reached, for people or programs.
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

/// Has the target follow, and take over where that is wanted; whether it has taken over.
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
    if let Some((user, password)) = &options.source.credentials {
        if let Some(user) = user {
            target.demand(
                "CONFIG SET masteruser",
                &["CONFIG", "SET", "masteruser", user],
            )?;
        }
        target.demand(
            "CONFIG SET masterauth",
            &["CONFIG", "SET", "masterauth", password],
        )?;
    }
    target.demand("REPLICAOF", &["REPLICAOF", host, &port.to_string()])?;
    wait(options, &mut source, &mut target)?;
    if !options.hands_over {
        return Ok(false);
    }
    let Address::Tcp(host, port) = &options.target.address else {
        return Err(BenchError::Usage(
            "--hand-over needs a target with a port, which the source will follow".to_owned(),
        ));
    };
    let port = port.to_string();
    source.demand(
        "FAILOVER",
        &["FAILOVER", "TO", host, &port, "TIMEOUT", HAND_OVER_MS],
    )?;
    for _ in 0..LOOKS_MAX {
        let info = target.info("replication")?;
        if info_field(&info, "role") == Some("master") {
            return Ok(true);
        }
        std::thread::sleep(PAUSE);
    }
    Err(BenchError::Refused {
        request: "FAILOVER".to_owned(),
        reply: "the target did not take over; the source goes on".to_owned(),
    })
}

/// Waits until the target has what the source has.
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
            // Without standard error there is nobody to tell.
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
