//! Sending of a document: host, headers, and an encrypted or plain connection.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use super::Export;
use crate::ports::{Duplex, Outgoing, Unreached};

/// The path of metrics if the endpoint names none.
const PATH: &str = "/v1/metrics";
/// The path of spans in that case.
const TRACES_PATH: &str = "/v1/traces";
/// Maximum time that a collector may take.
const SEND_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of bytes of a response that are read. Only its first line matters.
const ANSWER_BYTES_MAX: usize = 1024;
/// Maximum size of a file of headers.
const HEADERS_BYTES_MAX: u64 = 64 << 10;

/// A collector's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    is_encrypted: bool,
    host: String,
    port: u16,
    path: String,
}

impl Target {
    /// Parses an endpoint.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(endpoint: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("otlp-endpoint '{endpoint}': {why}"));
        let (is_encrypted, rest) = match endpoint.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return refuse("it begins with http:// or https://"),
        };
        let (place, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = place.rsplit_once(':').unwrap_or((place, "4318"));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let Ok(port) = port.parse() else {
            return refuse("its port is no number");
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !is_plain(host) || !is_plain(path) {
            return refuse("it names no host");
        }
        let path = match path {
            "" | "/" => PATH.to_owned(),
            path => path.to_owned(),
        };
        let host = host.to_owned();
        Ok(Self {
            is_encrypted,
            host,
            port,
            path,
        })
    }

    /// Returns the target of spans: beside the metrics, or the one path that the endpoint names.
    pub(super) fn of_traces(&self) -> Self {
        let path = match self.path.strip_suffix(PATH) {
            Some(above) => format!("{above}{TRACES_PATH}"),
            None => self.path.clone(),
        };
        Self {
            path,
            ..self.clone()
        }
    }
}

/// Sends a document. A collector that refuses it counts as unreachable.
pub(super) async fn send(
    target: &Target,
    export: &Export,
    body: &str,
    outgoing: Option<&dyn Outgoing>,
) -> Result<(), Unreached> {
    let headers = match &export.headers_file {
        Some(path) => headers(path)?,
        None => String::new(),
    };
    let sending = async {
        let place = (target.host.as_str(), target.port);
        let stream = TcpStream::connect(place).await?;
        if !target.is_encrypted {
            return post(stream, target, &headers, body)
                .await
                .map_err(Unreached::from);
        }
        let outgoing = outgoing
            .ok_or_else(|| Unreached::Untrusted("this server was built without TLS".to_owned()))?;
        let authorities = export.authorities_file.as_deref();
        let stream = outgoing.connect(stream, &target.host, authorities).await?;
        post(stream, target, &headers, body)
            .await
            .map_err(Unreached::from)
    };
    let sent = timeout(SEND_TIME_MAX, sending).await;
    sent.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

/// Returns the lines of a file as headers.
fn headers(path: &Path) -> io::Result<String> {
    if std::fs::metadata(path)?.len() > HEADERS_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let text = std::fs::read_to_string(path)?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| line.contains(':'));
    Ok(lines.map(|line| format!("{line}\r\n")).collect())
}

async fn post(
    mut stream: impl Duplex,
    target: &Target,
    headers: &str,
    body: &str,
) -> io::Result<()> {
    let Target {
        host, port, path, ..
    } = target;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    let mut len = 0;
    while len < answer.len() && !answer[..len].contains(&b'\n') {
        match stream.read(&mut answer[len..]).await? {
            0 => break,
            count => len += count,
        }
    }
    let line = String::from_utf8_lossy(&answer[..len]);
    match line.split(' ').nth(1) {
        Some(status) if status.starts_with('2') => Ok(()),
        _ => Err(io::Error::other("the collector refused")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let target = |endpoint: &str| Target::parse(endpoint);
        let expected = Target {
            is_encrypted: false,
            host: "collector".to_owned(),
            port: 4318,
            path: "/v1/metrics".to_owned(),
        };
        assert_eq!(target("http://collector"), Ok(expected.clone()));
        assert_eq!(target("http://collector:4318/"), Ok(expected.clone()));
        let encrypted = Target {
            is_encrypted: true,
            ..expected
        };
        assert_eq!(target("https://collector"), Ok(encrypted));
        assert_eq!(
            target("http://[::1]:1/a").map(|it| (it.host, it.path)),
            Ok(("::1".into(), "/a".into()))
        );
        for wrong in [
            "",
            "ftp://a",
            "a:4318",
            "http://",
            "https://",
            "http://a:x",
            "http://a b",
        ] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_collector_is_sent_a_document() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let target = Target::parse(&format!("http://127.0.0.1:{port}/x")).unwrap();
            for (status, is_taken) in [("200 OK", true), ("503 No", false)] {
                let collector = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut text = vec![0; 4096];
                    let mut len = 0;
                    while !text[..len].ends_with(b"{\"a\":1}") {
                        len += stream.read(&mut text[len..]).await.unwrap();
                    }
                    stream
                        .write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes())
                        .await
                        .unwrap();
                    String::from_utf8_lossy(&text[..len]).into_owned()
                };
                let sending = tokio::spawn({
                    let target = target.clone();
                    async move {
                        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                        post(stream, &target, "X-Key: a\r\n", "{\"a\":1}").await
                    }
                });
                let text = collector.await;
                assert!(text.starts_with("POST /x HTTP/1.1\r\n"), "{text}");
                assert!(
                    text.contains("\r\nContent-Length: 7\r\nX-Key: a\r\n"),
                    "{text}"
                );
                assert_eq!(sending.await.unwrap().is_ok(), is_taken);
            }
        });
    }
}
