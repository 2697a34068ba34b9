//! Bytes in, bytes out, over every transport.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::thread;

use crate::lines::kept;
use crate::rig::{Client, Kind, Rig};

fn over_all_kinds(test: impl Fn(Client)) {
    let rig = Rig::new();
    for kind in rig.kinds() {
        test(rig.connect(kind));
    }
}

#[test]
fn lines_come_back() {
    over_all_kinds(|mut client| {
        client.send("one\n");
        client.expect("one\n");
        client.send("two\nthree\nfo");
        client.expect("two\nthree\n");
        client.send("ur\n");
        client.expect("four\n");
    });
}

#[test]
fn byte_at_a_time() {
    over_all_kinds(|mut client| {
        for byte in b"hello\nblob 5\nabcdeworld\n" {
            client.send([*byte]);
        }
        client.expect("hello\nblob 5\nworld\n");
    });
}

#[test]
fn large_input_arrives_whole() {
    // Around the sizes at which input moves from the thread's buffer to the connection's own
    // buffer.
    let sizes = [
        1, 32_767, 32_768, 65_535, 65_536, 65_537, 200_000, 5_000_000,
    ];
    over_all_kinds(|mut client| {
        for size in sizes {
            let header = format!("blob {size}\n");
            client.send(&header);
            client.send(vec![b'v'; size]);
            client.send("next\n");
            client.expect(&header);
            client.expect("next\n");
        }
    });
}

#[test]
fn long_line_without_known_length() {
    over_all_kinds(|mut client| {
        let line = vec![b'y'; 300_000];
        client.send(&line);
        client.send("\nshort\n");
        client.expect(&line);
        client.expect("\nshort\n");
    });
}

#[test]
fn deep_pipelines_of_mixed_sizes() {
    over_all_kinds(|client| {
        let mut expected = Vec::new();
        let mut sent = Vec::new();
        for number in 0..3_000_usize {
            let header = format!("blob {}\n", number * 37 % 4000);
            sent.extend_from_slice(header.as_bytes());
            sent.resize(sent.len() + number * 37 % 4000, b'v');
            expected.extend_from_slice(header.as_bytes());
        }
        exchange(client, sent, &expected);
    });
}

/// A slow reader makes sends partial; the order of bytes must not change.
#[test]
fn output_larger_than_sockets_take() {
    over_all_kinds(|client| {
        let sent = "big 3000000\nmark\n".repeat(5).into_bytes();
        let mut expected = Vec::new();
        for _ in 0..5 {
            expected.resize(expected.len() + 3_000_000, b'x');
            expected.extend_from_slice(b"\nmark\n");
        }
        exchange(client, sent, &expected);
    });
}

/// More than the sockets of both sides accept: neither side may wait for the other to begin.
#[test]
fn who_reads_nothing_before_all_is_sent_is_answered() {
    over_all_kinds(|mut client| {
        let line = format!("{}\n", "z".repeat(999));
        let sent = line.repeat(30_000).into_bytes();
        client.send(&sent);
        let mut received = vec![0; sent.len()];
        client.read_exact(&mut received).unwrap();
        assert!(received == sent, "replies are lost or out of order");
        client.send("after\n");
        client.expect("after\n");
    });
}

/// Bytes that are received directly into the service's memory, in any pieces, and the bytes around
/// them.
#[test]
fn bytes_received_apart_arrive_whole() {
    over_all_kinds(|client| {
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for number in 0..60_u32 {
            let count = usize::try_from(number * number * 61).unwrap();
            let bytes: Vec<u8> = (number..)
                .map(|byte| byte.to_le_bytes()[0])
                .take(count)
                .collect();
            sent.extend_from_slice(format!("mark {number}\nkeep {count}\n").as_bytes());
            sent.extend_from_slice(&bytes);
            sent.push(b'\n');
            expected.extend_from_slice(format!("mark {number}\n").as_bytes());
            expected.extend_from_slice(kept(&bytes).as_bytes());
        }
        exchange(client, sent, &expected);
    });
}

/// Attachments are sent between the bytes around them, however much a send accepts of each.
#[test]
fn lent_bytes_leave_in_their_places() {
    over_all_kinds(|client| {
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for number in 0..300_usize {
            let count = number * 997 % 60_000;
            sent.extend_from_slice(format!("mark {number}\nlend {count}\n").as_bytes());
            expected.extend_from_slice(format!("mark {number}\n>").as_bytes());
            expected.resize(expected.len() + count, b'y');
            expected.push(b'\n');
        }
        sent.extend_from_slice(b"big 100000\nlend 4000000\n");
        expected.resize(expected.len() + 100_000, b'x');
        expected.extend_from_slice(b"\n>");
        expected.resize(expected.len() + 4_000_000, b'y');
        expected.push(b'\n');
        exchange(client, sent, &expected);
    });
}

/// Sends everything before it reads anything, as far as the other side allows.
fn exchange(mut client: Client, sent: Vec<u8>, expected: &[u8]) {
    if let crate::rig::Stream::InProcess(_) = client.stream {
        // One thread cannot block in both directions: alternate.
        let mut received = Vec::new();
        let mut rest = sent.as_slice();
        let crate::rig::Stream::InProcess(peer) = &mut client.stream else {
            return;
        };
        let mut buffer = vec![0; 5000];
        while received.len() < expected.len() {
            if let Ok(count) = peer.write(rest) {
                rest = &rest[count..];
            }
            if let Ok(count) = peer.read(&mut buffer) {
                assert!(count > 0, "ended early");
                received.extend_from_slice(&buffer[..count]);
            }
        }
        assert!(received == expected);
        return;
    }
    let mut writer = match &client.stream {
        crate::rig::Stream::Tcp(stream) => {
            Box::new(stream.try_clone().unwrap()) as Box<dyn Write + Send>
        }
        crate::rig::Stream::Unix(stream) => Box::new(stream.try_clone().unwrap()),
        crate::rig::Stream::InProcess(_) => return,
    };
    let writing = thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut received = vec![0; expected.len()];
    client.read_exact(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == expected);
}

#[test]
fn output_aside_reaches_the_others_in_order() {
    let rig = Rig::new();
    let mut listener = rig.connect(Kind::Tcp4);
    listener.send("here\n");
    listener.expect("here\n");
    let mut teller = rig.connect(Kind::Unix);
    teller.send("a\ntell\nb\n");
    teller.expect("a\nb\n");
    listener.expect("told\n");
    listener.send("on\n");
    listener.expect("on\n");
}

#[test]
fn unix_socket_has_its_permissions_and_goes_with_the_server() {
    let rig = Rig::new();
    let path = rig.unix_path().to_path_buf();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    rig.stop();
    assert!(!path.exists());
}

#[test]
fn refused_peers_hear_why() {
    let rig = Rig::new();
    rig.shared
        .refuse
        .store(true, std::sync::atomic::Ordering::SeqCst);
    for kind in [Kind::Tcp4, Kind::Unix] {
        let mut client = rig.connect(kind);
        client.expect("refused\n");
        client.expect_end();
    }
    assert_eq!(rig.opened_count(), 0);
}
