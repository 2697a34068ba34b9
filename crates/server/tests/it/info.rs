//! Tests of INFO and CLIENT LIST as monitoring reads them: every name exists, in the expected form.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder};
use testkit::target::Target as _;
use testkit::transcript::show;

/// Names that exporters and dashboards read, by section. Names that only a replica, or a primary
/// with replicas, shows are not included: monitoring takes `master_link_status` as the sign of a
/// link, and its absence as the sign of a primary.
const NAMES: &[(&str, &str)] = &[
    (
        "Server",
        "redis_version server_name redis_git_sha1 redis_git_dirty redis_build_id redis_mode os \
         arch_bits monotonic_clock multiplexing_api gcc_version process_id process_supervised \
         run_id tcp_port server_time_usec uptime_in_seconds uptime_in_days hz configured_hz \
         lru_clock executable config_file io_threads_active availability_zone",
    ),
    (
        "Clients",
        "connected_clients cluster_connections maxclients client_recent_max_input_buffer \
         client_recent_max_output_buffer blocked_clients tracking_clients pubsub_clients \
         watching_clients clients_in_timeout_table total_watched_keys total_blocking_keys \
         total_blocking_keys_on_nokey",
    ),
    (
        "Memory",
        "used_memory used_memory_human used_memory_rss used_memory_rss_human used_memory_peak \
         used_memory_peak_human used_memory_peak_perc used_memory_overhead used_memory_startup \
         used_memory_dataset used_memory_dataset_perc used_memory_lua used_memory_vm_eval \
         used_memory_scripts_eval used_memory_vm_functions used_memory_vm_total \
         used_memory_functions used_memory_scripts allocator_allocated allocator_active \
         allocator_resident allocator_muzzy allocator_frag_ratio allocator_frag_bytes \
         allocator_rss_ratio allocator_rss_bytes total_system_memory total_system_memory_human \
         number_of_cached_scripts number_of_functions number_of_libraries maxmemory \
         maxmemory_human maxmemory_policy rss_overhead_ratio rss_overhead_bytes \
         mem_fragmentation_ratio mem_fragmentation_bytes mem_not_counted_for_evict \
         mem_replication_backlog mem_total_replication_buffers mem_clients_slaves \
         mem_clients_normal mem_cluster_links mem_aof_buffer mem_allocator \
         mem_overhead_db_hashtable_rehashing active_defrag_running lazyfree_pending_objects \
         lazyfreed_objects",
    ),
    (
        "Persistence",
        "loading async_loading current_cow_peak current_cow_size current_cow_size_age \
         current_fork_perc current_save_keys_processed current_save_keys_total \
         rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time \
         rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves \
         rdb_last_cow_size rdb_last_load_keys_expired rdb_last_load_keys_loaded aof_enabled \
         aof_rewrite_in_progress aof_rewrite_scheduled aof_last_rewrite_time_sec \
         aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_last_write_status \
         aof_last_cow_size aof_current_size aof_base_size aof_pending_rewrite aof_buffer_length \
         aof_pending_bio_fsync aof_delayed_fsync module_fork_in_progress \
         module_fork_last_cow_size loading_start_time loading_total_bytes \
         loading_rdb_used_mem loading_loaded_bytes \
         loading_loaded_perc loading_eta_seconds",
    ),
    (
        "Stats",
        "total_connections_received total_commands_processed instantaneous_ops_per_sec \
         instantaneous_input_kbps instantaneous_output_kbps instantaneous_input_repl_kbps \
         instantaneous_output_repl_kbps total_net_input_bytes total_net_output_bytes \
         total_net_repl_input_bytes total_net_repl_output_bytes rejected_connections sync_full \
         sync_partial_ok sync_partial_err expired_keys expired_subkeys expired_stale_perc \
         expired_time_cap_reached_count expire_cycle_cpu_milliseconds evicted_keys \
         evicted_clients evicted_scripts total_eviction_exceeded_time \
         current_eviction_exceeded_time keyspace_hits keyspace_misses pubsub_channels \
         pubsub_patterns pubsubshard_channels latest_fork_usec total_forks \
         migrate_cached_sockets slave_expires_tracked_keys active_defrag_hits \
         active_defrag_misses active_defrag_key_hits active_defrag_key_misses \
         tracking_total_keys tracking_total_items tracking_total_prefixes \
         unexpected_error_replies total_error_replies dump_payload_sanitizations \
         total_reads_processed total_writes_processed io_threaded_reads_processed \
         io_threaded_writes_processed client_query_buffer_limit_disconnections \
         client_output_buffer_limit_disconnections reply_buffer_shrinks reply_buffer_expands \
         eventloop_cycles eventloop_duration_sum eventloop_duration_cmd_sum \
         instantaneous_eventloop_cycles_per_sec instantaneous_eventloop_duration_usec \
         acl_access_denied_auth acl_access_denied_cmd acl_access_denied_key \
         acl_access_denied_channel",
    ),
    (
        "Replication",
        "role connected_slaves master_failover_state master_replid master_replid2 \
         master_repl_offset second_repl_offset repl_backlog_active repl_backlog_size \
         repl_backlog_first_byte_offset repl_backlog_histlen",
    ),
    (
        "CPU",
        "used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children \
         used_cpu_sys_main_thread used_cpu_user_main_thread",
    ),
    ("Modules", ""),
    ("Commandstats", ""),
    ("Errorstats", ""),
    ("Latencystats", ""),
    ("Cluster", "cluster_enabled"),
    ("Keyspace", ""),
];

