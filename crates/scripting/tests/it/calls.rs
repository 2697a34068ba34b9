//! Tests of commands, keys and arguments, and of replies both ways.

use scripting::Value;

use crate::host::{Desk, bulk, error, run, run_with};

#[test]
fn keys_and_arguments_are_there() {
    let got = run_with(
        "return {KEYS[1], ARGV[2], #KEYS}",
        &["k"],
        &["a", "b"],
        &mut Desk::default(),
    );
    assert_eq!(
        got,
        Ok(Value::Array(vec![bulk("k"), bulk("b"), Value::Integer(1),]))
    );
}

#[test]
fn a_command_gets_numbers_as_text() {
    let mut desk = Desk::default();
    let got = run_with("return redis.call('echo', 0.1)", &[], &[], &mut desk);
    assert_eq!(got, Ok(bulk("0.10000000000000001")));
    run_with(
        "redis.call('echo', 3) redis.call('echo', 1e20) redis.call('echo', -7)",
        &[],
        &[],
        &mut desk,
    )
    .unwrap();
    assert_eq!(desk.calls[1..], ["echo 3", "echo 1e+20", "echo -7"]);
}

#[test]
fn encoded_replies_are_read_in_place() {
    for (frame, wanted) in [
        ("$3\\r\\nabc\\r\\n", bulk("abc")),
        ("$-1\\r\\n", Value::Nil),
        (
            "*2\\r\\n:5\\r\\n+OK\\r\\n",
            Value::Array(vec![Value::Integer(5), Value::Status(b"OK".to_vec())]),
        ),
        ("_\\r\\n", Value::Nil),
        (",1.5\\r\\n", Value::Double(1.5)),
        (
            "%1\\r\\n$1\\r\\na\\r\\n:1\\r\\n",
            Value::Map(vec![(bulk("a"), Value::Integer(1))]),
        ),
        (
            "=7\\r\\ntxt:abc\\r\\n",
            Value::Verbatim(*b"txt", b"abc".to_vec()),
        ),
    ] {
        assert_eq!(
            run(&format!("return redis.call('frame', '{frame}')")),
            Ok(wanted),
            "{frame}"
        );
    }
    assert!(
        error("return redis.call('frame', '-ERR x\\r\\n')").starts_with("ERR x script: 0123abcd")
    );
    assert!(error("return redis.call('frame', '*2\\r\\n:1\\r\\n')").contains("malformed"));
}

#[test]
fn errors_have_a_place() {
    assert_eq!(
        error("\nerror('boom')"),
        "ERR user_script:2: boom script: 0123abcd, on @user_script:2."
    );
    assert_eq!(
        error("redis.call('nothing')"),
        "ERR Unknown Redis command called from script script: 0123abcd, on @user_script:1."
    );
    assert_eq!(
        run("return redis.pcall('nothing')"),
        Ok(Value::Error(
            b"ERR Unknown Redis command called from script".to_vec()
        ))
    );
}

#[test]
fn any_number_of_keys_and_arguments_arrives() {
    for (keys_count, args_count) in [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 3),
        (100, 100),
        (150, 60),
        (300, 3000),
    ] {
        let words = |count: usize, letter: &str| {
            (0..count).map(|i| letter.repeat(i % 5)).collect::<Vec<_>>()
        };
        let (keys, args) = (words(keys_count, "k"), words(args_count, "a"));
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let got = run_with(
            "return table.concat(KEYS, ',') .. ';' .. table.concat(ARGV, ',')",
            &keys,
            &args,
            &mut Desk::default(),
        );
        let wanted = format!("{};{}", keys.join(","), args.join(","));
        assert_eq!(got, Ok(bulk(&wanted)));
    }
}

/// Returns an encoded reply of one text.
fn frame_of(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

#[test]
fn texts_of_any_length_come_and_go_unchanged() {
    for length in [0, 1, 1_000, 32_767, 32_768, 32_769, 300_000] {
        let long = "0123456789".repeat(length / 10 + 1)[..length].to_owned();
        let got = run_with(
            "return {redis.call('frame', ARGV[1]), KEYS[1], ARGV[2], #KEYS, #ARGV}",
            &[&long, "second"],
            &[&frame_of(&long), ""],
            &mut Desk::default(),
        );
        let wanted = [
            bulk(&long),
            bulk(&long),
            bulk(""),
            Value::Integer(2),
            Value::Integer(2),
        ];
        assert_eq!(got, Ok(Value::Array(wanted.to_vec())), "{length}");
        let got = run_with(
            "return KEYS[1]",
            &[&long],
            &["unseen"],
            &mut Desk::default(),
        );
        assert_eq!(got, Ok(bulk(&long)), "{length}");
    }
}

#[test]
fn tables_of_texts_are_as_long_as_the_reply() {
    for count in [0, 1, 2, 5_000] {
        let items: String = (0..count).map(|item| frame_of(&item.to_string())).collect();
        let got = run_with(
            "local t = redis.call('frame', ARGV[1]) return {#t, t[1], t[#t]}",
            &[],
            &[&format!("*{count}\r\n{items}")],
            &mut Desk::default(),
        );
        let mut wanted = vec![Value::Integer(count)];
        if count > 0 {
            wanted.extend([bulk("0"), bulk(&(count - 1).to_string())]);
        }
        assert_eq!(got, Ok(Value::Array(wanted)), "{count}");
    }
    let with_none = "*3\r\n$1\r\na\r\n$-1\r\n$0\r\n\r\n";
    let source = "local t = redis.call('frame', ARGV[1]) return {t[1], t[2] == false, t[3], #t}";
    let wanted = [bulk("a"), Value::Integer(1), bulk(""), Value::Integer(3)];
    let got = run_with(source, &[], &[with_none], &mut Desk::default());
    assert_eq!(got, Ok(Value::Array(wanted.to_vec())));
}

#[test]
fn errors_in_replies_are_raised_or_given() {
    let given = "local r = redis.pcall('frame', ARGV[1]) return r.err";
    for length in [5, 40_000] {
        let text = format!("ERR {}", "x".repeat(length));
        let frame = format!("-{text}\r\n");
        let got = run_with(given, &[], &[&frame], &mut Desk::default());
        assert_eq!(got, Ok(bulk(&text)));
        let got = run_with(
            "return redis.call('frame', ARGV[1])",
            &[],
            &[&frame],
            &mut Desk::default(),
        );
        let told = String::from_utf8_lossy(got.unwrap_err().text()).into_owned();
        assert!(
            told.starts_with(&text) && told.ends_with("on @user_script:1."),
            "{told}"
        );
    }
}

#[test]
fn an_argument_that_is_none_is_refused_wherever_it_stands() {
    for call in [
        "'get', nil",
        "nil, 'k'",
        "'get', 'k', {}",
        "nil",
        "'a', 'b', 'c', nil",
    ] {
        let told = error(&format!("return redis.call({call})"));
        assert!(
            told.contains("must be strings or integers"),
            "{call}: {told}"
        );
    }
}

#[test]
fn there_is_no_debugger() {
    for name in ["breakpoint", "debug"] {
        let told = error(&format!("redis.{name}('x')"));
        let wanted =
            format!("ERR redis.{name}() is not supported: there is no debugger of scripts");
        assert!(told.starts_with(&wanted), "{told}");
    }
}
