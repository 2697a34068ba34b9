//! Combinations of sets, through commands.

use testkit::engine_server::TestServer;

#[test]
fn a_union_has_each_member_once_however_it_is_made() {
    let mut server = TestServer::new();
    let sizes = [0, 3, 600, 9_000, 20_000, 20_000];
    for (at, size) in sizes.into_iter().enumerate() {
        for start in (0..size).step_by(1_000) {
            let end = size.min(start + 1_000);
            let members: Vec<String> = (start..end)
                .map(|number| format!("m{}", number * (at + 1)))
                .collect();
            server.run(&format!("SADD s{at} {}", members.join(" ")));
        }
    }
    let unions = [
        "s0",
        "s1 s0",
        "s1 s2",
        "s2 s3",
        "s3 s4",
        "s4 s5 s3",
        "s4 s4",
        "s5 s4 s3 s2 s1 s0",
        "s4 s4 s4 s4 s4 s4 s5",
    ];
    for keys in unions {
        let protocol::Value::Array(mut members) = server.run(&format!("SUNION {keys}")) else {
            panic!("no array");
        };
        let count = members.len();
        members.sort_by_key(|member| format!("{member:?}"));
        members.dedup();
        assert_eq!(members.len(), count, "{keys}");
        let stored = server.integer(&format!("SUNIONSTORE u {keys}"));
        assert_eq!(i64::try_from(count).unwrap(), stored, "{keys}");
        let both = server.integer(&format!("SINTERCARD 2 u {}", &keys[..2]));
        assert_eq!(both, server.integer(&format!("SCARD {}", &keys[..2])));
    }
}

fn filled() -> TestServer {
    let mut server = TestServer::new();
    server.run("SADD one a b c d 1");
    server.run("SADD two b c 1 2");
    server.run("SADD three c 1 3");
    server
}

#[test]
fn results_are_kept_and_stated_as_members() {
    let mut server = filled();
    assert_eq!(server.integer("SINTERSTORE r one two three"), 2);
    assert_eq!(server.integer("SUNIONSTORE r one two three"), 7);
    assert_eq!(server.integer("SDIFFSTORE one one two"), 2);
    assert_eq!(server.integer("SDIFFSTORE two none one"), 0);
    assert_eq!(server.integer("EXISTS two"), 0);
    let effects = server.effects();
    assert_eq!(effects[3], "SADD r c 1");
    assert_eq!(effects[4], "DEL r");
    assert_eq!(effects[6], "DEL one");
    assert_eq!(effects[7], "SADD one a d");
    assert_eq!(effects[8], "DEL two");
    server.assert_effects_replay();
}

#[test]
fn an_intersection_is_counted_up_to_its_limit() {
    let mut server = filled();
    assert_eq!(server.integer("SINTERCARD 2 one two"), 3);
    assert_eq!(server.integer("SINTERCARD 2 one two LIMIT 2"), 2);
    assert_eq!(server.integer("SINTERCARD 1 one LIMIT 2"), 2);
    assert_eq!(server.integer("SINTERCARD 2 one none LIMIT 0"), 0);
}

#[test]
fn sets_of_many_are_combined() {
    let mut server = TestServer::new();
    for member in 0..6_000 {
        server.run(&format!("SADD thirds m:{}", 3 * member));
        server.run(&format!("SADD halves m:{}", 2 * member));
    }
    assert_eq!(server.integer("SINTERCARD 2 thirds halves"), 2_000);
    assert_eq!(server.integer("SINTERSTORE sixths thirds halves"), 2_000);
    assert_eq!(server.integer("SISMEMBER sixths m:11994"), 1);
    assert_eq!(server.integer("SINTERCARD 2 thirds halves LIMIT 7"), 7);
    // Large enough to be prefetched.
    for member in 6_000..9_000 {
        server.run(&format!("SADD thirds m:{}", 3 * member));
        server.run(&format!("SADD halves m:{}", 2 * member));
    }
    assert_eq!(server.integer("SINTERCARD 2 thirds halves"), 3_000);
    assert_eq!(server.integer("SINTERCARD 2 thirds halves LIMIT 40"), 40);
    assert_eq!(server.integer("SDIFFSTORE odd thirds halves"), 6_000);
    assert_eq!(server.integer("SISMEMBER odd m:26997"), 1);
    assert_eq!(server.integer("SISMEMBER odd m:17994"), 0);
}