fn start(args: &[&str]) -> Server {
    ServerBuilder::iolite().args(args).start().unwrap()
}

fn text(client: &mut Client, args: &[&str]) -> String {
    match client.command(args).unwrap() {
        Value::Bulk(text) | Value::Verbatim { text, .. } => String::from_utf8(text).unwrap(),
        other => panic!("{args:?} is answered {other:?}"),
    }
}

/// Returns the sections of an INFO, each with its lines.
fn sections(info: &str) -> Vec<(&str, Vec<&str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in info.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            sections.push((name, Vec::new()));
        } else if !line.is_empty() {
            sections.last_mut().unwrap().1.push(line);
        }
    }
    sections
}

fn titles(info: &str) -> Vec<&str> {
    sections(info).into_iter().map(|(title, _)| title).collect()
}

#[test]
fn every_name_that_monitoring_reads_is_there() {
    for threads in ["1", "4"] {
        let server = start(&["--io-threads", threads]);
        let mut client = server.client().unwrap();
        let info = text(&mut client, &["INFO", "everything"]);
        let sections = sections(&info);
        for ((section, names), (title, lines)) in NAMES.iter().zip(&sections) {
            assert_eq!(section, title);
            for name in names.split_whitespace() {
                let is_it = |line: &&&str| line.split(':').next() == Some(name);
                let count = lines.iter().filter(is_it).count();
                assert_eq!(count, 1, "{name} in section {section}");
            }
        }
        assert_eq!(sections.len(), NAMES.len());
    }
}

#[test]
fn names_and_sections_are_those_of_redis_with_later_ones_between() {
    let (ours, oracle) = (start(&[]), ServerBuilder::oracle().start().unwrap());
    let mut ours = ours.client().unwrap();
    let mut oracle = oracle.client().unwrap();
    let (ours, theirs) = (
        text(&mut ours, &["INFO", "everything"]),
        text(&mut oracle, &["INFO", "everything"]),
    );
    for ((title, ours), (their_title, theirs)) in sections(&ours).iter().zip(sections(&theirs)) {
        assert_eq!(*title, their_title);
        let mut ours = ours.iter();
        for line in theirs {
            let name = line.split(':').next().unwrap();
            if name.starts_with("cmdstat_") || name.starts_with("latency_percentiles_") {
                continue;
            }
            let is_next = ours.any(|line| line.split(':').next() == Some(name));
            assert!(is_next, "{name} is missing from {title} or out of order");
        }
    }
}

#[test]
fn sections_are_chosen_as_in_redis() {
    let ours = start(&[]);
    let oracle = ServerBuilder::oracle().start().unwrap();
    let mut clients = [&ours, &oracle].map(|server| server.client().unwrap());
    let cases: &[&[&str]] = &[
        &["INFO"],
        &["INFO", "all"],
        &["INFO", "EVERYTHING"],
        &["INFO", "default"],
        &["INFO", "keyspace", "Server", "clients"],
        &["INFO", "server", "server"],
        &["INFO", "commandstats", "default"],
        &["INFO", "nonsense"],
        &["INFO", "nonsense", "cpu"],
    ];
    for case in cases {
        let [ours, theirs] = clients.each_mut().map(|client| text(client, case));
        assert_eq!(titles(&ours), titles(&theirs), "{case:?}");
        assert_eq!(ours.is_empty(), theirs.is_empty(), "{case:?}");
    }
}

