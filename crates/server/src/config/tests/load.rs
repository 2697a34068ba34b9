//! Files and the environment, and the reasons for refusing them.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::super::{Loader, OutputLimit};
use super::{load, variables};

/// A directory that is removed with its test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

fn fatal(at: &str, line: &str, reason: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "\n*** FATAL CONFIG FILE ERROR (Iolite {version}) ***\nReading the {at}\n>>> '{line}'\n{reason}"
    )
}

fn read_environment(pairs: &[(&str, &str)]) -> Result<Loader, String> {
    let mut loader = Loader::new();
    let read = loader.read_environment(variables(pairs));
    read.map(|()| loader).map_err(|error| error.to_string())
}

#[test]
fn comments_blanks_quotes_and_letter_case_are_read_as_redis_reads_them() {
    let settings = load(
        "# comment\n\n   \t\r\n  PORT\t7000 \r\n\
         RequirePass 'it\\'s'\n\
         logfile \"\\x41\\tb\"\n\
         pidfile \"\"\n",
    );
    let config = settings.unwrap().config();
    assert_eq!(config.port, 7000);
    assert_eq!(config.password.as_deref(), Some(b"it's".as_slice()));
    assert_eq!(config.log_file.as_deref(), Some(Path::new("A\tb")));
    assert_eq!(config.pid_file, None);
}

#[test]
fn the_last_value_wins_and_classes_of_output_limits_gather() {
    let config = load(
        "port 1\nbind 10.0.0.1 10.0.0.2\n\
         client-output-buffer-limit pubsub 1 2 3\n\
         port 2\nbind \"10.0.0.3 10.0.0.4\"\n\
         client-output-buffer-limit slave 4 5 6\n",
    )
    .unwrap()
    .config();
    assert_eq!(config.port, 2);
    let hosts: Vec<&str> = config
        .bind
        .iter()
        .map(|address| address.host.as_str())
        .collect();
    assert_eq!(hosts, ["10.0.0.3", "10.0.0.4"]);
    let limit = |hard_bytes, soft_bytes, soft_s| OutputLimit {
        hard_bytes,
        soft_bytes,
        soft_s,
    };
    assert_eq!(config.output_limits.pubsub, limit(1, 2, 3));
    assert_eq!(config.output_limits.replica, limit(4, 5, 6));
}

#[test]
fn faults_are_told_as_redis_tells_them() {
    let cases = [
        ("port abc", "argument couldn't be parsed into an integer"),
        ("port 07", "argument couldn't be parsed into an integer"),
        (
            "port 65536",
            "argument must be between 0 and 65535 inclusive",
        ),
        ("port", "wrong number of arguments"),
        ("port  1 2 \"q\"", "wrong number of arguments"),
        ("port \"1", "Unbalanced quotes in configuration line"),
        ("nosuch 1", "Bad directive or wrong number of arguments"),
        ("include a b", "Bad directive or wrong number of arguments"),
        (
            "unixsocketperm 9",
            "argument couldn't be parsed as an octal number",
        ),
        (
            "unixsocketperm 1000",
            "argument must be between 0 and 777 inclusive",
        ),
        ("maxmemory 1tb", "argument must be a memory value"),
        ("daemonize maybe", "argument must be 'yes' or 'no'"),
        ("save 1", "Invalid save parameters"),
        (
            "bind 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17",
            "Too many bind addresses specified.",
        ),
        ("save 0 1", "Invalid save parameters"),
        ("dir /does/not/exist", "No such file or directory"),
        (
            "dbfilename a/b",
            "dbfilename can't be a path, just a filename",
        ),
        (
            "databases 0",
            "argument must be between 1 and 2147483647 inclusive",
        ),
        (
            "supervised foo",
            "argument(s) must be one of the following: upstart, systemd, auto, no",
        ),
        (
            "client-output-buffer-limit normal 1",
            "Wrong number of arguments in buffer limit configuration.",
        ),
    ];
    for (line, reason) in cases {
        let told = load(&format!("\n{line}\n")).unwrap_err();
        assert_eq!(told, fatal("configuration file, at line 2", line, reason));
    }
}

