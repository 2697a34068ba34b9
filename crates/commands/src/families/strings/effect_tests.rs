//! Random commands of this family and of bitmaps: their effects, replayed into an empty store,
//! produce the same values, deadlines and encodings.

use base::random::Prng;

use testkit::engine_server::TestServer;

const KEYS: &[&str] = &["a", "b", "c", "d", "e"];
const VALUES: &[&str] = &[
    "0",
    "5",
    "-17",
    "9223372036854775807",
    "hello",
    "''",
    "3.25",
    "007",
    "a-text-that-is-longer-than-what-is-kept-in-one-piece-with-its-header",
];
const COMMANDS: &[&str] = &[
    "SET K V",
    "SET K V NX",
    "SET K V XX KEEPTTL",
    "SET K V EX N",
    "SET K V PXAT 1",
    "SET K V GET IFEQ V",
    "SETNX K V",
    "SETEX K N V",
    "PSETEX K N V",
    "GETSET K V",
    "MSET K V K V K V",
    "MSETNX K V K V",
    "GETDEL K",
    "GETEX K",
    "GETEX K PERSIST",
    "GETEX K PX N",
    "GETEX K EXAT 1",
    "DELIFEQ K V",
    "APPEND K V",
    "SETRANGE K N V",
    "INCR K",
    "INCRBY K N",
    "DECRBY K N",
    "INCRBYFLOAT K V",
    "INCRBYFLOAT K 0.75",
    "SETBIT K N 1",
    "SETBIT K N 0",
    "BITOP AND K K K",
    "BITOP OR K K K",
    "BITOP XOR K K K",
    "BITOP NOT K K",
    "BITFIELD K SET u7 N N INCRBY i9 N 300 GET u4 0",
    "BITFIELD K OVERFLOW FAIL INCRBY u4 N 9 SET i64 #1 N",
    "BITFIELD K OVERFLOW SAT INCRBY i12 #N 999 INCRBY u3 N 1",
    "GET K",
    "MGET K K",
];

fn pick<'a>(random: &mut Prng, from: &[&'a str]) -> &'a str {
    let index = usize::try_from(random.next_u64() % from.len() as u64).expect("an index");
    from[index]
}

fn random_command(random: &mut Prng) -> String {
    let template = pick(random, COMMANDS);
    let words = template.split(' ').map(|word| match word {
        "K" => pick(random, KEYS).to_owned(),
        "V" => pick(random, VALUES).to_owned(),
        "N" => (random.next_u64() % 200).to_string(),
        "#N" => format!("#{}", random.next_u64() % 20),
        word => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn effects_of_random_commands_replay_to_the_same_store() {
    for seed in 0..40 {
        let mut random = Prng::seeded(seed);
        let mut server = TestServer::new();
        for _ in 0..200 {
            server.run(&random_command(&mut random));
            server.advance_ms(random.next_u64() % 50);
        }
        server.assert_effects_replay();
    }
}

#[test]
fn commands_that_change_nothing_state_nothing() {
    let mut server = TestServer::new();
    server.run("SET k 5 EX 100");
    server.run("SETRANGE bytes 0 abc");
    server.effects();
    for line in [
        "SET k 6 NX",
        "SET none 6 XX",
        "SET k 6 IFEQ 7",
        "SETNX k 6",
        "MSETNX k 6 none 6",
        "GETDEL none",
        "GETEX k",
        "GETEX none EX 10",
        "GETEX bytes PERSIST",
        "DELIFEQ k 6",
        "SETRANGE k 0 ''",
        "SETBIT bytes 0 0",
        "BITOP AND none other another",
        "BITFIELD bytes GET u8 0",
        "BITFIELD bytes SET u8 0 97",
        "BITFIELD bytes OVERFLOW FAIL INCRBY u8 0 200",
        "GET k",
        "STRLEN k",
        "INCRBY k x",
    ] {
        server.run(line);
        assert_eq!(server.effects(), [""; 0], "{line}");
    }
}
