//! Calls of a loaded script with one `redis.call`, for counting instructions: the difference of
//! `valgrind --tool=callgrind target/…/examples/call 2000` and of the same with 1000, divided by
//! 1000.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on fails")]

use scripting::{Host, Level, Limits, Machine, Refused, Reply, Stop, Value};

/// Answers every command with the same value.
struct Answers;

impl Host for Answers {
    fn call(&mut self, _: &[&[u8]]) -> Reply<'_> {
        Reply::Encoded(b"$5\r\nvalue\r\n")
    }

    fn log(&mut self, _: Level, _: &[u8]) {}

    fn acl_allows(&mut self, _: &[&[u8]]) -> Result<bool, Refused> {
        Ok(true)
    }

    fn set_resp(&mut self, _: u8) {}

    fn interrupted(&mut self) -> Option<Stop> {
        None
    }
}

fn main() {
    let calls: u32 = std::env::args()
        .nth(1)
        .map_or(1000, |text| text.parse().unwrap());
    let mut machine = Machine::new(Limits::default(), "7.4.2").unwrap();
    let program = machine
        .compile("name", b"return redis.call('get', KEYS[1])")
        .unwrap();
    for _ in 0..calls {
        let value = machine
            .run(&program, &[b"some:key"], &[], &mut Answers)
            .unwrap();
        assert_eq!(value, Value::Bulk(b"value".to_vec()));
    }
}
