//! Tests of the whole server: the built binary, or all rooms in one process.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod access;
mod aof_files;
mod applications;
mod aside;
mod atomicity;
mod begun_aside;
mod bench;
mod blocking;
#[cfg(feature = "tls")]
mod certificates;
mod churn;
mod cli_beside;
mod cli_debugger;
mod clients;
mod cluster_mode;
mod config_oracle;
#[cfg(feature = "http")]
mod console;
mod differential;
mod digests;
mod dump;
mod duty;
mod examples;
mod fairness;
mod flipped_bytes;
mod forwarding;
mod full_disk;
mod hostile;
mod idle_clients;
mod info;
mod job_queue;
mod kept_replies;
mod large_files;
mod large_values;
mod ledger;
mod lifecycle;
mod limits;
mod linearizability;
mod loading;
mod logged;
mod memcached;
mod memory;
mod migrated_deadlines;
mod migrations;
mod notifications;
mod own_link;
mod payloads;
#[cfg(feature = "planted")]
mod planted;
mod point_in_time;
mod power_cuts;
mod programs;
mod pubsub;
mod rdb_beside;
mod rdb_files;
mod recovery;
mod replay;
mod replication;
mod saving;
mod scripts;
mod shipped;
mod simulation;
mod slot_moves;
mod slot_stats;
mod small_log;
mod stalls;
mod start;
mod tier;
mod tier_dictionaries;
mod tier_faults;
mod time;
#[cfg(feature = "tls")]
mod tls;
mod tools;
mod tracking;
mod transactions;
mod transcripts;
mod turns;
mod upgrade;
