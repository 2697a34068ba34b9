//! Payloads of RESTORE that claim more than they are: refused without taking memory for it.

use protocol::Value;
use testkit::client::Client;
use testkit::process::ServerBuilder;

/// What the process may grow by while it refuses.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

/// The longest length there is, as the format has it.
const LENGTH_MAX: &[u8] = b"\x81\xff\xff\xff\xff\xff\xff\xff\xff";
/// 2^32 - 1.
const LENGTH_32: &[u8] = b"\x80\xff\xff\xff\xff";
/// A thousand million.
const LENGTH_30: &[u8] = b"\x80\x3b\x9a\xca\x00";

/// Codes of all types, and some of none.
const CODES: std::ops::Range<u8> = 0..30;

fn restore(client: &mut Client, body: &[u8], version: u16) -> Value {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&version.to_le_bytes());
    let sum = base::crc::crc64(0, &payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    let request = [b"RESTORE".as_slice(), b"k", b"0", &payload, b"REPLACE"];
    client.command(&request).unwrap()
}

fn refuses(client: &mut Client, body: &[u8]) {
    for version in [10, 80] {
        let reply = restore(client, body, version);
        let expected = Value::Error(b"ERR Bad data format".to_vec());
        assert_eq!(reply, expected, "{:?}", &body[..body.len().min(40)]);
    }
}

#[test]
fn claims_take_no_memory() {
    let server = ServerBuilder::iolite()
        .args(&["--proto-max-bulk-len", "64mb"])
        .start()
        .unwrap();
    let mut client = server.client().unwrap();
    let before = server.rss_peak_bytes().unwrap();
    let padding = vec![b'x'; 1 << 12];
    for code in CODES {
        for length in [LENGTH_MAX, LENGTH_32, LENGTH_30] {
            // As a count or a length at once, behind a time, and as one of a text inside.
            refuses(&mut client, &[&[code], length].concat());
            refuses(&mut client, &[&[code], length, &padding].concat());
            refuses(
                &mut client,
                &[&[code], &[0; 8][..], length, &padding].concat(),
            );
            refuses(&mut client, &[&[code, 1], length, &padding].concat());
            // As a compressed text, by either of its lengths.
            let packed = [&[code, 0xc3], length, &[5][..], &padding];
            refuses(&mut client, &packed.concat());
            let packed = [&[code, 0xc3, 5], length, b"\x00a\xe0\xff\x00", &padding];
            refuses(&mut client, &packed.concat());
        }
    }
    // Repetitions of 264 bytes, 200 MB of them, in 2.3 MB.
    let mut packed = b"\x00a".to_vec();
    let repeats: u32 = 760_000;
    (0..repeats).for_each(|_| packed.extend_from_slice(b"\xe0\xff\x00"));
    let [packed_len, len] = [u32::try_from(packed.len()).unwrap(), 1 + 264 * repeats];
    let lengths = [packed_len, len].map(|length| [&[0x80], &length.to_be_bytes()[..]].concat());
    let bomb = [&[0, 0xc3], &lengths[0][..], &lengths[1], &packed].concat();
    refuses(&mut client, &bomb);
    let grown = server.rss_peak_bytes().unwrap() - before;
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes");
    assert_eq!(client.command(&["EXISTS", "k"]).unwrap(), Value::Integer(0));
}
