//! Tests of the built server's management port: what it shows to which client, and what it refuses.

mod otlp;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, free_port, temporary_directory};
use testkit::transcript::show;

struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// Starts a server with a management port, and returns both.
fn start(args: &[&str]) -> (Server, u16) {
    let port = free_port().unwrap();
    let number = port.to_string();
    let server = ServerBuilder::iolite()
        .args(&["--http-port", &number])
        .args(args);
    (server.start().unwrap(), port)
}

/// Connects to the port, which opens when workers serve, a moment after the first client was
/// answered.
fn connect(port: u16) -> TcpStream {
    for _ in 0..600 {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            return stream;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("nobody listens on the management port");
}

fn send(port: u16, request: &str) -> Answer {
    let mut stream = connect(port);
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    // The server may close the connection before everything is sent.
    let _refused = stream.write_all(request.as_bytes());
    let mut text = Vec::new();
    let _closed = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Answer {
        status: status.unwrap_or(0),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

fn get(port: u16, path: &str, headers: &str) -> Answer {
    send(
        port,
        &format!(
            "GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n{headers}\r\n"
        ),
    )
}

fn post(port: u16, path: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    send(
        port,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ),
    )
}

const OWN: &str = "Content-Type: application/json\r\nX-Iolite: 1\r\n";

fn log_in(port: u16, user: &str, password: &str) -> Answer {
    post(
        port,
        "/login",
        OWN,
        &format!("{{\"user\":\"{user}\",\"password\":\"{password}\"}}"),
    )
}

/// Returns the header that identifies the login.
fn cookie(answer: &Answer) -> String {
    let line = answer
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let line = line.unwrap_or_else(|| panic!("{} {}", answer.head, answer.body));
    format!("Cookie: {}\r\n", line.split(';').next().unwrap())
}

fn command(port: u16, who: &str, args: &str) -> Answer {
    post(
        port,
        "/api/command",
        &format!("{OWN}{who}"),
        &format!("{{\"args\":{args}}}"),
    )
}

fn ask(server: &Server, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    show(&server.client().unwrap().command(&words).unwrap())
}

#[test]
fn probes_and_metrics_are_told() {
    let (server, port) = start(&["--appendonly", "yes"]);
    assert_eq!(ask(&server, "SET a 1"), "+OK");
    for path in ["/healthz", "/readyz"] {
        let answer = get(port, path, "");
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "ok\n"),
            "{path}"
        );
    }
    let metrics = get(port, "/metrics", "");
    assert!(
        metrics
            .head
            .contains("content-type: text/plain; version=0.0.4"),
        "{}",
        metrics.head
    );
    for line in [
        "redis_up 1\n",
        "redis_db_keys{db=\"db0\"} 1\n",
        "redis_commands_total{cmd=\"set\"} 1\n",
        "redis_aof_enabled 1\n",
    ] {
        assert!(metrics.body.contains(line), "{line} {}", metrics.body);
    }
    let open = get(
        port,
        "/metrics?name[]=redis_up",
        "Accept: application/openmetrics-text\r\n",
    );
    assert!(open.head.contains("application/openmetrics-text"));
    assert!(
        open.body.ends_with("redis_up 1\n# EOF\n") && open.body.lines().count() == 4,
        "{}",
        open.body
    );
}

