//! Tests of the documents sent to an OpenTelemetry collector.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use testkit::patience::Patience;

use super::{ask, cookie, get, log_in, start};

/// Receives documents until those for a path contain each of these words. Returns those documents.
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
        let (mut text, mut piece) = (String::new(), [0; 64 << 10]);
        while !is_whole(&text) {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => text += &String::from_utf8_lossy(&piece[..count]),
                // An incomplete document is sent again.
                _ => break,
            }
        }
        if text.starts_with(&format!("POST {path} ")) {
            seen += &text;
        }
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    }
    seen
}

/// Returns whether a request is complete. Documents are ASCII.
fn is_whole(text: &str) -> bool {
    let length = || {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let len = lines.find_map(|line| line.strip_prefix("Content-Length: "))?;
        Some(body.len() >= len.parse().ok()?)
    };
    length() == Some(true)
}

#[test]
fn what_took_how_long_is_told_to_a_collector() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (server, port) = start(&[
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
    // The page shows the latest spans.
    let who = cookie(&log_in(port, "default", ""));
    let shown = get(port, "/api/spans", &who).body;
    for wanted in [&endpoint, "\"name\":\"checkpoint\"", "\"name\":\"SET\""] {
        assert!(shown.contains(wanted), "{shown}");
    }
    assert_eq!(get(port, "/api/spans", "").status, 401);
}

/// Starts a collector that speaks TLS, and returns a channel of the documents that it receives.
#[cfg(feature = "tls")]
fn encrypted_collector(
    files: &crate::certificates::Files,
) -> (u16, std::sync::mpsc::Receiver<String>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = tls::ServerOptions {
        certificate_file: Some(files.text("server.crt").into()),
        key_file: Some(files.text("server.key").into()),
        client_auth: tls::ClientAuth::No,
        ..tls::ServerOptions::default()
    };
    let clock: std::sync::Arc<dyn base::clock::Clock> =
        std::sync::Arc::new(base::clock::SystemClock::new());
    let server = tls::Server::load(&options, &clock).unwrap();
    let (documents, come) = std::sync::mpsc::channel();
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = server.accept(stream).await else {
                continue;
            };
            let (mut text, mut piece) = (String::new(), vec![0; 64 << 10]);
            while !is_whole(&text) {
                match stream.read(&mut piece).await {
                    Ok(count) if count > 0 => text += &String::from_utf8_lossy(&piece[..count]),
                    _ => break,
                }
            }
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            if documents.send(text).is_err() {
                break;
            }
        }
    };
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(serve);
    });
    (port, come)
}

/// Nothing is sent to an untrusted collector. The log names it once, and the documents are counted.
#[cfg(feature = "tls")]
#[test]
fn a_collector_is_trusted_by_its_certificate_alone() {
    let (files, others) = (
        crate::certificates::Files::new(),
        crate::certificates::Files::new(),
    );
    let (collector, come) = encrypted_collector(&files);
    let endpoint = format!("https://localhost:{collector}");
    let words = ["--otlp-endpoint", &endpoint, "--otlp-interval", "1"];
    let wrong = others.text("ca.crt");
    let (server, port) = start(&[&words[..], &["--otlp-ca-cert-file", &wrong]].concat());
    let refused = || {
        let metrics = get(port, "/metrics", "").body;
        let mut lines = metrics.lines();
        let found = lines.find_map(|line| line.strip_prefix("iolite_otlp_untrusted_total "));
        found.and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    crate::limits::eventually("it was tried more than once", || refused() >= 2);
    assert!(come.try_recv().is_err(), "something was sent");
    let warnings = || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("Nothing is sent"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let told = warnings();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("localhost shows the certificate server with the number "),
        "{told:?}"
    );
    let right = files.text("ca.crt");
    ask(&server, &format!("CONFIG SET otlp-ca-cert-file {right}"));
    let document = come.recv_timeout(Duration::from_secs(120)).unwrap();
    assert!(document.starts_with("POST /v1/metrics "), "{document}");
    assert!(document.contains("redis.commands.processed"), "{document}");
    let before = refused();
    come.recv_timeout(Duration::from_secs(120)).unwrap();
    assert_eq!(refused(), before);
    // The current content of the file counts, without a command to the server.
    std::fs::copy(&wrong, others.text("moved")).unwrap();
    std::fs::rename(others.text("moved"), &right).unwrap();
    crate::limits::eventually("it is refused again", || refused() > before);
    assert_eq!(warnings().len(), 2, "{:?}", warnings());
}
