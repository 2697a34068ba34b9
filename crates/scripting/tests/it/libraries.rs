//! Tests of loading libraries of functions and calling them.

use scripting::{Limits, Machine, Value};

use crate::host::{Desk, bulk};

fn machine() -> Machine {
    Machine::new(Limits::default(), "7.4.2").unwrap()
}

fn refusal(source: &str) -> String {
    let error = machine().load_library(source.as_bytes()).err().unwrap();
    String::from_utf8_lossy(error.text()).into_owned()
}

#[test]
fn functions_are_registered_in_both_forms() {
    let mut machine = machine();
    let source = b"#!lua name=mylib\n\
        local function helper(x) return redis.call('get', x) end\n\
        redis.register_function('f1', function(keys, args) return {helper(keys[1]), args[1], math.max(1, 2)} end)\n\
        redis.register_function{function_name='f2', callback=function() return 1 end, flags={'no-writes'}, description='says one'}";
    let library = machine.load_library(source).unwrap();
    assert_eq!(library.name, b"mylib");
    let [first, second] = library.functions.as_slice() else {
        panic!("two functions");
    };
    assert_eq!(second.description.as_deref(), Some(&b"says one"[..]));
    assert_eq!(second.flags, [b"no-writes".to_vec()]);
    let got = machine.call_function(first, &[b"k"], &[b"a"], &mut Desk::default());
    assert_eq!(
        got,
        Ok(Value::Array(vec![bulk("k"), bulk("a"), Value::Integer(2)]))
    );
}

#[test]
fn a_library_sees_little_while_it_is_loaded() {
    for (body, wanted) in [
        (
            "redis.call('get', 'x')",
            "ERR user_function:2: Script attempted to access nonexistent global variable 'call'",
        ),
        (
            "redis.setresp(3)",
            "ERR user_function:2: Script attempted to access nonexistent global variable 'setresp'",
        ),
        (
            "x = 1",
            "ERR user_function:2: Attempt to modify a readonly table",
        ),
        (
            "return x",
            "ERR user_function:2: Script attempted to access nonexistent global variable 'x'",
        ),
        (
            "math.random()",
            "ERR user_function:2: Script attempted to access nonexistent global variable 'math'",
        ),
        (
            "redis.register_function('f1')",
            "ERR calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
        ),
        (
            "redis.register_function()",
            "ERR wrong number of arguments to redis.register_function",
        ),
        (
            "redis.register_function('f1', 1)",
            "ERR second argument to redis.register_function must be a function",
        ),
        (
            "redis.register_function('f-1', function() end)",
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ),
        (
            "redis.register_function{function_name='f1'}",
            "ERR redis.register_function must get a callback argument",
        ),
        (
            "redis.register_function{callback=function() end}",
            "ERR redis.register_function must get a function name argument",
        ),
        (
            "redis.register_function{function_name='f1', callback=function() end, flags={'x'}}",
            "ERR unknown flag given",
        ),
        (
            "redis.register_function{function_name='f1', callback=function() end, zz=1}",
            "ERR unknown argument given to redis.register_function",
        ),
        (
            "redis.register_function('f', function() end) redis.register_function('f', function() end)",
            "ERR Function already exists in the library",
        ),
        (
            "while redis.REDIS_VERSION do end",
            "@user_function: 2: FUNCTION LOAD timeout",
        ),
    ] {
        assert_eq!(refusal(&format!("#!lua name=l\n{body}")), wanted, "{body}");
    }
}

#[test]
fn the_globals_of_a_library_are_no_way_out_while_it_is_loaded() {
    for (body, wanted) in [
        (
            "local mt = getmetatable(_G)",
            "ERR user_function:2: Script attempted to access nonexistent global variable 'getmetatable'",
        ),
        (
            "_G.redis = {}",
            "ERR user_function:2: Attempt to modify a readonly table",
        ),
    ] {
        assert_eq!(refusal(&format!("#!lua name=l\n{body}")), wanted, "{body}");
    }
}

#[test]
fn errors_of_functions_have_their_place() {
    let mut machine = machine();
    let source = b"#!lua name=l\n\
        redis.register_function('g1', function() error('hm') end)\n\
        redis.register_function('g2', function() x = 1 end)\n\
        redis.register_function('g3', function() return KEYS end)\n\
        redis.register_function('g4', function() return redis.call('nope') end)";
    let library = machine.load_library(source).unwrap();
    let mut desk = Desk::default();
    let wanted = [
        "ERR user_function:2: hm script: g1, on @user_function:2.",
        "ERR user_function:3: Attempt to modify a readonly table script: g2, on @user_function:3.",
        "ERR user_function:4: Script attempted to access nonexistent global variable 'KEYS' script: g3, on @user_function:4.",
        "ERR Unknown Redis command called from script script: g4, on @user_function:5.",
    ];
    for (function, wanted) in library.functions.iter().zip(wanted) {
        let error = machine
            .call_function(function, &[], &[], &mut desk)
            .unwrap_err();
        assert_eq!(String::from_utf8_lossy(error.text()), wanted);
    }
}

#[test]
fn a_library_must_be_a_program() {
    assert!(refusal("#!lua name=l\nsyntax(").starts_with("user_function:2: "));
}
