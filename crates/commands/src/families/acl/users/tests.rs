//! Tests of users as clients see them.

use engine::engine::Next;
use protocol::Value;

use testkit::engine_server::TestServer;

const NO_KEY: &str = "NOPERM No permissions to access a key";

fn denied(user: &str, command: &str) -> String {
    format!("NOPERM User {user} has no permissions to run the '{command}' command")
}

#[test]
fn users_are_made_shown_and_removed() {
    let mut server = TestServer::new();
    server.run("ACL SETUSER u on nopass ~a* +get (%R~b &c -@all +set)");
    let lines = server.texts("ACL LIST");
    let expected = [
        "user default on nopass sanitize-payload ~* &* +@all",
        "user u on nopass sanitize-payload ~a* resetchannels -@all +get (%R~b resetchannels &c -@all \
         +set)",
    ];
    assert_eq!(lines, expected);
    assert_eq!(server.texts("ACL USERS"), ["default", "u"]);
    assert_eq!(server.run("ACL GETUSER none"), Value::Null);
    assert!(server.error("ACL DELUSER u default").contains("cannot be"));
    assert_eq!(server.integer("ACL DELUSER u v"), 1);
    let asked = server.port.asked.join(" ");
    assert!(asked.contains("User(\"u\")"), "{asked}");
}

#[test]
fn requests_are_judged_when_they_are_sent() {
    let mut server = TestServer::new();
    server.run("ACL SETUSER u on >p ~a* +@read +@write +acl|whoami -incr");
    server.run("AUTH u p");
    assert_eq!(server.text("ACL WHOAMI"), "u");
    server.run("SET a 1");
    assert_eq!(server.error("SET b 1"), NO_KEY);
    assert_eq!(server.error("MGET a b"), NO_KEY);
    assert_eq!(server.error("INCR a"), denied("u", "incr"));
    assert_eq!(server.error("ACL LIST"), denied("u", "acl|list"));
    // Any client learns that a command does not exist or has too few arguments.
    assert!(server.error("NONE").starts_with("ERR unknown command"));
    assert!(server.error("CONFIG").starts_with("ERR wrong number"));
    let (output, _) = server.pipeline(&["GET a", "GET b", "GET a"]);
    let expected = format!("$1\r\n1\r\n-{NO_KEY}\r\n$1\r\n1\r\n");
    assert_eq!(output, expected.as_bytes());
}

#[test]
fn rules_that_others_change_hold_for_the_next_request() {
    let mut server = TestServer::new();
    server.run("ACL SETUSER u on nopass ~* +get +auth");
    server.client(2).run("AUTH u x");
    assert_eq!(server.run("GET a"), Value::Null);
    server.client(1).run("ACL SETUSER u -get");
    assert_eq!(server.client(2).error("GET a"), denied("u", "get"));
    server.client(1).run("ACL SETUSER u +@all ~* &*");
    server.client(2).run("SET a 1");
    server.client(1).run("ACL SETUSER default -get");
    assert_eq!(server.error("GET a"), denied("default", "get"));
}

#[test]
fn what_was_queued_is_judged_again_by_exec() {
    let mut server = TestServer::new();
    server.run("ACL SETUSER u on nopass ~* &* +@all");
    server.client(2).run("AUTH u x");
    for line in ["MULTI", "SET a 1", "SET b 1", "INCR a", "PUBLISH c m"] {
        server.run(line);
    }
    server
        .client(1)
        .run("ACL SETUSER u resetkeys ~a resetchannels -incr");
    let (output, _) = server.client(2).pipeline(&["EXEC"]);
    let text = String::from_utf8_lossy(&output);
    let reasons = [
        "touch the specified keys",
        "execute the command",
        "access one of the channels",
    ];
    assert!(text.starts_with("*4\r\n+OK\r\n-NOPERM ACLs rules changed"));
    for reason in reasons {
        assert!(text.contains(reason), "{reason}");
    }
    server.client(1);
    assert_eq!(server.text("GET a"), "1");
    assert_eq!(server.run("GET b"), Value::Null);
}

