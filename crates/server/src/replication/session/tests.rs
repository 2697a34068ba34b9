//! Both ends of a link over real sockets: which peers are accepted, and which messages are parsed
//! from whom.

use std::net::TcpListener;
use std::thread;

use super::*;

fn identity(id: u8, secret: &[u8]) -> Identity {
    Identity::new(TermId([id; 20]), b"node", secret)
}

/// Both ends of a connection.
fn pair() -> (Arc<dyn Conduit>, Arc<dyn Conduit>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    (conduit(one).unwrap(), conduit(other).unwrap())
}

/// Returns the results of a replica with one secret and a primary with another.
fn meet(
    of_replica: &[u8],
    of_primary: &[u8],
) -> (Result<Session, LinkFault>, Result<Session, LinkFault>) {
    let (one, other) = pair();
    let primary = identity(2, of_primary);
    let welcoming = thread::spawn(move || {
        let welcomed = welcome(Arc::clone(&other), &primary);
        if welcomed.is_err() {
            other.end();
        }
        welcomed
    });
    let greeted = greet(one, &identity(1, of_replica));
    (greeted, welcoming.join().unwrap())
}

#[test]
fn who_knows_the_secret_is_let_in() {
    for secret in [b"".as_slice(), b"secret"] {
        let (greeted, welcomed) = meet(secret, secret);
        let (replica, primary) = (greeted.unwrap(), welcomed.unwrap());
        assert_eq!(replica.peer.node, TermId([2; 20]));
        assert_eq!(
            (primary.peer.node, &*primary.peer.name),
            (TermId([1; 20]), &b"node"[..])
        );
    }
}

#[test]
fn who_does_not_know_it_is_not_and_learns_no_proof() {
    for (of_replica, of_primary) in [(b"a".as_slice(), b"b".as_slice()), (b"", b"b"), (b"a", b"")] {
        let (greeted, welcomed) = meet(of_replica, of_primary);
        assert!(matches!(welcomed, Err(LinkFault::Secret)));
        assert!(matches!(
            greeted,
            Err(LinkFault::Secret | LinkFault::Closed)
        ));
    }
}

fn encrypting(id: u8, secret: &[u8], is_wanted: bool) -> Identity {
    Identity {
        encryption: Some(Encryption {
            tls: Arc::new(LinkTls::self_made().unwrap()),
            is_wanted,
            by_certificate: false,
        }),
        ..identity(id, secret)
    }
}

/// A man in the middle forwards everything, and does its own TLS handshake with each end.
#[test]
fn a_link_is_encrypted_where_one_end_wants_it_and_nobody_stands_between() {
    for (of_replica, of_primary, expected) in [
        (true, false, true),
        (false, true, true),
        (false, false, false),
    ] {
        let (one, other) = pair();
        let primary = encrypting(2, b"secret", of_primary);
        let welcoming = thread::spawn(move || welcome(other, &primary));
        let greeted = greet(one, &encrypting(1, b"secret", of_replica)).unwrap();
        let mut welcomed = welcoming.join().unwrap().unwrap();
        assert_eq!(
            (greeted.is_encrypted, welcomed.is_encrypted),
            (expected, expected)
        );
        let mut writer = greeted.writer;
        let ping = Message::Ping {
            unix_ms: 1,
            echo_unix_ms: 0,
        };
        writer.send(&ping, &|| false).unwrap();
        welcomed.reader.set_time(HELLO_TIME).unwrap();
        assert_eq!(welcomed.reader.next().unwrap(), Received::Message(ping));
    }

    let ((one, mid_one), (mid_other, other)) = (pair(), pair());
    let welcoming = thread::spawn(move || welcome(other, &encrypting(2, b"secret", true)));
    let between = thread::spawn(move || {
        let pass = |from: &Arc<dyn Conduit>, to: &Arc<dyn Conduit>| {
            let mut bytes = [0; 4096];
            let count = from.receive(&mut bytes).unwrap();
            assert_eq!(to.send(&bytes[..count]).unwrap(), count);
        };
        pass(&mid_one, &mid_other);
        pass(&mid_other, &mid_one);
        let tls = LinkTls::self_made().unwrap();
        let (to_replica, _) = mid_one.encrypt(&tls, Side::Primary).unwrap();
        let (to_primary, _) = mid_other.encrypt(&tls, Side::Replica).unwrap();
        // The replica's proof.
        pass(&to_replica, &to_primary);
        let heard = to_primary.receive(&mut [0; 64]);
        mid_one.end();
        heard.unwrap_or(0)
    });
    let greeted = greet(one, &encrypting(1, b"secret", false));
    assert!(matches!(welcoming.join().unwrap(), Err(LinkFault::Secret)));
    assert!(greeted.is_err());
    assert_eq!(between.join().unwrap(), 0);
}

#[test]
fn certificates_are_shown_by_both_ends_or_by_none() {
    let (one, other) = pair();
    let mut primary = encrypting(2, b"secret", true);
    primary.encryption.as_mut().unwrap().by_certificate = true;
    let welcoming = thread::spawn(move || welcome(other, &primary));
    let greeted = greet(one, &encrypting(1, b"secret", true));
    assert!(matches!(greeted, Err(LinkFault::Certificates)));
    assert!(matches!(
        welcoming.join().unwrap(),
        Err(LinkFault::Certificates)
    ));
}

#[test]
fn a_node_does_not_follow_itself() {
    let (one, other) = pair();
    let welcoming = thread::spawn(move || welcome(other, &identity(1, b"")));
    let greeted = greet(one, &identity(1, b""));
    assert!(matches!(welcoming.join().unwrap(), Err(LinkFault::Own)));
    assert!(greeted.is_err());
}

