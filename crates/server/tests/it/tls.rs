//! Tests of encrypted connections as clients see them: the built server, with certificates made for
//! the test.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use protocol::Value;
use rcgen::KeyPair;
use reactor::Transport as _;
use testkit::client::{Client, Link};
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, free_port};
use tls::{ClientOptions, ClientStream, Handshake};

use crate::certificates::Files;

/// Maximum time for anything.
const PATIENCE: Duration = Duration::from_secs(60);

impl Files {
    /// Starts a server with an encrypted port, and `more` on its command line.
    fn serve(&self, more: &[&str]) -> Served {
        let mut words = Vec::new();
        for (directive, file) in [
            ("--tls-cert-file", "server.crt"),
            ("--tls-key-file", "server.key"),
            ("--tls-ca-cert-file", "ca.crt"),
        ] {
            words.extend([directive.to_owned(), self.text(file)]);
        }
        words.extend(more.iter().map(|word| (*word).to_owned()));
        // Another process may take the port between the search and the start.
        let mut attempts = 0;
        loop {
            attempts += 1;
            let port = free_port().unwrap();
            let port_words = ["--tls-port".to_owned(), port.to_string()];
            let builder = ServerBuilder::iolite().args(&port_words).args(&words);
            match builder.start() {
                Err(error) if attempts < 20 && error.kind() == io::ErrorKind::AddrInUse => {}
                server => {
                    let server = server.unwrap();
                    return Served { server, port };
                }
            }
        }
    }

    fn options(&self, shows_certificate: bool) -> ClientOptions {
        ClientOptions {
            authorities_file: Some(self.path("ca.crt")),
            certificate_file: shows_certificate.then(|| self.path("client.crt")),
            key_file: shows_certificate.then(|| self.path("client.key")),
            ..ClientOptions::default()
        }
    }

    fn client(&self, shows_certificate: bool) -> tls::Client {
        tls::Client::load(&self.options(shows_certificate)).unwrap()
    }
}

struct Served {
    server: Server,
    port: u16,
}

