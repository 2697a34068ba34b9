//! Sends sequences of commands of one type to two servers at once. One keeps its keys in the real
//! store, the other in the naive one.
//!
//! The first byte chooses the type. Then, for each request, a byte chooses a command of that type
//! or one for any key, the next byte the number of arguments, and one byte each argument. The first
//! argument is one of few keys; the others are words of the syntax, members, numbers and bounds.
//! Thus nearly every input is a sequence of meaningful commands, and the fuzzer searches among
//! them.
//!
//! For any requests, both servers must answer the same and hold the same. The effects that either
//! server stated lead to the same keys in an empty server.
#![no_main]

#[path = "../command_args/bench_server.rs"]
mod bench_server;
mod words;

use bench_server::Server;
use libfuzzer_sys::fuzz_target;
use store::{Options, Store};
use words::Language;

/// A command byte that lets time pass instead.
const PAUSE: u8 = 255;
/// Maximum number of requests. Longer inputs find nothing new.
const REQUESTS_MAX: usize = 200;

fuzz_target!(|input: &[u8]| {
    let Some((type_byte, mut rest)) = input.split_first() else {
        return;
    };
    let language = Language::of(*type_byte);
    let mut real = Server::new();
    let naive = Store::naive(&Options::default());
    let mut twin = Server::over(naive.handle());
    for _ in 0..REQUESTS_MAX {
        let Some(([command, count], arguments)) = rest.split_first_chunk() else {
            break;
        };
        let count = usize::from(count % 8).min(arguments.len());
        let (chosen, behind) = arguments.split_at(count);
        rest = behind;
        if *command == PAUSE {
            let ms = chosen.iter().map(|byte| u64::from(*byte)).sum();
            real.advance_ms(ms);
            twin.advance_ms(ms);
            continue;
        }
        let request = language.request(*command, chosen);
        assert_eq!(
            real.run(&request),
            twin.run(&request),
            "{}",
            shown(&request)
        );
    }
    for key in words::KEYS {
        for request in questions(key) {
            assert_eq!(
                real.run(&request),
                twin.run(&request),
                "{}",
                shown(&request)
            );
        }
    }
    real.check_replay();
    twin.check_replay();
});

/// Returns requests that together read all of a key of any type.
fn questions(key: &[u8]) -> Vec<Vec<Vec<u8>>> {
    const ALL: &[&str] = &[
        "TYPE *",
        "PTTL *",
        "OBJECT ENCODING *",
        "GETWITHETAG *",
        "LRANGE * 0 -1",
        "HGETALL *",
        "SMEMBERS *",
        "ZRANGE * 0 -1 WITHSCORES",
    ];
    let request = |text: &&str| {
        let words = text.split(' ').map(|word| match word {
            "*" => key.to_vec(),
            word => word.as_bytes().to_vec(),
        });
        words.collect()
    };
    ALL.iter().map(request).collect()
}

fn shown(request: &[Vec<u8>]) -> String {
    request.join(&b' ').escape_ascii().to_string()
}