#[test]
fn bits_that_stay_and_nothing_appended_count_as_changes_where_they_do_in_redis() {
    let servers = [start(&[]), ServerBuilder::oracle().start().unwrap()];
    let changes = servers.each_ref().map(|server| {
        let mut client = server.client().unwrap();
        let steps: [&[&str]; 7] = [
            &["SET", "k", "12"],
            &["SETBIT", "k", "0", "0"],
            &["BITFIELD", "k", "SET", "u8", "0", "49"],
            &["SETBIT", "k", "7", "0"],
            &["APPEND", "k", ""],
            &["APPEND", "k", ""],
            &["APPEND", "none", ""],
        ];
        steps.map(|step| {
            client.command(step).unwrap();
            let info = text(&mut client, &["INFO", "persistence"]);
            let is_it = |line: &&str| line.starts_with("rdb_changes_since_last_save:");
            info.lines().find(is_it).unwrap().to_owned()
        })
    });
    assert_eq!(changes[0], changes[1]);
}

#[test]
fn what_was_done_is_counted_and_can_be_forgotten() {
    for threads in ["1", "2", "4"] {
        let server = start(&["--io-threads", threads]);
        let mut clients: Vec<_> = (0..8).map(|_| server.client().unwrap()).collect();
        for client in &mut clients {
            for request in [
                &["SET", "key", "value"][..],
                &["GET", "key"],
                &["GET", "none"],
                &["INCR", "key"],
                &["GET"],
                &["CLIENT", "GETNAME"],
                &["NONSENSE"],
            ] {
                client.command(request).unwrap();
            }
        }
        let client = &mut clients[0];
        let info = text(client, &["INFO", "everything"]);
        for line in [
            "total_commands_processed:40",
            "cmdstat_set:calls=8,rejected_calls=0,failed_calls=0",
            "cmdstat_get:calls=16,rejected_calls=8,failed_calls=0",
            "cmdstat_incr:calls=8,rejected_calls=0,failed_calls=8",
            "cmdstat_client|getname:calls=8,rejected_calls=0,\
             failed_calls=0",
            "errorstat_ERR:count=24",
            "total_error_replies:24",
            "keyspace_hits:8",
            "keyspace_misses:8",
            "connected_clients:8",
            "rdb_changes_since_last_save:8",
        ] {
            // The check that the server is ready sent a PING.
            let with_ping = line.replace("processed:40", "processed:41");
            let found = info
                .lines()
                .map(without_times)
                .any(|one| one == line || one == with_ping);
            assert!(found, "{threads} workers: no {line} in\n{info}");
        }
        client.command(&["CONFIG", "RESETSTAT"]).unwrap();
        let info = text(client, &["INFO", "everything"]);
        for line in [
            "total_commands_processed:1",
            "total_error_replies:0",
            "total_connections_received:0",
            "keyspace_hits:0",
            "rdb_changes_since_last_save:8",
        ] {
            assert!(info.lines().any(|one| one == line), "{threads}: no {line}");
        }
        assert!(!info.contains("cmdstat_set"));
        assert!(!info.contains("errorstat_"));
    }
}

#[test]
fn loops_say_how_long_they_are_busy() {
    let server = start(&["--io-threads", "2"]);
    let mut client = server.client().unwrap();
    let mut figure = |section: &str, name: &str| -> u64 {
        let info = text(&mut client, &["INFO", section]);
        let mut lines = info.lines();
        let value = lines.find_map(|line| line.strip_prefix(&format!("{name}:")));
        value.unwrap().parse().unwrap()
    };
    let duration = figure("stats", "eventloop_duration_sum");
    crate::limits::eventually("the sums grow while the loops do their upkeep", || {
        figure("stats", "eventloop_duration_sum") > duration
            && figure("stats", "eventloop_duration_cmd_sum") > 0
            && figure("stats", "instantaneous_eventloop_cycles_per_sec") > 0
            && figure("debug", "eventloop_duration_cron_sum") > 0
            && figure("debug", "eventloop_duration_max") > 0
    });
    assert!(figure("debug", "eventloop_cmd_per_cycle_max") >= 1);
    assert_eq!(figure("debug", "eventloop_duration_aof_sum"), 0);
    let everything = text(&mut client, &["INFO", "everything"]);
    assert!(!everything.contains("# Debug"));
}