impl Served {
    fn socket(&self) -> TcpStream {
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)));
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Opens an encrypted connection.
    fn connect(&self, client: &tls::Client) -> io::Result<Client> {
        let socket = self.socket();
        socket.set_nonblocking(true)?;
        secure(socket.into(), client)
    }

    /// Returns a field of INFO.
    fn info(&self, name: &str) -> String {
        let reply = self
            .server
            .client()
            .unwrap()
            .command(&["INFO", "tls", "clients"]);
        let Value::Bulk(text) = reply.unwrap() else {
            panic!("no INFO");
        };
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| *key == name);
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let patience = Patience::of(PATIENCE);
        while !holds(self) {
            assert!(patience.lasts(), "{what}: {}", self.server.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn secure(socket: OwnedFd, client: &tls::Client) -> io::Result<Client> {
    let mut stream = client
        .connect(socket, "localhost")
        .map_err(io::Error::other)?;
    while stream.handshake()? != Handshake::Done {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Client::over(Box::new(TlsLink(stream))))
}

/// Sends a PING. The refusal of a client's certificate comes only after the client's side of the
/// handshake is done.
fn ping(client: io::Result<Client>) -> io::Result<Value> {
    client?.command(&["PING"])
}

/// A link that waits by sleeping for a moment, as only a test may.
struct TlsLink(ClientStream);

impl TlsLink {
    fn wait<T>(
        &mut self,
        mut step: impl FnMut(&mut ClientStream) -> io::Result<T>,
    ) -> io::Result<T> {
        let patience = Patience::of(PATIENCE);
        loop {
            match step(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && patience.lasts() => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                other => return other,
            }
        }
    }
}

impl Read for TlsLink {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.wait(|stream| stream.recv(out))
    }
}

impl Write for TlsLink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|stream| stream.send(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Link for TlsLink {
    fn set_blocking(&mut self, _blocks: bool) -> io::Result<()> {
        Ok(())
    }
}

fn pong() -> Value {
    Value::Simple(b"PONG".to_vec())
}

#[test]
fn encrypted_and_plain_clients_see_one_server() {
    let files = Files::new();
    let socket = files.text("tls.sock");
    let served = files.serve(&["--tls-unixsocket", &socket]);
    let client = files.client(true);
    let mut encrypted = served.connect(&client).unwrap();
    let mut plain = served.server.client().unwrap();
    let mut encrypted_unix = {
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_nonblocking(true).unwrap();
        secure(stream.into(), &client).unwrap()
    };
    assert_eq!(
        encrypted.command(&["SET", "k", "v"]).unwrap(),
        Value::Simple(b"OK".to_vec())
    );
    assert_eq!(
        plain.command(&["GET", "k"]).unwrap(),
        Value::Bulk(b"v".to_vec())
    );
    assert_eq!(
        encrypted_unix.command(&["GET", "k"]).unwrap(),
        Value::Bulk(b"v".to_vec())
    );
    assert_eq!(served.info("tls_handshakes_completed"), "2");
    assert_ne!(served.info("tls_server_cert_serial"), "none");
    assert_ne!(served.info("tls_ca_cert_expires_in_seconds"), "0");
    assert_eq!(
        encrypted.command(&["QUIT"]).unwrap(),
        Value::Simple(b"OK".to_vec())
    );
    assert!(
        encrypted.receive().unwrap().is_none(),
        "a farewell, then the end"
    );
}

/// Values fill every buffer on the way, and the socket does not take the batches at once.
#[test]
fn long_values_and_long_batches_arrive_whole() {
    let files = Files::new();
    let served = files.serve(&[]);
    let mut encrypted = served.connect(&files.client(true)).unwrap();
    for bytes in [
        1,
        16_383,
        16_384,
        16_385,
        65_536,
        100_000,
        1 << 20,
        5_000_001,
    ] {
        let value: Vec<u8> = (0..=250).cycle().take(bytes).collect();
        let set = encrypted.command(&[&b"SET"[..], b"long", &value]).unwrap();
        assert_eq!(set, Value::Simple(b"OK".to_vec()), "{bytes}");
        let got = encrypted.command(&["GET", "long"]).unwrap();
        assert!(got == Value::Bulk(value), "{bytes}");
    }
    encrypted
        .command(&["SET", "middle", &"x".repeat(3_000)])
        .unwrap();
    let requests: Vec<_> = (0..5_000).map(|_| ["GET", "middle"]).collect();
    for reply in encrypted.pipeline(&requests).unwrap() {
        assert!(reply == Value::Bulk(vec![b'x'; 3_000]));
    }
}

#[test]
fn clients_show_a_certificate_where_one_is_asked_for() {
    let files = Files::new();
    let strangers = Files::new();
    let served = files.serve(&[]);
    let mut plain = served.server.client().unwrap();
    let mut set = |value: &str| plain.command(&["CONFIG", "SET", "tls-auth-clients", value]);
    let (with, without) = (files.client(true), files.client(false));
    let stranger = tls::Client::load(&ClientOptions {
        authorities_file: Some(files.path("ca.crt")),
        ..strangers.options(true)
    });
    let stranger = stranger.unwrap();
    assert_eq!(ping(served.connect(&with)).unwrap(), pong());
    assert!(ping(served.connect(&without)).is_err());
    set("optional").unwrap();
    assert_eq!(ping(served.connect(&without)).unwrap(), pong());
    assert!(ping(served.connect(&stranger)).is_err());
    set("no").unwrap();
    assert_eq!(ping(served.connect(&stranger)).unwrap(), pong());
    assert!(
        ping(served.connect(&strangers.client(false))).is_err(),
        "the client does not know who signed this server"
    );
    assert!(
        served
            .server
            .log()
            .contains("Error accepting a client connection: ")
    );
}

/// Returns the user of a new connection, by the certificate called `name`, or without one.
fn user_by(served: &Served, files: &Files, name: Option<&str>) -> io::Result<Value> {
    let client = tls::Client::load(&ClientOptions {
        certificate_file: name.map(|name| files.path(&format!("{name}.crt"))),
        key_file: name.map(|name| files.path(&format!("{name}.key"))),
        ..files.options(false)
    });
    served
        .connect(&client.unwrap())?
        .command(&["ACL", "WHOAMI"])
}

#[test]
fn a_certificate_names_its_clients_user() {
    let (files, strangers) = (Files::new(), Files::new());
    files.sign("nobody");
    let served = files.serve(&["--tls-auth-clients", "optional"]);
    let mut plain = served.server.client().unwrap();
    let mut run = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(
            plain.command(&words).unwrap(),
            Value::Simple(b"OK".to_vec())
        );
    };
    let is = |name: &str| Value::Bulk(name.as_bytes().to_vec());
    let user_of = |name| user_by(&served, &files, name).unwrap();
    run("ACL SETUSER client on +@all ~app:*");
    run("ACL SETUSER spiffe://test/client on +@all ~*");
    assert_eq!(
        user_of(Some("client")),
        is("default"),
        "names mean nothing yet"
    );
    run("CONFIG SET tls-auth-clients-user CN");
    assert_eq!(user_of(Some("client")), is("client"));
    assert_eq!(
        user_of(Some("nobody")),
        is("default"),
        "there is no such user"
    );
    assert_eq!(user_of(None), is("default"));
    assert!(
        user_by(&served, &strangers, Some("client")).is_err(),
        "somebody else signed it"
    );
    let mut restricted = served.connect(&files.client(true)).unwrap();
    let refused = restricted.command(&["GET", "k"]).unwrap();
    assert_eq!(
        refused,
        Value::Error(b"NOPERM No permissions to access a key".to_vec())
    );
    let again = files.client(true).resuming();
    for _ in 0..2 {
        let user = served.connect(&again).unwrap().command(&["ACL", "WHOAMI"]);
        assert_eq!(user.unwrap(), is("client"), "also when a session goes on");
    }
    assert_ne!(served.info("tls_handshakes_resumed"), "0");
    run("CONFIG SET tls-auth-clients-user URI");
    assert_eq!(user_of(Some("client")), is("spiffe://test/client"));
    assert_eq!(user_of(Some("nobody")), is("default"));
    run("CONFIG SET tls-auth-clients-user CN");
    run("ACL SETUSER client off");
    assert_eq!(
        user_of(Some("client")),
        is("default"),
        "who is off is nobody"
    );
    run("CONFIG SET requirepass secret");
    run("ACL SETUSER client on");
    let asks = user_of(Some("nobody"));
    assert_eq!(
        asks,
        Value::Error(b"NOAUTH Authentication required.".to_vec())
    );
    assert_eq!(user_of(Some("client")), is("client"), "needs no password");
}

#[test]
fn who_connects_after_a_change_is_taken_as_it_says() {
    let files = Files::new();
    let served = files.serve(&["--tls-auth-clients", "optional", "--io-threads", "2"]);
    let mut plain = served.server.client().unwrap();
    let mut run = |words: &[&str]| {
        let reply = plain.command(words).unwrap();
        assert_eq!(reply, Value::Simple(b"OK".to_vec()));
    };
    run(&["ACL", "SETUSER", "client", "on", "+@all"]);
    // Each worker in turn takes a connection, one of them before it knows of the change.
    for _ in 0..8 {
        for (field, user) in [("CN", "client"), ("off", "default")] {
            run(&["CONFIG", "SET", "tls-auth-clients-user", field]);
            let seen = user_by(&served, &files, Some("client")).unwrap();
            assert_eq!(seen, Value::Bulk(user.as_bytes().to_vec()), "{field}");
        }
    }
}

#[test]
fn a_change_that_cannot_be_made_changes_nothing() {
    let files = Files::new();
    let served = files.serve(&["--tls-auth-clients", "no"]);
    let mut plain = served.server.client().unwrap();
    let client = files.client(false);
    files.write("other.key", &KeyPair::generate().unwrap().serialize_pem());
    for (name, value) in [
        ("tls-key-file", files.text("other.key")),
        ("tls-cert-file", files.text("nowhere")),
        ("tls-cert-file", files.text("server.key")),
        ("tls-protocols", "TLSv1.1".to_owned()),
        ("tls-ciphers", "NULL".to_owned()),
        ("tls-auth-clients", "maybe".to_owned()),
    ] {
        let refusal = plain.command(&["CONFIG", "SET", name, &value]).unwrap();
        assert!(
            matches!(refusal, Value::Error(_)),
            "{name} {value}: {refusal:?}"
        );
        assert_eq!(ping(served.connect(&client)).unwrap(), pong());
    }
    let set = ["CONFIG", "SET", "tls-protocols", "TLSv1.2"];
    assert_eq!(plain.command(&set).unwrap(), Value::Simple(b"OK".to_vec()));
    assert_eq!(ping(served.connect(&client)).unwrap(), pong());
    let mut told = Value::Null;
    let port = (0..20).map(|_| free_port().unwrap()).find(|port| {
        let set = ["CONFIG", "SET", "tls-port", &port.to_string()];
        told = plain.command(&set).unwrap();
        told == Value::Simple(b"OK".to_vec())
    });
    let port = port.unwrap_or_else(|| panic!("{told:?}"));
    let moved = Served { port, ..served };
    assert_eq!(ping(moved.connect(&client)).unwrap(), pong());
}

#[test]
fn files_that_change_are_read_again() {
    let files = Files::new();
    let served = files.serve(&["--tls-auto-reload-interval", "1"]);
    let before = served.info("tls_server_cert_serial");
    let mut old = served.connect(&files.client(true)).unwrap();
    files.write("server.crt", "half of a file");
    served.wait_for("damage is told", |it| {
        it.server.log().contains("cannot be used")
    });
    assert_eq!(ping(served.connect(&files.client(true))).unwrap(), pong());
    files.sign("server");
    served.wait_for("another certificate", |it| {
        it.info("tls_server_cert_serial") != before
    });
    assert_eq!(ping(served.connect(&files.client(true))).unwrap(), pong());
    assert_eq!(old.command(&["PING"]).unwrap(), pong());
}

#[test]
fn a_session_goes_on() {
    let files = Files::new();
    let served = files.serve(&[]);
    let client = files.client(true).resuming();
    for _ in 0..3 {
        assert_eq!(ping(served.connect(&client)).unwrap(), pong());
    }
    assert_eq!(served.info("tls_handshakes_resumed"), "2");
    let mut plain = served.server.client().unwrap();
    plain
        .command(&["CONFIG", "SET", "tls-session-caching", "no"])
        .unwrap();
    assert_eq!(ping(served.connect(&client)).unwrap(), pong());
    assert_eq!(served.info("tls_handshakes_resumed"), "2");
}

#[test]
fn who_does_not_speak_tls_is_told_and_forgotten() {
    let files = Files::new();
    let served = files.serve(&[]);
    for _ in 0..50 {
        let mut plain = served.socket();
        plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
        let mut told = String::new();
        plain.read_to_string(&mut told).unwrap();
        assert_eq!(told, "-ERR This port takes TLS connections only\r\n");
    }
    // Truncated beginnings of a handshake, including an empty one, and a handshake with a wrong
    // middle.
    for length in 0..40_u8 {
        let mut stranger = served.socket();
        let record = [&[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3][..], &[0xaa; 40]].concat();
        let rest = if length % 2 == 0 { 300 } else { 0 };
        for part in [&record[..usize::from(length)], &[0xff; 300][..rest]] {
            // The server may have closed the connection already.
            let _refused_early = stranger.write_all(part);
        }
    }
    // Connections that the server has not accepted yet are not counted as pending either.
    served.wait_for("everybody came and is gone", |it| {
        it.info("tls_handshakes_failed") == "90"
            && it.info("tls_handshakes_pending") == "0"
            && it.info("connected_clients") == "1"
    });
    assert_eq!(ping(served.connect(&files.client(true))).unwrap(), pong());
}

#[test]
fn a_server_that_cannot_read_its_files_does_not_start() {
    let files = Files::new();
    let nowhere = files.text("nowhere");
    let start = |words: &[&str]| {
        let port = free_port().unwrap().to_string();
        let words = [&["--tls-port", &port][..], words].concat();
        ServerBuilder::iolite()
            .args(&words)
            .start()
            .unwrap_err()
            .to_string()
    };
    assert!(start(&[]).contains("No tls-cert-file configured!"));
    let (certificate, key) = (files.text("server.crt"), files.text("server.key"));
    let pair = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
    assert!(start(&pair).contains("Either tls-ca-cert-file or tls-ca-cert-dir"));
    let told = start(&[&pair[..], &["--tls-ca-cert-file", &nowhere]].concat());
    assert!(told.contains(&nowhere), "{told}");
    assert!(Path::new(&certificate).exists());
}

/// People use the page without certificates. The server shows the certificate of its files.
#[cfg(feature = "http")]
#[test]
fn the_management_port_shows_the_servers_certificate() {
    let files = Files::new();
    let (certificate, key) = (files.path("server.crt"), files.path("server.key"));
    let port = free_port().unwrap();
    let words = [
        "--http-port",
        &port.to_string(),
        "--http-tls",
        "yes",
        "--tls-cert-file",
        certificate.to_str().unwrap(),
        "--tls-key-file",
        key.to_str().unwrap(),
    ];
    let _server = ServerBuilder::iolite().args(&words).start().unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let connect = || {
        let patience = Patience::of(PATIENCE);
        loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(socket) => return socket,
                Err(error) => assert!(patience.lasts(), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let ask = |client: &tls::Client| -> io::Result<String> {
        let socket = connect();
        socket.set_nonblocking(true)?;
        let stream = client.connect(socket.into(), "localhost");
        let mut stream = stream.map_err(io::Error::other)?;
        while stream.handshake()? != Handshake::Done {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut link = TlsLink(stream);
        link.write_all(request)?;
        let mut text = Vec::new();
        // It does not matter whether the end is announced.
        let _ended = link.read_to_end(&mut text);
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let answered = ask(&files.client(false)).unwrap();
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    // A new certificate is shown as soon as it exists. A client that trusts no authority gets no
    // connection.
    files.sign("server");
    assert!(
        ask(&files.client(false))
            .unwrap()
            .starts_with("HTTP/1.1 200")
    );
    let nobody = tls::Client::load(&ClientOptions::default()).unwrap();
    assert!(ask(&nobody).is_err());
    // Without TLS there is no HTTP response.
    let mut plain = connect();
    plain.write_all(request).unwrap();
    let mut text = Vec::new();
    let _closed = plain.read_to_end(&mut text);
    assert!(!text.starts_with(b"HTTP/"), "{}", text.escape_ascii());
}

/// The setting for the port suffices for handshakes. Plain text is not accepted.
#[test]
fn the_memcached_port_may_be_encrypted() {
    let files = Files::new();
    let (certificate, key) = (files.path("server.crt"), files.path("server.key"));
    let port = free_port().unwrap();
    let words = [
        "--tls-memcached-port",
        &port.to_string(),
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        certificate.to_str().unwrap(),
        "--tls-key-file",
        key.to_str().unwrap(),
    ];
    let server = ServerBuilder::iolite().args(&words).start().unwrap();
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let stream = files.client(false).connect(socket.into(), "localhost");
    let mut stream = stream.unwrap();
    while stream.handshake().unwrap() != Handshake::Done {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut link = TlsLink(stream);
    let requests = b"set k 5 0 5\r\nhello\r\nget k\r\nquit\r\n";
    link.write_all(requests).unwrap();
    let mut text = Vec::new();
    // It does not matter whether the end is announced.
    let _ended = link.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    assert_eq!(text, "STORED\r\nVALUE k 5 5\r\nhello\r\nEND\r\n");
    let value = server.client().unwrap().command(&["GET", "k"]).unwrap();
    assert_eq!(value, Value::Bulk(b"hello".to_vec()));
    let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"get k\r\n").unwrap();
    let mut told = Vec::new();
    let _ended = plain.read_to_end(&mut told);
    assert!(!told.starts_with(b"VALUE"), "{}", told.escape_ascii());
}

/// If only encrypted connections are accepted, tools for operators must use one, too. The password
/// is on no command line.
#[test]
fn tools_that_look_after_a_server_come_by_tls() {
    let files = Files::new();
    let served = files.serve(&["--requirepass", "secret"]);
    let port = served.port.to_string();
    let told = |words: &[&str], is_encrypted: bool| {
        let mut tool = std::process::Command::new(testkit::process::iolite_program());
        tool.args(words).args(["-h", "localhost", "-p", &port]);
        if is_encrypted {
            for (option, file) in [
                ("--cacert", "ca.crt"),
                ("--cert", "client.crt"),
                ("--key", "client.key"),
            ] {
                tool.arg(option).arg(files.path(file));
            }
            tool.arg("--tls");
        }
        let output = tool.env("IOLITE_AUTH", "secret").output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    let examined = told(&["doctor"], true);
    assert!(examined.contains("memory-unlimited"), "{examined}");
    let refused = told(&["doctor"], false);
    assert!(refused.contains("TLS connections only"), "{refused}");
    let status = told(&["cluster", "status"], true);
    assert!(status.contains("in no control group"), "{status}");
}
