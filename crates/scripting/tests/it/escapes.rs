//! Published escapes from the sandbox of other servers, each of which ends with an error here, and
//! what one script could leave to the next.

use scripting::{Limits, Machine, Value};

use crate::host::{Desk, error, run};

/// Asserts that the script ends with an error, even if the script catches it.
fn fails(source: &str) {
    let outcome = run(source);
    assert!(outcome.is_err(), "{source}: {outcome:?}");
}

#[test]
fn the_way_through_package_is_closed() {
    // CVE-2022-0543: `package` of the system's library reaches the loader.
    fails("local f = package.loadlib('liblua5.1.so.0', 'luaopen_io') return f()");
    for name in [
        "package", "require", "io", "dofile", "loadfile", "debug", "module", "newproxy", "print",
        "getfenv", "setfenv", "buffer", "bit32", "utf8", "vector", "typeof",
    ] {
        let text = error(&format!("return {name}"));
        let wanted = format!("Script attempted to access nonexistent global variable '{name}'");
        assert!(text.contains(&wanted), "{text}");
    }
    fails("return os.execute('id')");
    fails("return os.getenv('HOME').x");
}

#[test]
fn no_bytecode_is_loaded() {
    let text = error("return loadstring(string.dump(function() return 1 end))()");
    assert!(text.contains("attempt to call a nil value"), "{text}");
    fails("return loadstring('\\27Lua\\81\\0\\1\\4\\8\\4\\8\\0')()");
    fails("return loadstring('\\0\\1\\2\\3\\4\\5\\6')()");
    for version in 0..12 {
        fails(&format!(
            "return loadstring('\\{version}' .. string.rep('\\1', 100))()"
        ));
    }
}

#[test]
fn compiling_while_memory_is_collected_is_safe() {
    // CVE-2025-49844: the name of a chunk is collected while the chunk is parsed. Here chunks are
    // compiled outside the heap.
    let source = "local t = {}
        for i = 1, 200 do
            t[i % 10] = loadstring(string.rep('x', i) .. ' = ' .. i, string.rep('n', i))
            collectgarbage()
        end
        return 1";
    assert_eq!(run(source), Ok(Value::Integer(1)));
}

#[test]
fn unpack_counts_its_results() {
    // CVE-2025-46817: the number of results of unpack overflows.
    fails("return unpack({1, 2, 3}, -2, 2147483647)");
    fails("return unpack({1, 2, 3}, 0, 2147483647)");
    fails("return unpack({1, 2, 3}, -2147483648, 2147483647)");
    fails("return #{unpack({1,2,3}, 1, 1e9)}");
}

#[test]
fn metatables_of_basic_types_are_frozen() {
    // CVE-2025-46818: a metatable of a basic type runs code as another user.
    for source in [
        "getmetatable('').__index = function() return 1 end",
        "getmetatable('').__add = function() return 1 end",
        "getmetatable('').__index.upper = nil",
        "setmetatable(getmetatable(''), {})",
        "rawset(getmetatable(''), '__index', {})",
        "string.upper = nil",
        "table.concat = nil",
        "math.floor = nil",
        "cjson.encode = nil",
        "redis.call = nil",
        "rawset(redis, 'call', 1)",
        "rawset(_G, 'x', 1)",
        "setmetatable(_G, {})",
        "getmetatable(_G).__index = nil",
        "getmetatable(_G).__newindex = function() end",
        "setmetatable(getmetatable(_G), {})",
        "_G.redis = {}",
        "redis = {}",
        "x = 1",
        "function f() end",
    ] {
        let text = error(source);
        assert!(
            text.contains("Attempt to modify a readonly table"),
            "{source}: {text}"
        );
    }
    fails("return ('x') + 1");
    fails("local n = getmetatable(1) n.__index = 1");
    fails("local n = getmetatable(cjson.null) n.__index = 1");
    fails("local n = getmetatable(redis.call) n.__index = 1");
    fails("table.insert(redis, 1)");
    fails("table.sort(_G)  table.insert(math, 1)");
}