/// Returns a line of `commandstats` without the parts that differ from run to run.
fn without_times(line: &str) -> String {
    let (Some(start), Some(end)) = (line.find("usec="), line.find("rejected_calls=")) else {
        return line.to_owned();
    };
    assert!(line[start..end].contains(",usec_per_call="), "{line}");
    format!("{}{}", &line[..start], &line[end..])
}

#[test]
fn memory_adds_up() {
    let server = start(&["--io-threads", "2"]);
    let mut client = server.client().unwrap();
    let figures = |client: &mut Client| {
        let info = text(client, &["INFO", "memory"]);
        move |name: &str| -> u64 {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(field, _)| *field == name).unwrap().1;
            found.parse().unwrap()
        }
    };
    let before = figures(&mut client);
    assert!(before("used_memory") <= before("used_memory_rss"));
    assert!(before("used_memory_startup") > 0);
    let value = "x".repeat(1000);
    for number in 0..20_000 {
        let key = format!("key:{number}");
        client.command(&["SET", &key, &value]).unwrap();
    }
    let after = figures(&mut client);
    let grown = after("used_memory") - before("used_memory");
    assert!((20_000_000..30_000_000).contains(&grown), "{grown}");
    assert!(after("used_memory_dataset") >= 20_000_000);
    assert!(after("used_memory_rss") >= after("used_memory_dataset"));
    assert!(after("used_memory_peak") >= after("used_memory"));
    assert_eq!(
        after("used_memory_overhead") + after("used_memory_dataset"),
        after("used_memory")
    );
    client.command(&["FLUSHALL"]).unwrap();
    crate::limits::eventually("what was flushed is given back", || {
        let now = figures(&mut client);
        now("used_memory") < before("used_memory") + 2_000_000
            && now("used_memory_peak") >= after("used_memory")
    });
}

/// The fields of CLIENT LIST that Redis 7.0 does not have.
const LATER_FIELDS: &[&str] = &[
    "watch",
    "lib-name",
    "lib-ver",
    "io-thread",
    "tot-net-in",
    "tot-net-out",
    "tot-cmds",
];

fn field_names(line: &str) -> Vec<&str> {
    let fields = line.split_whitespace();
    fields
        .map(|field| field.split('=').next().unwrap())
        .collect()
}

#[test]
fn a_client_is_listed_with_the_fields_of_redis_and_later_ones() {
    let ours = start(&[]);
    let oracle = ServerBuilder::oracle().start().unwrap();
    for args in [&["CLIENT", "LIST"], &["CLIENT", "INFO"]] {
        let [ours, theirs] = [&ours, &oracle].map(|server| {
            let mut client = server.connect().unwrap();
            text(&mut client, args)
        });
        let (ours, theirs) = (field_names(&ours), field_names(&theirs));
        let kept: Vec<&str> = ours
            .iter()
            .copied()
            .filter(|name| !LATER_FIELDS.contains(name))
            .collect();
        assert_eq!(kept, theirs);
        let later: BTreeSet<_> = ours.iter().filter(|name| !theirs.contains(name)).collect();
        assert_eq!(later, LATER_FIELDS.iter().collect());
    }
}

#[test]
fn the_request_that_asks_for_the_list_does_not_wait_any_more() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    for args in [["CLIENT", "LIST"], ["CLIENT", "INFO"]] {
        let line = text(&mut client, &args);
        assert!(
            line.contains(" multi=-1 watch=0 qbuf=0 qbuf-free=0 "),
            "{line}"
        );
    }
}

