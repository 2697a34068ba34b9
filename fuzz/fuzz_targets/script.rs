//! Uses untrusted bytes as a script, as a library, and as input of the libraries that scripts have.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use scripting::{Host, Level, Limits, Machine, Refused, Reply, Stop, Value};

/// Scripts that take the bytes as an argument.
const USES: [&str; 5] = [
    "local ok, v = pcall(cjson.decode, ARGV[1]) if ok then return cjson.encode(v) end",
    "local ok, v = pcall(cmsgpack.unpack, ARGV[1]) if ok then return cmsgpack.pack(v) end",
    "return {pcall(struct.unpack, ARGV[1], ARGV[1])}",
    "return {pcall(struct.pack, ARGV[1], 1, 'x', -1, 1e300, 'y')}",
    "return redis.pcall(ARGV[1])",
];

/// A script that shows whether the environment is unchanged: the number of globals, and some
/// functions.
const WHOLE: &str = "local n = 0 for k, v in pairs(_G) do n = n + 1 end
    return n .. cjson.encode({1, 'x'}) .. tostring(0.1) .. #KEYS .. type(redis.call)";

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new(
        Machine::new(Limits { memory_bytes_max: 32 << 20, load_steps_max: 10_000 }, "7.4.2").unwrap(),
    );
}

/// A server that returns each command as a frame, and stops a script after a while.
struct Echo {
    patience: u32,
    frame: Vec<u8>,
}

impl Host for Echo {
    fn call(&mut self, arguments: &[&[u8]]) -> Reply<'_> {
        self.frame = arguments.concat();
        Reply::Encoded(&self.frame)
    }

    fn log(&mut self, _: Level, _: &[u8]) {}

    fn acl_allows(&mut self, _: &[&[u8]]) -> Result<bool, Refused> {
        Ok(true)
    }

    fn set_resp(&mut self, _: u8) {}

    fn interrupted(&mut self) -> Option<Stop> {
        match self.patience.checked_sub(1) {
            Some(left) => self.patience = left,
            None => return Some(Stop { text: "enough" }),
        }
        None
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else {
        return;
    };
    let mut host = Echo {
        patience: 20,
        frame: Vec::new(),
    };
    MACHINE.with_borrow_mut(|machine| {
        match kind % 8 {
            0 | 1 => {
                if let Ok(program) = machine.compile("f", bytes) {
                    let _outcome = machine.run(&program, &[b"k"], &[b"a"], &mut host);
                }
            }
            2 => {
                if let Ok(library) = machine.load_library(bytes) {
                    for function in &library.functions {
                        let _outcome = machine.call_function(function, &[], &[b"a"], &mut host);
                    }
                }
            }
            other => {
                let source = USES[usize::from(other) - 3];
                let program = machine.compile("f", source.as_bytes()).unwrap();
                let _outcome = machine.run(&program, &[], &[bytes], &mut host);
            }
        }
        host.patience = 20;
        let program = machine.compile("f", WHOLE.as_bytes()).unwrap();
        let whole = machine.run(&program, &[], &[], &mut host);
        assert_eq!(whole, Ok(Value::Bulk(b"34[1,\"x\"]0.10function".to_vec())));
    });
});