#[test]
fn a_request_that_waited_is_judged_again() {
    let mut server = TestServer::new();
    server.run("ACL SETUSER u on nopass ~* +@all");
    server.client(2).run("AUTH u x");
    server.wait("BLPOP list 0");
    server.client(1).run("ACL SETUSER u resetkeys");
    server.run("RPUSH list x");
    let expected = format!("-{NO_KEY}\r\n");
    assert_eq!(server.port.answers, [(2, expected.into_bytes())]);
    assert_eq!(server.integer("LLEN list"), 1);
    assert_eq!(server.counts("BLPOP"), (0, 0));
}

#[test]
fn sort_follows_patterns_for_who_may_read_everything() {
    let mut server = TestServer::new();
    server.run("RPUSH l 1 2");
    server.run("ACL SETUSER u on nopass +auth (+sort ~l %W~*)");
    server.run("AUTH u x");
    let by = "ERR BY option of SORT denied due to insufficient ACL permissions.";
    assert_eq!(server.error("SORT l BY w_*"), by);
    assert!(server.error("SORT l GET #").starts_with("ERR GET option"));
    assert_eq!(server.texts("SORT l BY nothing"), ["1", "2"]);
    server.client(2).run("ACL SETUSER u (+sort ~l %R~*)");
    server.client(1);
    assert_eq!(server.texts("SORT l BY w_* GET #"), ["1", "2"]);
}

#[test]
fn a_user_may_be_asked_about() {
    let mut server = TestServer::new();
    server.run("ACL SETUSER u +get +publish +set ~a &c");
    assert_eq!(
        server.run("ACL DRYRUN u GET a"),
        Value::Simple(b"OK".to_vec())
    );
    for (line, what) in [
        ("GET b", "access the 'b' key"),
        ("PUBLISH d m", "access the 'd' channel"),
        ("CLIENT ID", "run the 'client|id' command"),
    ] {
        let answer = server.text(&format!("ACL DRYRUN u {line}"));
        assert_eq!(answer, format!("User u has no permissions to {what}"));
    }
    assert_eq!(server.error("ACL DRYRUN v GET a"), "ERR User 'v' not found");
    assert_eq!(
        server.error("ACL DRYRUN u NO a"),
        "ERR Command 'NO' not found"
    );
    let arity = "ERR wrong number of arguments for 'set' command";
    assert_eq!(server.error("ACL DRYRUN u SET a"), arity);
}

#[test]
fn broadcasts_tell_of_keys_that_may_be_read() {
    let mut server = TestServer::resp3();
    server.run("ACL SETUSER u on nopass ~a:* %W~b* +client|tracking");
    server.run("AUTH u x");
    server.run("CLIENT TRACKING ON BCAST PREFIX a:1 PREFIX a:2");
    for prefixes in ["", " PREFIX a", " PREFIX b", " PREFIX a:3 PREFIX c"] {
        let line = format!("CLIENT TRACKING ON BCAST{prefixes}");
        assert_eq!(server.error(&line), NO_KEY, "{line}");
    }
}

#[test]
fn passwords_are_made() {
    let mut server = TestServer::new();
    assert_eq!(server.text("ACL GENPASS").len(), 64);
    assert_eq!(server.text("ACL GENPASS 5").len(), 2);
    for bits in ["0", "4097", "-1"] {
        let error = server.error(&format!("ACL GENPASS {bits}"));
        assert!(error.contains("must be the number of bits"), "{bits}");
    }
}

#[test]
fn who_loses_its_own_channel_is_closed() {
    let mut server = TestServer::resp3();
    server.run("ACL SETUSER default resetchannels &a &b");
    server.run("SUBSCRIBE a");
    server.run("ACL SETUSER default resetchannels &a");
    let (_, next) = server.pipeline(&["ACL SETUSER default resetchannels", "PING"]);
    assert_eq!(next, Next::Close);
}
