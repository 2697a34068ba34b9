//! Time per decoded request and per written reply, as the best of many short runs, so that other
//! work on the machine has little influence. `cargo bench -p protocol`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::time::Instant;

use protocol::{Batch, Decoder, Limits, Reply, ReplyBuffer, Resp, encode_request};

const REQUESTS: usize = 1_600;
const RUNS: usize = 400;
const BATCH: usize = 16;

fn main() {
    let key = b"key:000000000123";
    decode("decode GET, key of 16 B", &[b"GET", key]);
    decode(
        "decode SET, key of 16 B, value of 8 B",
        &[b"SET", key, b"12345678"],
    );
    decode(
        "decode SET, key of 16 B, value of 100 B",
        &[b"SET", key, &[b'v'; 100]],
    );
    decode("decode INCR, key of 4 B", &[b"INCR", b"key1"]);
    let mget: Vec<&[u8]> = std::iter::once(&b"MGET"[..])
        .chain([&key[..]; 20])
        .collect();
    decode("decode MGET of 20 keys", &mget);
    write("write +OK", |reply| reply.ok());
    write("write bulk of 8 B", |reply| {
        reply.bulk(black_box(b"12345678"));
    });
    write("write bulk of 100 B", |reply| {
        reply.bulk(black_box(&[b'v'; 100]));
    });
    write("write integer 7", |reply| reply.integer(black_box(7)));
    write("write integer 123456", |reply| {
        reply.integer(black_box(123_456));
    });
    write("write null", |reply| reply.null());
}

fn decode(what: &str, args: &[&[u8]]) {
    let mut input = Vec::new();
    for _ in 0..REQUESTS {
        encode_request(&mut input, args);
    }
    let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
    let limits = Limits::default();
    report(what, || {
        let mut at = 0;
        while at < input.len() {
            let rest = &input[at..];
            let decoded = decoder.decode(rest, &limits, BATCH, &mut batch);
            for index in 0..batch.len() {
                let request = batch.request(index, rest);
                black_box((request.name(), request.arg(1)));
            }
            at += decoded.consumed;
        }
    });
}

fn write(what: &str, reply: impl Fn(&mut Reply<'_>)) {
    let mut buffer = ReplyBuffer::new();
    report(what, || {
        buffer.clear();
        for _ in 0..REQUESTS {
            reply(&mut Reply::new(&mut buffer, black_box(Resp::V2)));
        }
        black_box(buffer.as_slice());
    });
}

fn report(what: &str, mut run: impl FnMut()) {
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    let best = (0..RUNS)
        .map(|_| time(&mut run))
        .fold(f64::INFINITY, f64::min);
    println!("{:6.2} ns  {what}", best * 1e9 / REQUESTS as f64);
}