#[test]
fn long_brackets_stay_inside_their_text() {
    // CVE-2025-46819: a long bracket of the source is read beyond its end.
    for source in [
        "return [",
        "return [=",
        "return [==",
        "--[==",
        "return [=[",
        "--[[",
        "return [==[ ]=]",
    ] {
        let outcome = run(source);
        assert!(
            !matches!(outcome, Ok(Value::Bulk(_))),
            "{source}: {outcome:?}"
        );
    }
    fails("return loadstring('return ' .. string.rep('[', 1e5))()");
    fails("return loadstring('return [' .. string.rep('=', 1e5))()");
}

#[test]
fn the_bit_library_stays_inside_its_texts() {
    // CVE-2024-31449: tohex writes beyond its buffer for the smallest number of digits.
    for digits in [
        "-2147483648",
        "2147483648",
        "-2147483649",
        "1e300",
        "-1e300",
        "0/0",
        "1000000",
    ] {
        let source = format!("return #bit.tohex(65535, {digits}) <= 8");
        assert_eq!(run(&source), Ok(Value::Integer(1)), "{digits}");
    }
}

#[test]
fn cjson_and_cmsgpack_stay_inside_their_buffers() {
    // CVE-2022-24834: the length of an encoded text overflows.
    let source = "local s = string.rep('\\0', 2e7) local ok, text = pcall(cjson.encode, s) return ok and #text or 0";
    assert_eq!(run(source), Ok(Value::Integer(120_000_002)));
    fails("local t = {} for i = 1, 2000 do t = {t} end return cjson.encode(t)");
    fails(
        "cjson.encode_max_depth(2000000000) local t = {} for i = 1, 100000 do t = {t} end return cjson.encode(t)",
    );
    fails("cjson.decode_max_depth(2000000000) return cjson.decode(string.rep('[', 100000))");
    fails("local t = {} t[1] = t return cjson.encode(t)");
    fails("return cmsgpack.unpack(string.rep('\\145', 100000))");
    fails("return cmsgpack.unpack('\\219\\255\\255\\255\\255x')");
    fails("return cmsgpack.unpack_limit('\\1', 1, 5000000000)");
    fails("return cmsgpack.unpack_one('\\1', -2147483648)");
    // CVE-2018-11219: sizes of struct overflow.
    fails("return struct.pack('>I2147483648', '10')");
    fails("return struct.unpack('>I2147483648', '10')");
    fails("return struct.unpack('c0i4', 'abc')");
    fails("return struct.unpack('i4', 'abcd', -100)");
    fails("return struct.unpack('i4', 'abcd', 2^53)");
    fails("return struct.size('c2147483647c2147483647')");
    // CVE-2024-46981: a finalizer runs during the teardown of the machine.
    fails("return newproxy(true)");
    fails("collectgarbage('setstepmul', 'x') collectgarbage({})");
}

#[test]
fn nothing_is_left_for_the_next_script() {
    let mut machine = Machine::new(Limits::default(), "7.4.2").unwrap();
    let mut desk = Desk::default();
    let mut run = |source: &str, keys: &[&[u8]]| {
        let program = machine.compile("0123abcd", source.as_bytes()).unwrap();
        machine.run(&program, keys, &[], &mut desk)
    };
    assert!(run("KEYS[1] = 'mine' cjson.encode_max_depth(1) cjson.encode_invalid_numbers('null') redis.setresp(3) math.randomseed(1) rawset(KEYS, 'secret', 1) error('x')", &[b"k"]).is_err());
    assert_eq!(
        run(
            "return {#KEYS, KEYS.secret == nil, cjson.encode({{{1}}}), pcall(cjson.encode, 0/0)}",
            &[]
        )
        .unwrap(),
        {
            Value::Array(vec![
                Value::Integer(0),
                Value::Integer(1),
                Value::Bulk(b"[[[1]]]".to_vec()),
                Value::Nil,
                Value::Bulk(b"Cannot serialise number: must not be NaN or Inf".to_vec()),
            ])
        }
    );
    assert_eq!(run("return true", &[]), Ok(Value::Integer(1)));
    let seeded = run("math.randomseed(1) return math.random(1e9)", &[]).unwrap();
    assert_ne!(
        run("return math.random(1e9)", &[]).unwrap(),
        run("return math.random(1e9)", &[]).unwrap()
    );
    assert_eq!(
        run("math.randomseed(1) return math.random(1e9)", &[]).unwrap(),
        seeded
    );
    assert!(run("coroutine.yield(1)", &[]).is_err());
    assert_eq!(run("return 1", &[]), Ok(Value::Integer(1)));
}
