//! Threads, sessions, configuration and wiring: the iolite binary.

pub mod allocator;
pub mod announcer;
pub mod aside;
mod asker;
pub mod audit;
pub mod banner;
pub mod cgroup;
pub mod cli;
pub mod client_cache;
pub mod client_memory;
pub mod clients;
pub mod cluster_mode;
pub mod cluster_tool;
pub mod config;
pub mod counters;
pub mod daemon;
mod defragmenter;
pub mod doctor;
pub mod fence;
pub mod forward;
pub mod group;
mod host_names;
pub mod identity;
pub mod in_process;
mod incoming;
pub mod job;
pub mod keeping;
pub mod limits;
pub mod link;
pub mod listeners;
pub mod log;
pub mod mail;
#[cfg(feature = "http")]
mod management;
pub(crate) mod migration;
pub mod node;
pub mod notifications;
mod offloaded;
mod oom_score;
pub mod open_files;
pub mod planted;
mod poll;
pub mod port;
pub mod process;
mod program_pages;
pub mod pubsub;
#[cfg_attr(
    not(feature = "cluster"),
    allow(dead_code, reason = "nobody is asked without a group")
)]
mod replica_reads;
pub mod replication;
mod rest;
mod rounds;
pub mod runtime;
mod sentinel;
pub mod statistics;
mod syslog;
mod system_check;
mod tier;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
pub mod tls;
pub mod users;
mod waiting_threads;
pub mod worker;