#[test]
fn who_was_told_to_go_is_not_counted_or_listed_any_more() {
    let server = start(&["--threads", "4"]);
    let mut client = server.client().unwrap();
    client
        .command(&[
            "ACL", "SETUSER", "dummy", "on", "nopass", "+ping", "+client",
        ])
        .unwrap();
    for _ in 0..20 {
        let mut others: Vec<_> = (0..8).map(|_| server.client().unwrap()).collect();
        for other in &mut others {
            other.command(&["AUTH", "dummy", ""]).unwrap();
        }
        let list = text(&mut client, &["CLIENT", "LIST", "USER", "dummy"]);
        assert_eq!(list.lines().count(), 8, "{list}");
        let killed = client
            .command(&["CLIENT", "KILL", "USER", "dummy"])
            .unwrap();
        assert_eq!(killed, Value::Integer(8));
        let counted = text(&mut client, &["INFO", "clients"]);
        assert!(counted.contains("connected_clients:1\r\n"), "{counted}");
        let again = client
            .command(&["CLIENT", "KILL", "SKIPME", "yes"])
            .unwrap();
        assert_eq!(again, Value::Integer(0));
    }
    let unknown = client
        .command(&["CLIENT", "KILL", "USER", "nobody"])
        .unwrap();
    assert!(show(&unknown).contains("ERR No such user 'nobody'"));
}

#[test]
fn a_client_is_listed_with_what_it_did() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    client.command(&["SELECT", "3"]).unwrap();
    client.command(&["CLIENT", "SETNAME", "somebody"]).unwrap();
    client.command(&["CLIENT", "NO-TOUCH", "on"]).unwrap();
    client.command(&["CLIENT", "NO-EVICT", "on"]).unwrap();
    let line = text(&mut client, &["CLIENT", "INFO"]);
    for field in [
        "name=somebody",
        "flags=UeT",
        "db=3",
        "events=r",
        "cmd=client|info",
        "user=default",
        "resp=2",
        "tot-cmds=4",
    ] {
        let found = line.split_whitespace().any(|one| one == field);
        assert!(found, "no {field} in {line}");
    }
}

#[test]
fn a_request_that_waits_counts_once_it_is_answered() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let mut waiting = server.client().unwrap();
    waiting.command(&["CLIENT", "SETNAME", "waits"]).unwrap();
    waiting.send(&["BLPOP", "list", "0"]).unwrap();
    let patience = Patience::of(Duration::from_secs(60));
    let mut line_once = |is_to_wait: bool| loop {
        let list = text(&mut client, &["CLIENT", "LIST"]);
        let found = list.split("id=").find(|line| line.contains("name=waits"));
        let waits = |line: &&str| {
            line.split("flags=")
                .nth(1)
                .is_some_and(|it| it.starts_with('b'))
        };
        if let Some(line) = found.filter(|line| waits(line) == is_to_wait) {
            return line.to_owned();
        }
        assert!(patience.lasts(), "{is_to_wait}: {list}");
    };
    let line = line_once(true);
    assert!(line.contains("tot-cmds=1"), "{line}");
    let mut other = server.client().unwrap();
    other.command(&["RPUSH", "list", "a"]).unwrap();
    waiting.receive().unwrap();
    let line = line_once(false);
    assert!(line.contains("tot-cmds=2"), "{line}");
    let script = "redis.call('PING') return redis.call('TIME')";
    waiting.command(&["EVAL", script, "0"]).unwrap();
    let line = line_once(false);
    assert!(line.contains("tot-cmds=5"), "{line}");
}

#[test]
fn the_average_time_to_live_is_that_of_keys_that_have_one() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    client.command(&["SET", "for good", "1"]).unwrap();
    client
        .command(&["SET", "short", "1", "EX", "1000"])
        .unwrap();
    client.command(&["SET", "long", "1", "EX", "3000"]).unwrap();
    let keyspace = show(&client.command(&["INFO", "keyspace"]).unwrap());
    let average_ms = keyspace.split_once("keys=3,expires=2,avg_ttl=").unwrap().1;
    let digits = average_ms.split(|c: char| !c.is_ascii_digit()).next();
    let average_ms: u64 = digits.unwrap().parse().unwrap();
    assert!(
        (1_800_000..=2_000_000).contains(&average_ms),
        "{average_ms}"
    );
}

/// Returns the names in the first column of the table below a heading of the reference.
fn listed(heading: &str) -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/info.md");
    let text = std::fs::read_to_string(path).unwrap();
    let part = text.split("\n## ").find(|part| part.starts_with(heading));
    let rows = part
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned())
        .collect()
}