#[test]
fn an_unknown_directive_names_the_nearest_one() {
    for (line, near) in [
        ("maxmemroy 1gb", "maxmemory"),
        ("Max-Memory-Policy allkeys-lru", "maxmemory-policy"),
        ("slave-read-onli yes", "slave-read-only"),
    ] {
        let told = load(line).unwrap_err();
        let reason = format!("; the nearest directive is '{near}'");
        assert!(told.ends_with(&reason), "{told}");
    }
    let told = load("zzzzzzzz 1").unwrap_err();
    assert!(!told.contains("nearest"), "{told}");
    let told = read_environment(&[("IOLITE_XYZZY_QUUX", "1")]).unwrap_err();
    assert!(!told.contains("nearest"), "{told}");
}

#[test]
fn what_this_version_lacks_is_refused_by_name() {
    let version = env!("CARGO_PKG_VERSION");
    let cases = [
        (
            "replica-read-only no",
            "writes to a replica what its primary wrote and nothing else, so that both have one log; \
             only 'replica-read-only yes' is accepted",
        ),
        (
            "loadmodule a.so",
            "loads no modules; 'loadmodule' is refused",
        ),
        (
            "locale-collate de_DE",
            "compares texts by their bytes; only 'locale-collate \"\"' is accepted",
        ),
    ];
    for (line, lacks) in cases {
        let reason = format!("Iolite {version} {lacks}");
        let told = load(line).unwrap_err();
        assert_eq!(told, fatal("configuration file, at line 1", line, &reason));
    }
}

#[test]
fn what_is_wrong_with_the_address_of_a_primary_is_told_first() {
    for (line, reason) in [
        ("replicaof 127.0.0.1 abc", "Invalid master port"),
        ("replicaof 127.0.0.1 65536", "Invalid master port"),
        ("replicaof 127.0.0.1", "wrong number of arguments"),
    ] {
        let told = load(line).unwrap_err();
        assert!(told.contains(reason), "{told}");
    }
}

#[test]
fn what_replicas_need_is_read() {
    let text =
        "replicaof 10.0.0.1 6380\nmasterauth secret\nrepl-backlog-size 2mb\nslave-priority 5\n";
    let replication = load(text).unwrap().config().replication;
    assert_eq!(replication.primary, Some(("10.0.0.1".to_owned(), 6380)));
    assert_eq!(replication.password.as_deref(), Some(&b"secret"[..]));
    assert_eq!(
        (replication.backlog_bytes, replication.priority),
        (2 << 20, 5)
    );
    let replication = load("slaveof NO ONE").unwrap().config().replication;
    assert_eq!(replication.primary, None);
}

#[test]
fn links_show_certificates_where_either_of_redis_two_kinds_does() {
    for (text, by_certificate) in [
        ("tls-replication yes", true),
        ("tls-cluster yes\ncluster-enabled yes", true),
        ("tls-cluster yes\ncluster-group yes", true),
        ("tls-cluster yes\njoin db1", true),
        ("cluster-enabled yes", false),
        // As in Redis, which has no cluster bus without a cluster.
        ("tls-cluster yes", false),
    ] {
        let replication = load(text).unwrap().config().replication;
        assert_eq!(replication.links_by_certificate, by_certificate, "{text}");
    }
}

#[test]
fn the_machines_log_is_told_as_whom_it_is_asked_to() {
    assert_eq!(load("syslog-ident db").unwrap().config().syslog, None);
    let loaded = load("syslog-enabled yes\nsyslog-ident db\nsyslog-facility local7").unwrap();
    let sender = loaded.config().syslog.unwrap();
    assert_eq!((&*sender.ident, sender.facility), ("db", 23));
}

#[cfg(feature = "tls")]
#[test]
fn nodes_with_encrypted_connections_alone_are_found_by_that_port() {
    let text = "port 0\ntls-port 7000\njoin db1\n";
    let config = load(text).unwrap().config();
    assert_eq!((config.client_port(), config.link_port()), (7_000, 17_000));
    assert_eq!(config.group.join, Some(("db1".to_owned(), 17_000)));
}

