//! SORT, through the commands.

use testkit::engine_server::TestServer;

#[test]
fn elements_are_compared_as_numbers_or_as_bytes() {
    let mut server = TestServer::new();
    server.run("RPUSH l 10 9 2 30");
    assert_eq!(server.texts("SORT l"), ["2", "9", "10", "30"]);
    assert_eq!(server.texts("SORT l DESC"), ["30", "10", "9", "2"]);
    assert_eq!(server.texts("SORT_RO l ALPHA"), ["10", "2", "30", "9"]);
    assert_eq!(server.texts("SORT l LIMIT 1 2"), ["9", "10"]);
    assert_eq!(
        server.error("SORT_RO l STORE d"),
        "ERR syntax error",
        "only SORT stores"
    );
    server.run("RPUSH l x");
    assert_eq!(
        server.error("SORT l"),
        "ERR One or more scores can't be converted into double"
    );
}

#[test]
fn patterns_lead_to_strings_and_to_fields() {
    let mut server = TestServer::new();
    server.run("SADD s a b c");
    server.run("MSET w_a 3 w_b 1 w_c 2");
    server.run("HSET o_a name first");
    server.run("HSET o_b name second");
    assert_eq!(server.texts("SORT s BY w_*"), ["b", "c", "a"]);
    assert_eq!(
        server.texts("SORT s BY w_* LIMIT 0 1 GET # GET o_*->name GET w_*"),
        ["b", "second", "1"]
    );
    assert_eq!(
        server.texts("SORT s BY o_*->name ALPHA DESC"),
        ["b", "a", "c"],
        "what leads nowhere is least"
    );
}

#[test]
fn more_keys_than_are_locked_one_by_one_are_read_as_well() {
    let mut server = TestServer::new();
    let count = super::LOCKED_KEYS_MAX + 1;
    let mut expected = Vec::new();
    for number in 0..count {
        server.run(&format!("RPUSH l {number}"));
        server.run(&format!("SET w_{number} {}", count - number));
        expected.push(number.to_string());
    }
    expected.reverse();
    assert_eq!(server.texts("SORT l BY w_*"), expected);
    server.run("SORT l BY w_* GET w_* STORE d");
    assert_eq!(server.texts("LRANGE d 0 1"), ["1", "2"]);
    server.assert_effects_replay();
}

#[test]
fn sorted_sets_and_lists_keep_their_order_when_nothing_is_sorted() {
    let mut server = TestServer::new();
    server.run("ZADD z 1 c 2 b 3 a");
    server.run("RPUSH l 5 1 4");
    assert_eq!(server.texts("SORT z BY nosort"), ["c", "b", "a"]);
    assert_eq!(server.texts("SORT z BY nosort DESC LIMIT 1 5"), ["b", "c"]);
    assert_eq!(server.texts("SORT l BY nosort DESC LIMIT 0 2"), ["4", "1"]);
    assert_eq!(server.texts("SORT l BY nosort LIMIT 1 -1"), ["1", "4"]);
}

#[test]
fn a_kept_result_replaces_what_was_there_or_removes_it() {
    let mut server = TestServer::new();
    server.run("SADD s b a");
    server.run("SET d x");
    assert_eq!(server.integer("SORT s BY nosort STORE d"), 2);
    assert_eq!(server.texts("LRANGE d 0 -1"), ["a", "b"]);
    assert_eq!(server.integer("SORT none STORE d"), 0);
    assert_eq!(server.integer("EXISTS d"), 0);
    assert_eq!(server.integer("SORT s ALPHA GET none_* GET # STORE s"), 4);
    assert_eq!(server.texts("LRANGE s 0 -1"), ["", "a", "", "b"]);
    server.assert_effects_replay();
}

#[test]
fn keys_are_told() {
    let mut server = TestServer::new();
    let keys = server.texts("COMMAND GETKEYS SORT l BY x_* GET store STORE d LIMIT 1 2 STORE e");
    assert_eq!(keys, ["l", "e"]);
    assert_eq!(server.texts("COMMAND GETKEYS SORT_RO l BY x_*"), ["l"]);
}