/// The fields that this test does not see change, and the test that does.
const MOVED_ELSEWHERE: &[(&str, &str)] = &[
    // Records are held only for moments, so it is chance whether one is held when INFO runs.
    (
        "current_cow_peak",
        "rdb_last_cow_size, which keeps the most",
    ),
    ("current_cow_size", "the same"),
    ("loading", "loading::clients_are_told_to_wait_and_how_long"),
    ("loading_start_time", "the same"),
    ("loading_total_bytes", "the same"),
    ("loading_loaded_bytes", "the same"),
    ("loading_loaded_perc", "the same"),
    ("loading_eta_seconds", "the same"),
    ("rdb_last_load_keys_expired", "the same"),
    ("rdb_last_load_keys_loaded", "the same"),
    ("aof_pending_rewrite", "over before it is asked for"),
    ("aof_rewrite_scheduled", "over before it is asked for"),
    ("lazyfree_pending_objects", "over before it is asked for"),
    ("lazyfreed_objects", "memory::"),
    ("active_defrag_running", "over before it is asked for"),
    ("current_active_defrag_time", "over before it is asked for"),
    ("total_active_defrag_time", "counters::a_span_adds_up"),
    ("active_defrag_misses", "memory::"),
    ("active_defrag_key_misses", "memory::"),
    (
        "mem_not_counted_for_evict",
        "needs a log beyond a quarter of the limit",
    ),
    ("rdb_current_bgsave_time_sec", "takes seconds"),
    ("rdb_last_bgsave_time_sec", "takes seconds"),
    ("aof_current_rewrite_time_sec", "takes seconds"),
    ("aof_last_rewrite_time_sec", "takes seconds"),
    ("aof_rewrites_consecutive_failures", "full_disk::"),
    ("checkpoint_failures", "full_disk::"),
    ("uptime_in_days", "takes a day"),
    ("clients_in_timeout_table", "blocking::"),
    ("mem_replication_backlog", "replication::"),
    ("mem_total_replication_buffers", "replication::"),
    ("total_net_repl_input_bytes", "replication::"),
    ("total_net_repl_output_bytes", "replication::"),
    ("instantaneous_input_repl_kbps", "replication::"),
    ("instantaneous_output_repl_kbps", "replication::"),
    ("sync_full", "replication::"),
    ("sync_partial_ok", "replication::"),
    ("sync_partial_err", "replication::"),
    ("connected_slaves", "replication::"),
    ("master_replid2", "replication::"),
    ("repl_backlog_active", "replication::"),
    ("repl_backlog_first_byte_offset", "replication::"),
    ("repl_backlog_histlen", "replication::"),
];

/// The numeric fields, and whether any query has seen them nonzero.
#[derive(Default)]
struct Seen(std::collections::BTreeMap<String, bool>);

impl Seen {
    fn look(&mut self, client: &mut Client) {
        for section in ["everything", "debug"] {
            for line in text(client, &["INFO", section]).lines() {
                let Some((name, value)) = line.split_once(':') else {
                    continue;
                };
                let is_of_many = ["cmdstat_", "errorstat_", "latency_", "db0"];
                if is_of_many.iter().any(|prefix| name.starts_with(prefix)) {
                    continue;
                }
                if let Ok(number) = value.trim_end_matches('%').parse::<f64>() {
                    *self.0.entry(name.to_owned()).or_default() |= number != 0.0;
                }
            }
        }
    }
}

#[test]
fn every_field_measures_something_or_is_told_of() {
    let mut seen = Seen::default();
    busy_commands(&mut seen);
    limits_reached(&mut seen);
    files_written(&mut seen);
    let stays_zero = listed("Fields that stay 0");
    let elsewhere: BTreeSet<String> = MOVED_ELSEWHERE
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let of = |moves: bool| {
        let fields = seen.0.iter().filter(move |field| *field.1 == moves);
        fields.map(|(name, _)| name.clone())
    };
    let silent: Vec<String> = of(false)
        .filter(|name| !stays_zero.contains(name) && !elsewhere.contains(name))
        .collect();
    let wrong: Vec<String> = of(true).filter(|name| stays_zero.contains(name)).collect();
    assert!(
        silent.is_empty(),
        "stay 0, and the reference does not say why: {silent:?}"
    );
    assert!(wrong.is_empty(), "move, and are listed as 0: {wrong:?}");
    let unknown = |names: &BTreeSet<String>| -> Vec<String> {
        let names = names.iter().filter(|name| !seen.0.contains_key(*name));
        names.cloned().collect()
    };
    assert_eq!(unknown(&stays_zero), Vec::<String>::new());
    assert_eq!(unknown(&elsewhere), Vec::<String>::new());
}