#[test]
fn scores_for_the_kernel_are_three_and_in_range() {
    load("oom-score-adj relative\noom-score-adj-values -5 2000 -2000\n").unwrap();
    for (line, reason) in [
        ("oom-score-adj-values 1 2", "wrong number of arguments"),
        (
            "oom-score-adj-values 0 0 2001",
            "must be between -2000 and 2000",
        ),
        (
            "oom-score-adj-values 0 x 0",
            "must be between -2000 and 2000",
        ),
        (
            "oom-score-adj maybe",
            "argument(s) must be one of the following",
        ),
    ] {
        let told = load(line).unwrap_err();
        assert!(told.contains(reason), "{told}");
    }
}

#[test]
fn what_counts_is_the_last_value_not_an_earlier_one() {
    load("import-mode yes\nmptcp yes\nimport-mode no\nmptcp no\n").unwrap();
    let told = load("mptcp no\nmptcp yes\nport 1\n").unwrap_err();
    assert!(told.contains("at line 2\n>>> 'mptcp yes'"), "{told}");
}

#[test]
fn the_values_that_say_nothing_is_kept_are_accepted() {
    load(
        "save \"\"\nappendonly no\nappendfsync everysec\nrdbcompression yes\n\
         replicaof no one\ncluster-enabled no\ntls-port 0\naclfile \"\"\nsyslog-enabled no\n\
         slowlog-log-slower-than -1\nlatency-tracking no\nshutdown-on-sigterm nosave now\n\
         lua-replicate-commands yes\nlua-time-limit 5000\n",
    )
    .unwrap();
}

#[test]
fn settings_without_effect_are_named_with_their_reasons() {
    let remark = |text: &str| {
        let mut loader = Loader::new();
        loader.read_text(text.as_bytes()).unwrap();
        loader.finish().unwrap().remark
    };
    assert_eq!(remark("port 1\nsave \"\"\n"), None);
    let told =
        remark("lazyfree-lazy-expire yes\nlist-compress-depth 7\nlazyfree-lazy-eviction yes\n");
    assert_eq!(
        told.as_deref(),
        Some(
            "Accepted without effect: list-compress-depth (lists are never compressed); \
             lazyfree-lazy-eviction, lazyfree-lazy-expire \
             (large values are always freed beside the commands)"
        )
    );
}

#[test]
fn files_include_files() {
    let folder = Folder::new();
    let dir = folder.0.path().display();
    folder.file("a.conf", "port 1\nmaxclients 5\n");
    folder.file("b.conf", "port 2\n");
    folder.file(".hidden.conf", "port 3\n");
    folder.file("other.txt", "port 4\n");
    let config = load(&format!("include {dir}/*.conf\nmaxclients 6\n"))
        .unwrap()
        .config();
    assert_eq!((config.port, config.clients_max), (2, 6));
    load(&format!("include {dir}/none*.conf\n")).unwrap();
    let told = load(&format!("include {dir}/none.conf\n")).unwrap_err();
    let expected = format!("can't open config file '{dir}/none.conf': No such file or directory");
    assert!(told.ends_with(&expected), "{told}");
    folder.file("bad.conf", "\n\nport x\n");
    let told = load(&format!("include {dir}/bad.conf\n")).unwrap_err();
    assert!(told.contains("at line 3\n>>> 'port x'\n"), "{told}");
}

#[test]
fn files_that_include_themselves_are_refused() {
    let folder = Folder::new();
    let path = folder.0.path().join("circle.conf");
    let line = format!("include {}", path.display());
    folder.file("circle.conf", &line);
    let told = load(&line).unwrap_err();
    assert!(
        told.ends_with("More than 16 files include one another"),
        "{told}"
    );
}

#[test]
fn variables_set_directives_below_the_file() {
    let mut loader = read_environment(&[
        ("HOME", "/root"),
        ("IOLITE_PORT", "7001"),
        ("IOLITE_MAXMEMORY_POLICY", "allkeys-lru"),
        ("IOLITE_IO_THREADS", "3"),
        ("IOLITE_BIND", "127.0.0.1 -::1"),
        ("IOLITE_SAVE", ""),
        ("IOLITE_REQUIREPASS", "with \"quotes\" and spaces"),
    ])
    .unwrap();
    loader.read_text(b"port 7002\n").unwrap();
    let config = loader.finish().unwrap().settings.config();
    assert_eq!(config.port, 7002);
    assert_eq!(config.threads_count, 3);
    assert_eq!(config.bind.len(), 2);
    assert_eq!(
        config.password.as_deref(),
        Some(b"with \"quotes\" and spaces".as_slice())
    );
}