/// Returns the hello of a release with these format versions.
fn hello_of(link_version: u16, log_version: u16, part_version: u16) -> Hello {
    Hello {
        link_version,
        log_version,
        part_version,
        ..identity(1, b"").hello()
    }
}

/// Two releases on one link: the newer end speaks the older version, and the receiver of data must
/// be able to read what the sender writes.
#[test]
fn a_newer_release_is_followed_by_as_new_ones_and_follows_older_ones() {
    let ours = identity(2, b"").hello();
    let (link, log, part) = (ours.link_version, ours.log_version, ours.part_version);
    let older = hello_of(link, log - 1, part);
    let newer = hello_of(link + 1, log + 1, part + 1);
    for (peer, follows, is_followed) in [
        (&older, true, false),
        (&ours, true, true),
        (&newer, false, true),
    ] {
        assert!(check_link_version(peer).is_ok());
        let as_replica = check_data_versions(peer, Side::Replica);
        let as_primary = check_data_versions(peer, Side::Primary);
        assert_eq!(
            (as_replica.is_ok(), as_primary.is_ok()),
            (follows, is_followed)
        );
    }
    let refused = check_data_versions(&newer, Side::Replica).unwrap_err();
    let text = refused.to_string();
    let expected = format!(
        "the peer speaks version {} of the log, and this server {log}",
        log + 1
    );
    assert_eq!(text, expected);
    let unknown = check_link_version(&hello_of(0, log, part)).unwrap_err();
    assert!(unknown.to_string().contains("version 0 of the link"));
}

/// Over sockets: a peer of the next release, whose hello has fields that this release does not
/// know.
#[test]
fn a_hello_of_the_next_release_is_understood() {
    let (one, other) = pair();
    let own = identity(1, b"secret");
    let welcoming = thread::spawn(move || welcome(other, &identity(2, b"secret")));
    let mut greeting = Greeting::new(one);
    let newer = Hello {
        link_version: link::VERSION + 1,
        log_version: own.hello().log_version + 1,
        features: 1 << 31,
        ..own.hello()
    };
    greeting.send(&Message::Hello(newer.clone())).unwrap();
    let ours = greeting.writer.bytes.clone();
    let (_, theirs) = greeting.hear_hello(&own).unwrap();
    let proof = own.key.prove(&[OF_REPLICA, &ours, &theirs, &[]]);
    greeting.send(&Message::Proof(proof)).unwrap();
    let welcomed = welcoming.join().unwrap().unwrap();
    assert_eq!(welcomed.peer, newer);
}

/// A proof for another role or other nonces, as an eavesdropper could replay it.
#[test]
fn what_was_said_once_is_of_no_worth_again() {
    let (one, other) = pair();
    let own = identity(1, b"secret");
    let welcoming = thread::spawn(move || welcome(other, &identity(2, b"secret")));
    let mut greeting = Greeting::new(one);
    let hello = greeting.say_hello(&own).unwrap();
    let (_, theirs) = greeting.hear_hello(&own).unwrap();
    // A proof for the other role and for other nonces.
    let wrong = own.key.prove(&[OF_PRIMARY, &hello, &theirs]);
    greeting.send(&Message::Proof(wrong)).unwrap();
    assert!(matches!(welcoming.join().unwrap(), Err(LinkFault::Secret)));
}

#[test]
fn nothing_but_a_short_hello_is_parsed_before_the_proof() {
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        // A header that announces a body of 513 bytes.
        [
            513_u32.to_le_bytes().to_vec(),
            vec![128, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat(),
        // An attach.
        {
            let mut bytes = Vec::new();
            link::encode(
                &Message::Attach(replication::Attach::default(), None),
                0,
                &mut bytes,
            );
            bytes
        },
    ] {
        let (one, other) = pair();
        let welcoming = thread::spawn(move || welcome(other, &identity(2, b"")));
        one.send(&bytes).unwrap();
        assert!(welcoming.join().unwrap().is_err());
    }
}

/// A peer that sends a hello byte by byte does not occupy a thread.
#[test]
fn a_hello_in_many_pieces_is_given_up() {
    let (one, other) = pair();
    let welcoming = thread::spawn(move || welcome(other, &identity(2, b"")));
    let mut bytes = Vec::new();
    link::encode(&Message::Hello(identity(1, b"").hello()), 0, &mut bytes);
    for byte in bytes.chunks(1) {
        if one.send(byte).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(welcoming.join().unwrap(), Err(LinkFault::Silent)));
}

#[test]
fn messages_of_all_lengths_arrive_in_order() {
    let (greeted, welcomed) = meet(b"", b"");
    let (mut replica, mut primary) = (greeted.unwrap(), welcomed.unwrap());
    let lengths = [0, 1, 300, 256 << 10, 1_000_000, 5];
    let sending = thread::spawn(move || {
        for length in lengths {
            let bytes = vec![7; length];
            let frames = link::Frames {
                term: 1,
                first: length as u64,
                committed: 0,
                bytes: &bytes,
            };
            primary
                .writer
                .send(&Message::Frames(frames), &|| true)
                .unwrap();
        }
        primary
    });
    let mut seen = Vec::new();
    while seen.len() < lengths.len() {
        match replica.reader.next().unwrap() {
            Received::Message(Message::Frames(frames)) => seen.push(frames.bytes.len()),
            Received::Message(other) => panic!("{other:?}"),
            Received::Unknown | Received::Nothing => {}
        }
    }
    assert_eq!(seen, lengths);
    drop(sending.join().unwrap());
}
