//! Tests with scripts that do not end by themselves, and scripts that use up all memory.

use scripting::{Limits, Machine, ScriptError, Value};

use crate::host::{Desk, run};

const STOPPED: &str =
    "ERR Script killed by user with SCRIPT KILL. script: 0123abcd, on @user_script:1.";

fn machine() -> Machine {
    let limits = Limits {
        memory_bytes_max: 16 << 20,
        ..Limits::default()
    };
    Machine::new(limits, "7.4.2").unwrap()
}

/// Runs a script with a `Host` that soon stops it.
fn stopped(source: &str) -> String {
    let mut desk = Desk {
        patience: Some(20),
        ..Desk::default()
    };
    let mut machine = machine();
    let program = machine.compile("0123abcd", source.as_bytes()).unwrap();
    match machine.run(&program, &[], &[], &mut desk) {
        Err(ScriptError::Stopped(_, text)) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn endless_loops_are_stopped() {
    for source in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) return f() end while true do pcall(f) end",
        "while true do pcall(error) end",
        "repeat until false",
        "for i = 1, math.huge do end",
        "while true do xpcall(function() error('x') end, function() while true do end end) end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do pcall(function() return t[1] end) end",
        "local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end",
        "coroutine.wrap(function() while true do pcall(function() end) end end)()",
        "string.gsub(string.rep('a', 1e6), '.', function() end) while true do end",
        "table.sort({3, 1, 2}, function() while true do end end)",
        "loadstring('while true do end')()",
        "while true do pcall(redis.call, 'ok') end",
        "while true do redis.pcall('nothing') end",
    ] {
        assert_eq!(stopped(source), STOPPED, "{source}");
    }
}

#[test]
fn patterns_that_explode_are_stopped() {
    for source in [
        "string.find(string.rep('a', 50), string.rep('a?', 50) .. string.rep('a', 50))",
        "string.rep('a', 100000):find(string.rep('.-', 50) .. 'b')",
        "while true do pcall(string.find, string.rep('a', 50000), '.-.-.-.-b') end",
    ] {
        assert_eq!(stopped(source), STOPPED, "{source}");
    }
}

#[test]
fn a_plain_search_takes_linear_time() {
    let got = run(
        "local t = string.rep('a', 4e6) return {t:find(string.rep('a', 2e6) .. 'b', 1, true) or 0, (t .. 'b'):find(string.rep('a', 2e6) .. 'b')}",
    );
    let wanted = vec![
        Value::Integer(0),
        Value::Integer(2_000_001),
        Value::Integer(4_000_001),
    ];
    assert_eq!(got, Ok(Value::Array(wanted)));
}

#[test]
fn a_command_can_stop_a_script_that_catches_errors() {
    let mut desk = Desk::default();
    let mut machine = machine();
    let program = machine
        .compile(
            "0123abcd",
            b"pcall(redis.call, 'stop') redis.pcall('ok') return 1",
        )
        .unwrap();
    let error = machine.run(&program, &[], &[], &mut desk).unwrap_err();
    assert!(matches!(error, ScriptError::Stopped(..)), "{error:?}");
    assert_eq!(desk.calls, ["stop"]);
}

#[test]
fn memory_is_limited_and_the_machine_goes_on() {
    let mut machine = machine();
    let mut desk = Desk::default();
    for source in [
        "return #string.rep('x', 1e9)",
        "local t = {} for i = 1, 1e8 do t[i] = {} end",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 1e5 do t[i] = string.rep('x', 1000) end return table.concat(t)",
        "local t = {} while true do t[#t + 1] = function() return t end end",
        "local function f() return f() + 1 end f()",
        "local t = {} for i = 1, 3e6 do t[i] = 1 end return cjson.encode(t)",
        "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
        "return struct.pack('!8i1000000000', 1)",
        "return struct.unpack('c2147483647', 'x')",
        "local s = string.rep('[', 1e6) return cjson.decode(s)",
    ] {
        let program = machine.compile("0123abcd", source.as_bytes()).unwrap();
        let outcome = machine.run(&program, &[], &[], &mut desk);
        assert!(
            matches!(outcome, Err(ScriptError::Raised(_))),
            "{source}: {outcome:?}"
        );
        let small = machine.compile("0123abcd", b"return 'x'").unwrap();
        assert_eq!(
            machine.run(&small, &[], &[], &mut desk),
            Ok(Value::Bulk(b"x".to_vec()))
        );
    }
}

#[test]
fn deep_replies_end_in_an_error() {
    let got = run("local a = {} local b = {a} a[1] = b return a").unwrap();
    let mut depth = 0;
    let mut value = &got;
    while let Value::Array(items) = value {
        depth += 1;
        value = &items[0];
    }
    assert_eq!(
        value,
        &Value::Error(b"ERR reached lua stack limit".to_vec())
    );
    assert!(depth > 100);
}

#[test]
fn what_a_script_leaves_is_no_loss_to_the_next() {
    let mut machine = machine();
    let mut desk = Desk::default();
    let source = b"local t = {} for i = 1, 6000 do t[i] = string.rep('x', 1000) .. i end return #t";
    let program = machine.compile("0123abcd", source).unwrap();
    for _ in 0..10 {
        let got = machine.run(&program, &[], &[], &mut desk);
        assert_eq!(got, Ok(Value::Integer(6000)));
    }
}