/// A foreign page can make a browser send these requests. None of them is accepted.
#[test]
fn what_a_foreign_page_can_send_is_refused() {
    let (server, port) = start(&[]);
    let who = cookie(&log_in(port, "default", ""));
    let body = "{\"args\":[\"SET\",\"k\",\"v\"]}";
    let rebound = send(
        port,
        &format!("GET /metrics HTTP/1.1\r\nHost: evil.example:{port}\r\nConnection: close\r\n\r\n"),
    );
    assert_eq!(rebound.status, 403);
    let no_host = send(port, "GET /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(no_host.status, 403);
    for headers in [
        "Content-Type: text/plain\r\nX-Iolite: 1\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: application/json\r\n",
        "Content-Type: application/json\r\nX-Iolite: 1\r\nOrigin: http://evil.example\r\n",
        "Content-Type: application/json\r\nX-Iolite: 1\r\nOrigin: null\r\n",
    ] {
        let answer = post(port, "/api/command", &format!("{headers}{who}"), body);
        assert_eq!(answer.status, 403, "{headers}");
    }
    let stranger = post(port, "/api/command", OWN, body);
    assert_eq!(stranger.status, 401);
    assert_eq!(ask(&server, "EXISTS k"), ":0");
    let own = format!("{OWN}{who}Origin: http://localhost:{port}\r\n");
    assert_eq!(post(port, "/api/command", &own, body).status, 200);
    assert_eq!(ask(&server, "EXISTS k"), ":1");
}

#[test]
fn requests_beyond_the_limits_are_refused_and_others_go_on() {
    let (_server, port) = start(&[]);
    let long = format!("X-Long: {}\r\n", "a".repeat(17 * 1024));
    assert!(matches!(get(port, "/metrics", &long).status, 0 | 431));
    let large = "x".repeat(1024 * 1024 + 1);
    assert_eq!(post(port, "/login", OWN, &large).status, 413);
    assert_eq!(post(port, "/login", OWN, "{").status, 400);
    assert_eq!(get(port, "/../../etc/passwd", "").status, 404);
    let put = send(
        port,
        &format!("PUT /metrics HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n"),
    );
    assert_eq!(put.status, 403);
    assert!(matches!(send(port, "\u{0}\u{1}\r\n\r\n").status, 0 | 400));
    // Silent connections count against the limit for a time, and no longer.
    let silent: Vec<TcpStream> = (0..200)
        .map_while(|_| TcpStream::connect(("127.0.0.1", port)).ok())
        .collect();
    assert!(silent.len() > 64);
    drop(silent);
    assert_eq!(get(port, "/healthz", "").status, 200);
}

#[test]
fn pages_bind_the_browser() {
    let (_server, port) = start(&[]);
    let page = get(port, "/", "");
    assert_eq!(page.status, 200);
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(page.head.contains(header), "{}", page.head);
    }
    let tag = page
        .head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap();
    assert_eq!(
        get(port, "/", &format!("If-None-Match: {tag}\r\n")).status,
        304
    );
    assert!(
        get(port, "/api/session", "")
            .head
            .contains("cache-control: no-store")
    );
    let (_server, port) = start(&["--http-console", "no"]);
    assert_eq!(get(port, "/", "").status, 404);
}

