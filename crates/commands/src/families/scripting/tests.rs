//! Scripts over the engine: what they may do, their effects, and that they are atomic.

use protocol::Value;

use testkit::engine_server::TestServer;

fn eval(server: &mut TestServer, source: &str, rest: &[&str]) -> Value {
    let mut args: Vec<&[u8]> = vec![b"EVAL", source.as_bytes()];
    args.extend(rest.iter().map(|arg| arg.as_bytes()));
    server.run_args(&args)
}

fn refusal(server: &mut TestServer, source: &str, rest: &[&str]) -> String {
    match eval(server, source, rest) {
        Value::Error(text) => String::from_utf8(text).unwrap(),
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn a_script_changes_its_keys_and_says_what_commands_did() {
    let mut server = TestServer::new();
    let source = "redis.call('SET', KEYS[1], ARGV[1]); return redis.call('INCR', KEYS[1])";
    assert_eq!(
        eval(&mut server, source, &["1", "n", "41"]),
        Value::Integer(42)
    );
    assert_eq!(server.text("GET n"), "42");
}

#[test]
fn keys_that_were_not_declared_are_found_out() {
    let mut server = TestServer::new();
    let source = "for i = 1, 20 do redis.call('RPUSH', 'list:' .. i, i) end \
                  return redis.call('SUNIONSTORE', 'd', 'a', 'b', 'c')";
    for _ in 0..4 {
        assert_eq!(eval(&mut server, source, &["0"]), Value::Integer(0));
    }
    assert_eq!(server.integer("LLEN list:20"), 4);
}

#[test]
fn a_run_that_begins_anew_leaves_nothing_of_the_first() {
    let mut server = TestServer::new();
    server.run("SET pointer target");
    let source = "local at = redis.call('GET', KEYS[1]); return redis.call('INCR', at)";
    assert_eq!(
        eval(&mut server, source, &["1", "pointer"]),
        Value::Integer(1)
    );
    assert_eq!(
        eval(&mut server, source, &["1", "pointer"]),
        Value::Integer(2)
    );
}

#[test]
fn the_whole_store_is_had_for_what_is_about_all_keys() {
    let mut server = TestServer::new();
    server.run("SET a 1");
    let source = "redis.call('SET', 'b', 1) redis.call('FLUSHALL') return redis.call('DBSIZE')";
    assert_eq!(eval(&mut server, source, &["0"]), Value::Integer(0));
    let source = "redis.call('SET', 'b', 1) return redis.call('DBSIZE')";
    assert_eq!(eval(&mut server, source, &["0"]), Value::Integer(1));
}

#[test]
fn the_database_that_a_script_chose_is_its_own() {
    let mut server = TestServer::new();
    let source = "redis.call('SELECT', 5) return redis.call('SET', KEYS[1], 1)";
    assert_eq!(
        eval(&mut server, source, &["1", "k"]),
        Value::Simple(b"OK".to_vec())
    );
    assert_eq!(server.run("GET k"), Value::Null);
    server.run("SELECT 5");
    assert_eq!(server.text("GET k"), "1");
}

#[test]
fn scripts_may_not_run_everything() {
    let mut server = TestServer::new();
    for (source, text) in [
        (
            "redis.call('EVAL', 'return 1', 0)",
            "ERR This Redis command is not allowed from script",
        ),
        (
            "redis.call('MULTI')",
            "ERR This Redis command is not allowed from script",
        ),
        (
            "redis.call('NOSUCH')",
            "ERR Unknown Redis command called from script",
        ),
        (
            "redis.call('CONFIG', 'NOSUCH')",
            "ERR Unknown Redis command called from script",
        ),
        (
            "redis.call('GET')",
            "ERR Wrong number of args calling Redis command from script",
        ),
    ] {
        let told = refusal(&mut server, source, &["0"]);
        assert!(told.starts_with(text), "{source}: {told}");
    }
}

#[test]
fn what_blocks_does_not() {
    let mut server = TestServer::new();
    let source = "return redis.call('BLPOP', KEYS[1], 0)";
    assert_eq!(eval(&mut server, source, &["1", "list"]), Value::Null);
}

#[test]
fn an_error_keeps_what_was_done_before() {
    let mut server = TestServer::new();
    let source = "redis.call('SET', KEYS[1], 'x') redis.call('INCR', KEYS[1])";
    let told = refusal(&mut server, source, &["1", "k"]);
    assert!(
        told.starts_with("ERR value is not an integer or out of range"),
        "{told}"
    );
    assert_eq!(server.text("GET k"), "x");
}

#[test]
fn the_effects_are_those_of_its_commands() {
    let mut server = TestServer::new();
    server.effects();
    let source = "redis.call('SET', KEYS[1], 5) redis.call('INCRBY', KEYS[1], 2)";
    eval(&mut server, source, &["1", "k"]);
    let effects = server.effects();
    assert_eq!(effects.len(), 2, "{effects:?}");
}

#[test]
fn transactions_hold_what_scripts_need() {
    let mut server = TestServer::new();
    server.run("MULTI");
    eval(&mut server, "return redis.call('INCR', 'one')", &["0"]);
    eval(&mut server, "return redis.call('INCR', 'other')", &["0"]);
    let expected = Value::Array(vec![Value::Integer(1), Value::Integer(1)]);
    assert_eq!(server.run("EXEC"), expected);
}

#[test]
fn a_worker_leaves_aside_what_may_take_long_before_it_changes_anything() {
    let mut server = TestServer::of_worker();
    for (line, next) in [
        (
            "EVAL \"for i = 1, 2 do redis.call('INCR', 'n') end\" 0",
            engine::Next::Aside,
        ),
        ("EVAL \"redis.call('INCR', 'n')\" 0", engine::Next::Read),
    ] {
        assert_eq!(server.pipeline(&[line]).1, next, "{line}");
    }
    assert_eq!(server.text("GET n"), "1");
}

#[test]
fn a_script_does_not_wait_for_a_stream() {
    let mut server = TestServer::new();
    server.run("XGROUP CREATE s g $ MKSTREAM");
    for source in [
        "return redis.call('xread', 'BLOCK', 0, 'STREAMS', KEYS[1], '$')",
        "return redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'block', 0, 'STREAMS', KEYS[1], '>')",
    ] {
        assert_eq!(eval(&mut server, source, &["1", "s"]), Value::Null);
    }
    for source in [
        "return redis.call('xread', 'STREAMS', KEYS[1], '$')",
        "return redis.call('xreadgroup', 'GROUP', 'block', 'c', 'STREAMS', KEYS[1], '>')",
    ] {
        server.run("XGROUP CREATE s block $");
        assert_eq!(eval(&mut server, source, &["1", "s"]), Value::Null);
    }
    server.run("MULTI");
    server.run("XREAD BLOCK 0 STREAMS s $");
    assert!(!matches!(server.run("EXEC"), Value::Error(_)));
}

#[test]
fn a_script_cannot_reset_the_cluster() {
    let source = "return redis.call('cluster', 'reset', 'hard')";
    let refusal = refusal(&mut TestServer::new(), source, &["0"]);
    let told = "ERR This Redis command is not allowed from script";
    assert!(refusal.starts_with(told), "{refusal}");
}

#[test]
fn who_tests_lets_scripts_run_what_is_not_for_scripts() {
    let mut server = TestServer::with_debug();
    let source = "return redis.call('debug', 'protocol', 'integer')";
    let told = "ERR This Redis command is not allowed from script";
    let before = refusal(&mut server, source, &["0"]);
    assert!(before.starts_with(told), "{before}");
    server.run("DEBUG SET-DISABLE-DENY-SCRIPTS 1");
    assert_eq!(eval(&mut server, source, &["0"]), Value::Integer(12345));
    let attribute = "redis.setresp(3) return redis.call('debug', 'protocol', 'attrib')";
    let behind = Value::Bulk(b"Some real reply following the attribute".to_vec());
    assert_eq!(eval(&mut server, attribute, &["0"]), behind);
    server.run("DEBUG SET-DISABLE-DENY-SCRIPTS 0");
    assert_eq!(refusal(&mut server, source, &["0"]), before);
}

#[test]
fn what_a_library_did_wrong_is_told_under_the_name_that_it_used() {
    for table in ["redis", "server"] {
        let mut server = TestServer::new();
        let code = format!("#!lua name=l\n{table}.register_function()");
        let Value::Error(refusal) = server.run_args(&[b"FUNCTION", b"LOAD", code.as_bytes()])
        else {
            panic!("it registers nothing");
        };
        let refusal = String::from_utf8_lossy(&refusal);
        let told = format!("wrong number of arguments to {table}.register_function");
        assert!(refusal.contains(&told), "{refusal}");
    }
}

#[test]
fn members_of_a_set_come_in_order_where_a_script_asks() {
    let mut server = TestServer::new();
    server.run("SADD s m b z a q c");
    let source = "return table.concat(redis.call('sort', KEYS[1], 'by', 'nothing'))";
    let sorted = eval(&mut server, source, &["1", "s"]);
    assert_eq!(sorted, Value::Bulk(b"abcmqz".to_vec()));
}

#[test]
fn a_script_that_was_forgotten_is_not_found_where_it_ran() {
    let mut server = TestServer::new();
    let name = server.text("SCRIPT LOAD return");
    let call = format!("EVALSHA {name} 0");
    assert_eq!(server.run(&call), Value::Null);
    assert_eq!(server.run(&call.to_ascii_uppercase()), Value::Null);
    server.run("SCRIPT FLUSH");
    assert_eq!(
        server.error(&call),
        "NOSCRIPT No matching script. Please use EVAL."
    );
    server.run("SCRIPT LOAD return");
    assert_eq!(server.run(&call), Value::Null);
}