#[test]
fn secrets_come_from_files_without_their_line_end() {
    let folder = Folder::new();
    for content in ["hunter2", "hunter2\n", "hunter2\r\n"] {
        let path = folder.file("password", content);
        let pairs = [("IOLITE_REQUIREPASS_FILE", path.to_str().unwrap())];
        let config = read_environment(&pairs)
            .unwrap()
            .finish()
            .unwrap()
            .settings
            .config();
        assert_eq!(config.password.as_deref(), Some(b"hunter2".as_slice()));
    }
    let told = read_environment(&[("IOLITE_REQUIREPASS_FILE", "/does/not/exist")]).unwrap_err();
    let reason = "Can't read the file '/does/not/exist': No such file or directory";
    let at = "environment variable IOLITE_REQUIREPASS_FILE";
    assert_eq!(told, fatal(at, "requirepass", reason));
}

#[test]
fn faults_in_variables_name_the_variable_and_show_no_secret() {
    let told = read_environment(&[("IOLITE_PORT", "abc")]).unwrap_err();
    let reason = "argument couldn't be parsed into an integer";
    assert_eq!(
        told,
        fatal("environment variable IOLITE_PORT", "port \"abc\"", reason)
    );
    let told = read_environment(&[("IOLITE_REQUIREPAS", "hunter2")]).unwrap_err();
    let reason = "No directive has this name in the environment; the nearest is IOLITE_REQUIREPASS";
    let at = "environment variable IOLITE_REQUIREPAS";
    assert_eq!(told, fatal(at, "IOLITE_REQUIREPAS", reason));
    let told = read_environment(&[("IOLITE_TLS_CLIENT_KEY_FILE_PASS", "hunter2")])
        .unwrap()
        .finish()
        .unwrap_err()
        .to_string();
    assert!(
        told.contains(">>> 'tls-client-key-file-pass (hidden)'"),
        "{told}"
    );
    let told = load("requirepass hunter 2\n").unwrap_err();
    assert!(!told.contains("hunter"), "{told}");
}

#[test]
fn variables_that_an_orchestrator_makes_for_a_service_are_left_alone() {
    let loader = read_environment(&[
        ("IOLITE_PORT", "tcp://10.0.0.1:6379"),
        ("IOLITE_SERVICE_HOST", "10.0.0.1"),
        ("IOLITE_SERVICE_PORT", "6379"),
        ("IOLITE_SERVICE_PORT_REDIS", "6379"),
        ("IOLITE_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
        ("IOLITE_PORT_6379_TCP_PROTO", "tcp"),
        ("IOLITE_PORT_6379_TCP_ADDR", "10.0.0.1"),
        ("IOLITE_CACHE_PORT_6379_TCP_ADDR", "10.0.0.1"),
    ]);
    assert_eq!(
        loader.unwrap().finish().unwrap().settings.config().port,
        6379
    );
}

#[test]
fn variables_of_the_tools_are_left_alone() {
    let loader = read_environment(&[
        ("IOLITE_AUTH", "secret"),
        ("IOLITE_SOURCE_AUTH", "secret"),
        ("IOLITE_TARGET_AUTH", "secret"),
        ("IOLITE_PROGRAM", "/usr/bin/iolite"),
    ]);
    assert!(loader.is_ok(), "{:?}", loader.err());
    let told = read_environment(&[("IOLITE_AUTHS", "secret")]).unwrap_err();
    assert!(told.contains("IOLITE_AUTHS"), "{told}");
}

#[test]
fn lines_about_users_and_names_of_commands_are_kept() {
    let config = load("user alice on nopass\nuser bob\nrename-command FLUSHALL \"\"\n").unwrap();
    let config = config.config();
    let words = |line: &str| -> Vec<Vec<u8>> { line.split(' ').map(Vec::from).collect() };
    assert_eq!(config.users, [words("alice on nopass"), words("bob")]);
    assert_eq!(
        config.renamed_commands,
        [(b"FLUSHALL".to_vec(), Vec::new())]
    );
}