/// Failures at either port count for both ports, and expire by one clock.
#[test]
fn who_failed_to_log_in_by_commands_is_let_in_here_a_while_later() {
    let port = free_port().unwrap();
    let number = port.to_string();
    let args = ["--http-port", &number, "--http-metrics-auth", "yes"];
    let args = [&args[..], &["--requirepass", "p"]].concat();
    let server = ServerBuilder::iolite().tcp().args(&args).start().unwrap();
    let mut client = Client::connect_tcp(server.address().unwrap()).unwrap();
    let mut fails = || show(&client.command(&["AUTH", "wrong"]).unwrap());
    let patience = Patience::of(Duration::from_secs(20));
    while !fails().contains("Too many failed logins") {
        assert!(patience.lasts());
    }
    // The credentials are `default:p`.
    let patience = Patience::of(Duration::from_secs(20));
    let header = "Authorization: Basic ZGVmYXVsdDpw\r\n";
    while get(port, "/metrics", header).status != 200 {
        assert!(patience.lasts(), "refused for ever");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Each call has the rights of the user, no more, and ends with them.
#[test]
fn commands_run_as_the_user_who_is_logged_in() {
    let (server, port) = start(&["--requirepass", "secret"]);
    let mut admin = server.client().unwrap();
    assert_eq!(
        admin.command(&["AUTH", "secret"]).unwrap(),
        Value::Simple(b"OK".to_vec())
    );
    admin
        .command(&[
            "ACL", "SETUSER", "bob", "on", ">p", "~b*", "+get", "+set", "+scan", "+type", "+pttl",
            "+select",
        ])
        .unwrap();
    assert_eq!(log_in(port, "bob", "wrong").status, 401);
    assert_eq!(log_in(port, "default", "").status, 401);
    let answer = log_in(port, "bob", "p");
    assert!(
        answer.head.contains("httponly; samesite=strict"),
        "{}",
        answer.head
    );
    let bob = cookie(&answer);
    let set = command(port, &bob, "[\"SET\",\"b1\",{\"b64\":\"AP8=\"}]");
    assert!(set.body.contains("{\"simple\":\"OK\"}"), "{}", set.body);
    assert!(
        command(port, &bob, "[\"GET\",\"b1\"]")
            .body
            .contains("{\"bulk\":\"AP8=\"}")
    );
    for denied in [
        "[\"GET\",\"other\"]",
        "[\"FLUSHALL\"]",
        "[\"ACL\",\"LIST\"]",
    ] {
        assert!(
            command(port, &bob, denied).body.contains("NOPERM"),
            "{denied}"
        );
    }
    for refused in [
        "[\"SUBSCRIBE\",\"c\"]",
        "[\"BLPOP\",\"b\",\"0\"]",
        "[\"MONITOR\"]",
        "[\"AUTH\",\"x\"]",
    ] {
        assert_eq!(command(port, &bob, refused).status, 400, "{refused}");
    }
    assert_eq!(get(port, "/info.json", &bob).status, 403);
    let whole = cookie(&log_in(port, "default", "secret"));
    let told = get(port, "/info.json?section=clients", &whole).body;
    assert!(told.contains("\"maxclients\":10000"), "{told}");
    assert!(!told.contains("10000."), "{told}");
    assert_eq!(get(port, "/events", &bob).status, 403);
    // A new password ends logins made with the old one.
    admin.command(&["ACL", "SETUSER", "bob", ">q"]).unwrap();
    assert_eq!(command(port, &bob, "[\"GET\",\"b1\"]").status, 401);
    let bob = cookie(&log_in(port, "bob", "q"));
    admin.command(&["ACL", "DELUSER", "bob"]).unwrap();
    assert_eq!(command(port, &bob, "[\"GET\",\"b1\"]").status, 401);
}

#[test]
fn keys_are_browsed_by_steps_that_say_what_was_seen() {
    let (server, port) = start(&[]);
    let mut client = server.client().unwrap();
    for number in 0..3000 {
        client
            .command(&["SET", &format!("k:{number}"), "v"])
            .unwrap();
    }
    client
        .command(&["RPUSH", "a list", "x", "<script>"])
        .unwrap();
    let who = cookie(&log_in(port, "default", ""));
    let (mut cursor, mut found, mut steps, mut seen) = ("0".to_owned(), 0, 0, 0.0);
    loop {
        let body = format!("{{\"cursor\":\"{cursor}\",\"pattern\":\"k:*\",\"count\":500}}");
        let answer = post(port, "/api/keys", &format!("{OWN}{who}"), &body);
        let field = |name: &str| {
            let rest = answer.body.split_once(&format!("\"{name}\":")).unwrap().1;
            rest.split([',', '}'])
                .next()
                .unwrap()
                .trim_matches('"')
                .to_owned()
        };
        found += answer.body.matches("\"type\":\"string\"").count();
        cursor = field("cursor");
        let now: f64 = field("seen").parse().unwrap();
        assert!(now > seen && now <= 1.0, "{now} after {seen}");
        (seen, steps) = (now, steps + 1);
        if cursor == "0" {
            break;
        }
        // The share seen is about the share of keys found.
        assert!(
            (f64::from(u32::try_from(found).unwrap()) / 3000.0 - now).abs() < 0.15,
            "{found} {now}"
        );
    }
    assert!(found >= 3000 && steps > 3, "{found} {steps}");
    let value = post(
        port,
        "/api/value",
        &format!("{OWN}{who}"),
        "{\"key\":\"YSBsaXN0\"}",
    );
    assert!(
        value.body.contains("\"length\":2") && value.body.contains("{\"bulk\":\"PHNjcmlwdD4=\"}"),
        "{}",
        value.body
    );
}

#[test]
fn requests_of_the_console_are_in_the_audit_log() {
    let directory = temporary_directory("audit-http").unwrap();
    let path = directory.join("audit.log");
    let (_server, port) = start(&["--audit-log-file", path.to_str().unwrap()]);
    let who = cookie(&log_in(port, "default", ""));
    assert_eq!(
        command(port, &who, "[\"SET\",\"a\",\"secret\"]").status,
        200
    );
    crate::limits::eventually("the line is there", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines().any(|line| {
            line.contains("command=set")
                && line.contains(" via=http key=")
                && line.contains("address=\"127.0.0.1:")
        })
    });
    assert!(!std::fs::read_to_string(&path).unwrap().contains("secret"));
}

#[test]
fn metrics_are_for_who_says_who_he_is_where_that_is_asked() {
    let directory = temporary_directory("token").unwrap();
    let path = directory.join("token");
    std::fs::write(&path, "word\n").unwrap();
    let (_server, port) = start(&[
        "--http-metrics-auth",
        "yes",
        "--requirepass",
        "p",
        "--http-metrics-token-file",
        path.to_str().unwrap(),
    ]);
    // The credentials are `default:p` and `default:x`.
    for (header, status) in [
        ("", 401),
        ("Authorization: Bearer other\r\n", 401),
        ("Authorization: Bearer word\r\n", 200),
        ("Authorization: Basic ZGVmYXVsdDpw\r\n", 200),
        ("Authorization: Basic ZGVmYXVsdDp4\r\n", 401),
    ] {
        assert_eq!(get(port, "/metrics", header).status, status, "{header}");
    }
    assert_eq!(get(port, "/healthz", "").status, 200);
}

#[test]
fn programs_run_commands_where_that_is_on() {
    let (_server, port) = start(&["--http-commands", "yes", "--requirepass", "p"]);
    let json = "Content-Type: application/json\r\n";
    let token = format!("{json}Authorization: Bearer p\r\n");
    assert_eq!(
        post(port, "/", &token, "[\"SET\",\"a\",\"1\"]").body,
        "{\"result\":\"OK\"}"
    );
    let pipeline = post(
        port,
        "/pipeline",
        &token,
        "[[\"GET\",\"a\"],[\"INCR\",\"a\"],[\"NOPE\"]]",
    );
    assert!(
        pipeline
            .body
            .starts_with("[{\"result\":\"1\"},{\"result\":2},{\"error\":\"ERR unknown command"),
        "{}",
        pipeline.body
    );
    let transaction = post(
        port,
        "/multi-exec",
        &token,
        "[[\"INCR\",\"a\"],[\"GET\",\"a\"]]",
    );
    assert_eq!(transaction.body, "[{\"result\":3},{\"result\":\"3\"}]");
    assert_eq!(
        post(
            port,
            "/",
            &format!("{json}Authorization: Bearer x\r\n"),
            "[\"GET\",\"a\"]"
        )
        .status,
        401
    );
    for path in ["/", "/pipeline", "/multi-exec", "/set/a/2"] {
        let without = post(port, path, json, "[\"SET\",\"a\",\"2\"]");
        let told = (without.status, without.body.as_str());
        assert_eq!(told, (401, "{\"error\":\"Unauthorized\"}"), "{path}");
    }
    assert_eq!(post(port, "/api/command", json, "{}").status, 403);
    // The command is in the path, followed by the body and then the query. Percent signs encode
    // bytes.
    let key = "Authorization: Bearer p\r\n";
    assert_eq!(
        post(port, "/set/b%20c?EX=100", key, "a value").body,
        "{\"result\":\"OK\"}"
    );
    assert_eq!(
        get(port, "/get/b%20c", key).body,
        "{\"result\":\"a value\"}"
    );
    assert_eq!(get(port, "/dbsize", key).body, "{\"result\":2}");
    assert_eq!(get(port, "/subscribe/a", key).status, 400);
    assert_eq!(get(port, "/get/a", "").status, 401);
    let encoded = format!("{key}Upstash-Encoding: base64\r\n");
    assert_eq!(get(port, "/get/a", &encoded).body, "{\"result\":\"Mw==\"}");
    assert_eq!(get(port, "/set/a/OK", &encoded).body, "{\"result\":\"OK\"}");
    assert_eq!(get(port, "/get/a", &encoded).body, "{\"result\":\"T0s=\"}");
    let (_server, port) = start(&[]);
    assert_eq!(post(port, "/", &token, "[\"GET\",\"a\"]").status, 404);
    assert_eq!(get(port, "/get/a", key).status, 404);
}

/// The stream begins with the history, and continues every second.
#[test]
fn figures_are_streamed() {
    let (_server, port) = start(&[]);
    let who = cookie(&log_in(port, "default", ""));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    write!(
        stream,
        "GET /events HTTP/1.1\r\nHost: localhost:{port}\r\n{who}\r\n"
    )
    .unwrap();
    let mut text = String::new();
    let mut chunk = [0; 4096];
    while !(text.contains("event: history") && text.contains("event: frame")) {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..count]));
    }
    assert!(text.contains("\"series\":[\"ops\","), "{text}");
}