fn all(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        client.command(&words).unwrap();
    }
}

/// Runs commands of every kind, clients that wait, listen and watch, scripts, and expiring keys.
fn busy_commands(seen: &mut Seen) {
    let args = ["--threads", "2", "--enable-debug-command", "yes"];
    let server = ServerBuilder::iolite().tcp().args(&args).start().unwrap();
    let mut client = server.client().unwrap();
    let mut others: Vec<Client> = (0..8).map(|_| server.client().unwrap()).collect();
    all(
        &mut client,
        &[
            "SET k v",
            "GET k",
            "GET none",
            "GET",
            "ACL SETUSER u on nopass +get ~a &a",
            "ACL SETUSER v on >p +@all ~a &a",
            "SET f v",
            "DEBUG POPULATE 20000 e 10",
            "XGROUP CREATE s g $ MKSTREAM",
            "CONFIG SET latency-monitor-threshold 1",
        ],
    );
    let Value::Bulk(dumped) = client.command(&["DUMP", "f"]).unwrap() else {
        panic!("a payload is text");
    };
    client
        .command(&[b"RESTORE", &b"f"[..], b"0", &dumped, b"REPLACE"])
        .unwrap();
    who_waits(&mut others);
    scripts_and_deadlines(&mut client);
    let _slow = who_is_slow(&server, &mut client);
    let mut browser = server.connect().unwrap();
    browser.send_raw(b"POST / HTTP/1.1\r\n\r\n").unwrap();
    crate::limits::eventually("keys and fields expire, and clients wait", || {
        seen.look(&mut client);
        let is_one = |name: &str| seen.0.get(name).copied().unwrap_or_default();
        [
            "expired_keys",
            "expired_subkeys",
            "blocked_clients",
            "total_blocking_keys_on_nokey",
            "http_requests_refused",
            "client_recent_max_input_buffer",
            "client_recent_max_output_buffer",
            "expire_cycle_cpu_milliseconds",
            "uptime_in_seconds",
            "instantaneous_ops_per_sec",
        ]
        .into_iter()
        .all(is_one)
    });
    let info = text(&mut client, &["INFO", "keyspace"]);
    assert!(info.contains(",subexpiry=1\r\n"), "{info}");
    // The log reports it a moment after it was counted.
    crate::limits::eventually("the log tells of HTTP", || server.log().contains("of HTTP"));
}

/// Runs clients that are denied something, listen, watch and wait.
fn who_waits(others: &mut [Client]) {
    all(&mut others[0], &["AUTH u x", "SET a b", "AUTH u", "GET b"]);
    all(&mut others[1], &["AUTH v wrong", "AUTH v p", "PUBLISH b c"]);
    all(
        &mut others[2],
        &["CLIENT TRACKING ON BCAST PREFIX p", "SUBSCRIBE x"],
    );
    others[3].hello3().unwrap();
    all(
        &mut others[3],
        &[
            "CLIENT TRACKING ON",
            "GET k",
            "PSUBSCRIBE x*",
            "SSUBSCRIBE y",
        ],
    );
    all(&mut others[4], &["WATCH k"]);
    others[5].send(&["BLPOP", "l", "100"]).unwrap();
    others[6]
        .send(&[
            "XREADGROUP",
            "GROUP",
            "g",
            "c",
            "BLOCK",
            "0",
            "STREAMS",
            "s",
            ">",
        ])
        .unwrap();
}

/// Runs more scripts than are cached, a function, and expiring keys and fields.
fn scripts_and_deadlines(client: &mut Client) {
    for number in 0..600 {
        let script = format!("return {number}");
        client.command(&["EVAL", &script, "0"]).unwrap();
    }
    client
        .command(&[
            "FUNCTION",
            "LOAD",
            "#!lua name=l\nredis.register_function('fn', function() return 1 end)",
        ])
        .unwrap();
    for number in 0..20_000 {
        let key = format!("e:{number}");
        client.send(&["PEXPIRE", &key, "1"]).unwrap();
    }
    for _ in 0..20_000 {
        client.receive().unwrap();
    }
    all(
        client,
        &[
            "HSET h a 1 b 2",
            "HPEXPIRE h 1 FIELDS 1 a",
            "HEXPIRE h 100 FIELDS 1 b",
        ],
    );
}