#[test]
fn sets_of_whole_numbers_are_combined_in_order() {
    let mut server = TestServer::new();
    let members = |from: i64, to: i64, step: usize| -> String {
        let members: Vec<String> = (from..to)
            .step_by(step)
            .map(|one| one.to_string())
            .collect();
        members.join(" ")
    };
    server.run(&format!("SADD threes {}", members(-300, 300, 3)));
    server.run(&format!("SADD twos {}", members(-300, 300, 2)));
    server.run(&format!("SADD far {}", members(70_000, 70_040, 1)));
    let shown = |server: &mut TestServer, command: &str| match server.run(command) {
        protocol::Value::Array(members) => format!("{members:?}"),
        other => panic!("{other:?}"),
    };
    server.run(&format!("RPUSH sixes {}", members(-300, 300, 6)));
    let sixes = shown(&mut server, "LRANGE sixes 0 -1");
    assert_eq!(shown(&mut server, "SINTER threes twos"), sixes);
    server.run(&format!("RPUSH odd {}", members(-297, 300, 6)));
    let odd = shown(&mut server, "LRANGE odd 0 -1");
    assert_eq!(shown(&mut server, "SDIFF threes far twos"), odd);
    assert_eq!(server.integer("SINTERCARD 2 threes twos LIMIT 70"), 70);
    assert_eq!(server.integer("SINTERCARD 2 threes twos"), 100);
    assert_eq!(server.integer("SUNIONSTORE all threes twos far"), 440);
    let all = shown(&mut server, "SMEMBERS all");
    assert_eq!(shown(&mut server, "SUNION far twos threes none"), all);
    server.assert_effects_replay();
}

#[test]
fn a_union_changes_apart_from_its_largest_set_and_is_kept_as_its_members_say() {
    let mut server = TestServer::new();
    let members: Vec<String> = (0..900).map(|number| format!("m{number}")).collect();
    server.run(&format!("SADD large {}", members.join(" ")));
    server.run("SADD small a m1");
    assert_eq!(server.integer("SUNIONSTORE u small large"), 901);
    server.run("SREM u m1 m2");
    server.run("SADD u b");
    assert_eq!(server.integer("SCARD large"), 900);
    assert_eq!(server.integer("SINTERCARD 2 u large"), 898);
    server.run(&format!("SREM large {}", members[5..].join(" ")));
    assert_eq!(server.integer("SINTERCARD 2 u large"), 3);
    // The largest set is still a table, with few members.
    assert_eq!(server.integer("SUNIONSTORE u small large"), 6);
    let encoding = server.run("OBJECT ENCODING u");
    assert_eq!(encoding, server.run("OBJECT ENCODING small"));
    server.assert_effects_replay();
}

#[test]
fn a_union_is_counted_without_being_made() {
    let mut server = TestServer::new();
    server.run("SADD one a b c");
    server.run("SADD two c d e");
    server.run("SADD numbers 1 2 3");
    server.run("SADD more 3 4");
    for (line, count) in [
        ("SUNIONCARD 1 one", 3),
        ("SUNIONCARD 2 one two", 5),
        ("SUNIONCARD 3 one two one", 5),
        ("SUNIONCARD 4 one two numbers more", 9),
        ("SUNIONCARD 2 numbers more", 4),
        ("SUNIONCARD 2 none none", 0),
        ("SUNIONCARD 2 one two LIMIT 4", 4),
        ("SUNIONCARD 2 one two LIMIT 3", 3),
        ("SUNIONCARD 2 one two LIMIT 0", 5),
        ("SUNIONCARD 2 numbers more LIMIT 3", 3),
        ("SUNIONCARD 2 one two APPROX", 5),
        ("SUNIONCARD 2 one two LIMIT 4 APPROX", 4),
    ] {
        assert_eq!(server.integer(line), count, "{line}");
    }
    let syntax = "ERR syntax error";
    assert_eq!(server.error("SUNIONCARD 1 one two"), syntax);
    assert_eq!(server.error("SINTERCARD 1 one APPROX"), syntax);
    // Many sets with the same members: more look-ups than insertions.
    let names: Vec<String> = (0..40).map(|number| format!("s{number}")).collect();
    for name in &names {
        server.run(&format!("SADD {name} x y {name}"));
    }
    let line = format!("SUNIONCARD 40 {}", names.join(" "));
    assert_eq!(server.integer(&line), 42);
    assert_eq!(server.integer(&format!("{line} LIMIT 41")), 41);
    let many: Vec<String> = (0..20_000).map(|number| format!("m{number}")).collect();
    server.run(&format!("SADD many {}", many.join(" ")));
    let estimate = server.integer("SUNIONCARD 2 many one APPROX");
    assert!((19_000..21_000).contains(&estimate), "{estimate}");
}

#[test]
fn what_is_no_set_is_refused_and_nothing_changes() {
    let mut server = filled();
    server.run("SET text x");
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    assert_eq!(server.error("SINTERSTORE r none text"), wrong);
    assert_eq!(server.error("SUNION one text"), wrong);
    assert_eq!(server.error("SDIFF none text"), wrong);
    assert_eq!(server.integer("EXISTS r"), 0);
    assert_eq!(server.integer("SUNIONSTORE text one"), 5);
}