/// Runs a program that controls the browser. `words` are added after the browser's own arguments.
fn in_a_browser(program: &str, words: impl FnOnce(String) -> Vec<String>) {
    let browser = std::env::var("BROWSER_BIN");
    let browser = browser.unwrap_or_else(|_| "/usr/bin/chromium-headless-shell".to_owned());
    let mut python = Command::new(crate::programs::python_with(&["playwright==1.65.2"]));
    python.arg(crate::programs::programs().join(program));
    python.args(words(browser));
    // The test fails if the program does.
    let _said: String = crate::programs::run(&mut python);
}

/// Returns the directory for pictures, if the variable is set.
fn pictures() -> Option<String> {
    let directory = std::env::var("PICTURES").ok()?;
    std::fs::create_dir_all(&directory).unwrap();
    Some(directory)
}

/// Tests every view at three widths, light and dark, with hostile keys and values. Takes a few
/// minutes.
#[test]
#[ignore = "needs a browser (Debian's chromium-headless-shell), Python and its packages"]
fn the_page_works_in_a_browser() {
    let port = free_port().unwrap();
    let number = port.to_string();
    let builder = ServerBuilder::iolite().args(&["--http-port", &number]);
    let server = builder.tcp().start().unwrap();
    in_a_browser("console_page.py", |browser| {
        let mut words = vec![number, crate::clients::port(&server), browser];
        words.extend(pictures());
        words
    });
}