/// Returns a client that has sent half of a request, and one that reads nothing.
fn who_is_slow(server: &Server, client: &mut Client) -> [Client; 2] {
    let mut slow = [(); 2].map(|()| server.client().unwrap());
    slow[0]
        .send_raw(b"*2\r\n$3\r\nGET\r\n$100\r\nhalf")
        .unwrap();
    let long = "x".repeat(1 << 20);
    client.command(&["SET", "long", &long]).unwrap();
    for _ in 0..8 {
        slow[1].send(&["GET", "long"]).unwrap();
    }
    slow
}

/// Exceeds the limits of clients and data.
fn limits_reached(seen: &mut Seen) {
    let server = start(&["--threads", "1", "--maxclients", "6", "--save", ""]);
    let mut client = server.client().unwrap();
    let mut crowd = Vec::new();
    for _ in 0..10 {
        if let Ok(mut other) = server.connect() {
            let _refused = other.command(&["PING"]);
            crowd.push(other);
        }
    }
    seen.look(&mut client);
    drop(crowd);
    all(
        &mut client,
        &[
            "CONFIG SET maxclients 100",
            "CONFIG SET client-query-buffer-limit 1mb",
        ],
    );
    let long = "x".repeat(3 << 20);
    for limit in [
        &["CONFIG", "SET", "client-query-buffer-limit", "1mb"][..],
        &["CONFIG", "SET", "client-query-buffer-limit", "1gb"],
        &["SET", "long", &long],
        &[
            "CONFIG",
            "SET",
            "client-output-buffer-limit",
            "normal 1mb 0 0",
        ],
    ] {
        let _maybe = client.command(limit);
        let mut other = server.connect().unwrap();
        let _closed = other.command(&["SET", "q", &long]);
        let mut other = server.connect().unwrap();
        let _closed = other.command(&["GET", "long"]);
    }
    all(&mut client, &["CONFIG SET maxmemory-clients 1mb"]);
    let mut other = server.connect().unwrap();
    let _closed = other.command(&["SET", "q", &long]);
    all(
        &mut client,
        &["CONFIG SET maxmemory-clients 0", "CONFIG SET maxmemory 1"],
    );
    crate::limits::eventually("too much memory is held for a while", || {
        seen.look(&mut client);
        seen.0["current_eviction_exceeded_time"]
    });
    all(&mut client, &["CONFIG SET maxmemory-policy allkeys-random"]);
    crate::limits::eventually("keys are evicted", || {
        seen.look(&mut client);
        seen.0["evicted_keys"]
    });
}

/// Makes checkpoints and a log while keys are written.
fn files_written(seen: &mut Seen) {
    let server = start(&[
        "--threads",
        "1",
        "--enable-debug-command",
        "yes",
        "--appendonly",
        "yes",
    ]);
    let mut client = server.client().unwrap();
    all(
        &mut client,
        &[
            "DEBUG POPULATE 10000 k 100",
            "CONFIG SET rdb-key-save-delay 500",
            "BGSAVE",
            "BGREWRITEAOF",
        ],
    );
    seen.look(&mut client);
    for number in 0..2000 {
        let key = format!("k:{number}");
        client.command(&["SET", &key, "changed"]).unwrap();
        if number % 500 == 0 {
            seen.look(&mut client);
        }
    }
    all(&mut client, &["BGREWRITEAOF"]);
    seen.look(&mut client);
    all(&mut client, &["CONFIG SET rdb-key-save-delay 20"]);
    crate::limits::eventually("both are written", || {
        seen.look(&mut client);
        seen.0["rdb_saves"] && seen.0["aof_rewrites"]
    });
    for number in 0..10_000 {
        let key = format!("k:{number}");
        if number % 10 > 0 {
            client.command(&["DEL", &key]).unwrap();
        }
    }
    all(&mut client, &["MEMORY PURGE"]);
    crate::limits::eventually("records are moved", || {
        seen.look(&mut client);
        seen.0["active_defrag_hits"]
    });
}
