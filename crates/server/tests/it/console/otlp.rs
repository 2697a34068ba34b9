//! What a collector of OpenTelemetry is sent.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use testkit::patience::Patience;

use super::{ask, start};

/// Takes documents until those of a path contain each of these; which these are.
fn collect(listener: &TcpListener, path: &str, wanted: &[&str]) -> String {
    let patience = Patience::of(Duration::from_secs(120));
    let mut seen = String::new();
    while !wanted.iter().all(|word| seen.contains(word)) {
        assert!(patience.lasts(), "{wanted:?} did not come: {seen}");
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        let (mut bytes, mut piece) = (Vec::new(), [0; 64 << 10]);
        let is_whole = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let (head, body) = text.split_once("\r\n\r\n")?;
            let mut lines = head.lines();
            let len = lines.find_map(|line| line.strip_prefix("Content-Length: "))?;
            Some(body.len() >= len.parse().ok()?)
        };
        while is_whole(&bytes) != Some(true) {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
                // What does not come whole is sent again.
                _ => break,
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if text.starts_with(&format!("POST {path} ")) {
            seen += &text;
        }
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    }
    seen
}

#[test]
fn what_took_how_long_is_told_to_a_collector() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (server, _) = start(&[
        "--otlp-endpoint",
        &endpoint,
        "--otlp-interval",
        "1",
        "--slowlog-log-slower-than",
        "0",
    ]);
    ask(&server, "SET secret value");
    ask(&server, "BGSAVE");
    let wanted = ["\"name\":\"SET\"", "\"name\":\"checkpoint\""];
    let spans = collect(&listener, "/v1/traces", &wanted);
    assert!(!spans.contains("secret"), "{spans}");
    let metrics = collect(&listener, "/v1/metrics", &["redis.commands.processed"]);
    assert!(metrics.contains("service.instance.id"), "{metrics}");
}