/// Shows a control group, slots that move, and a tier.
#[test]
#[ignore = "needs a browser (Debian's chromium-headless-shell), Python and its packages"]
fn the_page_shows_a_cluster_in_a_browser() {
    let mut nodes = Vec::new();
    for name in ["page-a", "page-b", "page-c"] {
        let directory = temporary_directory(name).unwrap();
        let (http, port, link) = (
            free_port().unwrap(),
            free_port().unwrap(),
            free_port().unwrap(),
        );
        let numbers = [http, port, link].map(|one| one.to_string());
        let dir = directory.to_str().unwrap().to_owned();
        let tier = directory.join("tier").to_str().unwrap().to_owned();
        let args = [
            "--http-port",
            &numbers[0],
            "--port",
            &numbers[1],
            "--cluster-port",
            &numbers[2],
            "--dir",
            &dir,
            "--cluster-enabled",
            "yes",
            "--tier-path",
            &tier,
            "--maxmemory",
            "100mb",
            "--enable-debug-command",
            "yes",
            "--cluster-migration-pause-max",
            "30000",
        ];
        let server = ServerBuilder::iolite().args(&args).start().unwrap();
        nodes.push((server, numbers));
    }
    let (first, numbers) = &nodes[0];
    assert_eq!(ask(first, "CLUSTER ADDSLOTSRANGE 0 16383"), "+OK");
    for (node, _) in &nodes[1..] {
        let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", numbers[1], numbers[2]);
        assert_eq!(ask(node, &meet), "+OK");
    }
    for (node, _) in &nodes {
        crate::limits::eventually("all know each other", || {
            let told = ask(node, "CLUSTER INFO");
            told.contains("cluster_known_nodes:3") && told.contains("cluster_state:ok")
        });
    }
    let value = "v".repeat(2_000);
    let mut client = first.client().unwrap();
    for at in 0..20_000 {
        let key = format!("key:{at}");
        client.command(&["SET", &key, &value]).unwrap();
        if at < 200 {
            client.command(&["DEBUG", "DEMOTE", &key]).unwrap();
        }
    }
    in_a_browser("console_cluster.py", |browser| {
        let mut words = vec![browser, pictures().unwrap_or_else(|| "-".to_owned())];
        for (_, [http, port, _]) in &nodes {
            words.extend([http.clone(), port.clone()]);
        }
        words
    });
}

