//! Tests of Lua 5.1 on top of Luau, and of the functions of `redis` that are not commands.

use scripting::{Level, Value};

use crate::host::{Desk, bulk, error, run, run_with, text};

#[test]
fn numbers_are_written_as_by_lua() {
    for (source, wanted) in [
        ("return tostring(0.1 + 0.2)", "0.3"),
        ("return tostring(123456789012345)", "1.2345678901234e+14"),
        ("return tostring(1e15)", "1e+15"),
        ("return tostring(-3)", "-3"),
        ("return tostring(0/0)", "-nan"),
        ("return tostring(1/0)", "inf"),
        (
            "return string.format('%s %d %s', 1/3, 3.7, 'x')",
            "0.33333333333333 3 x",
        ),
        (
            "return string.format('%5.1f|%-5d|%x', 2.25, 7, 255)",
            "  2.2|7    |ff",
        ),
        ("return tostring(cjson.null)", "userdata: (nil)"),
        ("return _VERSION", "Lua 5.1"),
        ("return loadstring('return \"a\" .. KEYS[1]')()", "ak"),
        (
            "return load((function() local n = 0 return function() n = n + 1 return ({'return ', '\"x\"'})[n] end end)())()",
            "x",
        ),
        ("return ({string.gfind('abc', '%a')()})[1]", "a"),
        ("return table.concat({1, 2, 3}, ',')", "1,2,3"),
    ] {
        let got = run_with(source, &["k"], &[], &mut Desk::default());
        assert_eq!(got, Ok(bulk(wanted)), "{source}");
    }
}

#[test]
fn old_functions_are_there() {
    let got = run(
        "return {table.getn({1, 2}), table.maxn({[7] = 1}), math.mod(7, 4), math.pow(2, 10), math.log10(1000), select('#', unpack({1, 2, 3}))}",
    );
    let wanted = [2, 7, 3, 1024, 3, 3].map(Value::Integer).to_vec();
    assert_eq!(got, Ok(Value::Array(wanted)));
    assert!(error("table.setn({}, 1)").contains("'setn' is obsolete"));
    assert_eq!(
        run(
            "math.randomseed(1234) return {tostring(math.random()), math.random(10), math.random(5, 10)}"
        ),
        Ok(Value::Array(vec![
            bulk("0.74087692971382"),
            Value::Integer(3),
            Value::Integer(7)
        ]))
    );
}

#[test]
fn pcall_gives_texts() {
    for (source, wanted) in [
        (
            "local ok, e = pcall(redis.call, 'nothing') return e",
            "ERR Unknown Redis command called from script",
        ),
        ("local ok, e = pcall(error, {err = 'x'}) return e", "x"),
        (
            "local ok, e = pcall(cjson.decode, 'x') return e",
            "Expected value but found invalid token at character 1",
        ),
        (
            "local ok, e = pcall(function() x = 1 end) return e",
            "user_script:1: Attempt to modify a readonly table",
        ),
        (
            "local ok, e = pcall(function() return x end) return e",
            "user_script:1: Script attempted to access nonexistent global variable 'x'",
        ),
        (
            "local ok, e = xpcall(function() error('x') end, function(e) return 'h:' .. e end) return e",
            "h:user_script:1: x",
        ),
    ] {
        assert_eq!(text(source), wanted, "{source}");
    }
}

#[test]
fn the_host_is_asked() {
    let mut desk = Desk::default();
    run_with(
        "redis.log(redis.LOG_WARNING, 'a', 1, 'b') redis.setresp(3)",
        &[],
        &[],
        &mut desk,
    )
    .unwrap();
    assert_eq!(desk.logged, [(Level::Warning, "a 1 b".to_owned())]);
    assert_eq!(desk.resp, Some(3));
    let got = run(
        "return {redis.acl_check_cmd('get', 'x'), redis.acl_check_cmd('set', 'x', 1), server.sha1hex('abc')}",
    );
    let wanted = vec![
        Value::Integer(1),
        Value::Nil,
        bulk("a9993e364706816aba3e25717850c26c9cd0d89d"),
    ];
    assert_eq!(got, Ok(Value::Array(wanted)));
    assert!(error("redis.acl_check_cmd('nope')").starts_with("ERR Invalid command passed"));
}

#[test]
fn replies_of_the_third_version() {
    assert_eq!(
        run("redis.setresp(3) return {true, false}"),
        Ok(Value::Array(vec![
            Value::Boolean(true),
            Value::Boolean(false)
        ]))
    );
    assert_eq!(
        run("return {map = {a = 1}}"),
        Ok(Value::Map(vec![(bulk("a"), Value::Integer(1))]))
    );
    assert_eq!(
        run("return {set = {a = true}}"),
        Ok(Value::Set(vec![bulk("a")]))
    );
    assert_eq!(run("return {double = 3}"), Ok(Value::Double(3.0)));
    assert_eq!(
        run("return {big_number = '12'}"),
        Ok(Value::BigNumber(b"12".to_vec()))
    );
}

#[test]
fn tables_are_packed_with_what_was_there_first() {
    let source = "local a = {x=nil,y=5} local b = {x=a} a['x'] = b
        local encoded, h = cmsgpack.pack(a), ''
        for i = 1, #encoded do h = h .. string.format('%02x', string.byte(encoded, i)) end
        return h";
    let unit = "82a17905a17881a178";
    assert_eq!(text(source), format!("{}c0", unit.repeat(8)));
}

#[test]
fn a_thousand_arguments_of_a_command() {
    let mut desk = Desk::default();
    run_with(
        "local a = {} for i = 1, 7999 do a[i] = 1 end redis.pcall('lpush', unpack(a))",
        &[],
        &[],
        &mut desk,
    )
    .unwrap();
    assert_eq!(desk.calls[0].split(' ').count(), 8000);
}
