//! Sends lines of commands to a server without sockets.
//!
//! A line is a request in the quoting of inline commands. Two shortcuts help the fuzzer. A first
//! byte of 0x80 or above, together with the next byte, stands for the name of a command in the
//! table. A line that starts with 0x01 lets time pass: its bytes are digits to base eight, in
//! milliseconds.
//!
//! For any requests, each gets exactly one complete reply, of the types that its protocol version
//! has. The stated effects, replayed into an empty server, lead to the same keys, values, deadlines
//! and encodings.
#![no_main]

mod bench_server;

use bench_server::Server;
use libfuzzer_sys::fuzz_target;
use protocol::split_line;

fuzz_target!(|input: &[u8]| {
    let mut server = Server::new();
    for line in input.split(|&byte| byte == b'\n') {
        if let [1, pause @ ..] = line {
            server.advance_ms(
                pause
                    .iter()
                    .take(12)
                    .fold(0, |sum, &byte| sum * 8 + u64::from(byte)),
            );
        } else if let Some(arguments) = arguments_of(line) {
            server.run(&arguments);
        }
    }
    server.check_replay();
});

fn arguments_of(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let names = bench_server::TABLE.commands();
    let line = match line {
        [shortcut @ 0x80..=0xff, more, rest @ ..] => {
            let number = usize::from(u16::from_be_bytes([shortcut & 0x7f, *more]));
            let name = names[number % names.len()].name;
            [name.as_bytes(), b" ", rest].concat()
        }
        _ => line.to_vec(),
    };
    split_line(&line)
        .ok()
        .filter(|arguments| !arguments.is_empty())
}