/// Names of series, with the names of their labels.
type Named<'a> = BTreeSet<(&'a str, Vec<&'a str>)>;

/// Returns the kind of each metric, and the names of series with the names of their labels.
fn series(text: &str) -> (BTreeMap<&str, &str>, Named<'_>) {
    let mut kinds = BTreeMap::new();
    let mut all = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            kinds.extend(rest.split_once(' '));
        } else if !line.starts_with('#') {
            let (name, _) = line.split_once(' ').unwrap_or_default();
            let (name, _) = name.split_once('{').unwrap_or((name, ""));
            let labels = line.match_indices("=\"").map(|(at, _)| {
                let before = &line[..at];
                let from = before.rfind(['{', ',']).map_or(0, |at| at + 1);
                &before[from..]
            });
            let mut labels: Vec<&str> = labels.collect();
            labels.sort_unstable();
            all.insert((name, labels));
        }
    }
    (kinds, all)
}

/// Every series that Debian's exporter makes from INFO exists, with its kinds and labels. The
/// exporter's version is older than the names that iolite follows: the differences are listed here.
#[test]
#[ignore = "needs Debian's prometheus-redis-exporter and promtool"]
fn every_series_of_the_exporter_is_there() {
    const OTHERWISE: [&str; 5] = [
        "redis_db_keys_cached",
        "redis_instance_info",
        "redis_last_key_groups_scrape_duration_milliseconds",
        "redis_target_scrape_request_errors_total",
        "redis_expired_time_cap_reached_total",
    ];
    let port = free_port().unwrap();
    let number = port.to_string();
    let builder = ServerBuilder::iolite().args(&["--http-port", &number]);
    let server = builder.tcp().start().unwrap();
    for line in ["SET a 1", "NOPE", "HSET h f v", "EXPIRE a 100"] {
        ask(&server, line);
    }
    let (address, own_port) = (server.address().unwrap(), free_port().unwrap());
    let mut exporter = Command::new("prometheus-redis-exporter")
        .arg(format!("-redis.addr=redis://{address}"))
        .arg(format!("-web.listen-address=127.0.0.1:{own_port}"))
        .arg("-include-system-metrics")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    crate::limits::eventually("the exporter listens", || {
        TcpStream::connect(("127.0.0.1", own_port)).is_ok()
    });
    // Requested with HTTP 1.0, which has no chunks: their lengths would appear between the lines.
    let theirs = send(own_port, "GET /metrics HTTP/1.0\r\n\r\n").body;
    exporter.kill().unwrap();
    exporter.wait().unwrap();
    let ours = get(port, "/metrics", "").body;
    let ((their_kinds, theirs), (our_kinds, ours_all)) = (series(&theirs), series(&ours));
    assert!(theirs.len() > 150, "{theirs:?}");
    let is_theirs = |name: &str| {
        name.starts_with("redis_")
            && !name.starts_with("redis_exporter_")
            && !OTHERWISE.contains(&name)
    };
    for (name, labels) in theirs.iter().filter(|(name, _)| is_theirs(name)) {
        assert!(
            ours_all.contains(&(*name, labels.clone())),
            "{name} {labels:?}"
        );
    }
    for (name, kind) in their_kinds.iter().filter(|(name, _)| is_theirs(name)) {
        assert_eq!(our_kinds.get(name), Some(kind), "{name}");
    }
    let checked = lint(&ours);
    let own = checked.lines().filter(|line| line.starts_with("iolite_"));
    assert_eq!(own.collect::<Vec<_>>(), Vec::<&str>::new(), "{checked}");
}

/// Returns the findings of promtool.
fn lint(metrics: &str) -> String {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(metrics.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}
