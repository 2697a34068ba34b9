//! Which keys a transaction locks.

use store::{Options, Store};

use engine::transaction::Reach;
use engine::{QueuedRow, Transaction};
use protocol::OwnedRequest;
use store::Key;
use testkit::table;

/// Returns the keys of these lines with their databases, in order and without duplicates, or `None`
/// for all keys.
fn reach(lines: &[&str]) -> Option<Vec<String>> {
    let store = Store::new(&Options::default()).expect("memory").handle();
    let mut transaction = Transaction::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let request = OwnedRequest::new(&words);
        let found = table().find(words[0].as_bytes()).expect("a command");
        let row = QueuedRow::of(found.index, found.spec, 1);
        transaction.push(request.request(), row);
    }
    match transaction.reach(table(), &store, 0, None) {
        Reach::Everything => None,
        Reach::Keys(keys) => {
            let shown =
                |key: &Key<'_>| format!("{}:{}", key.database(), key.bytes().escape_ascii());
            let keys: std::collections::BTreeSet<String> = keys.iter().map(shown).collect();
            Some(keys.into_iter().collect())
        }
    }
}

#[test]
fn keys_are_those_of_the_databases_that_requests_will_see() {
    let keys = |text: &str| {
        let keys = text.split(' ').filter(|key| !key.is_empty());
        Some(keys.map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(reach(&["PING", "SELECT 3"]), keys(""));
    assert_eq!(
        reach(&[
            "SET a 1",
            "SELECT 3",
            "MGET b c",
            "SELECT 99",
            "GET d",
            "SELECT 0",
            "GET e"
        ]),
        keys("0:a 0:e 3:b 3:c 3:d")
    );
    assert_eq!(reach(&["MOVE a 2"]), keys("0:a 2:a"));
    assert_eq!(reach(&["COPY a b"]), keys("0:a 0:b"));
    assert_eq!(
        reach(&["COPY a b db 3 REPLACE DB 4"]),
        keys("0:a 0:b 3:b 4:b")
    );
    assert_eq!(reach(&["ZUNIONSTORE d 2 a b"]), keys("0:a 0:b 0:d"));
    assert_eq!(reach(&["SORT a STORE b"]), keys("0:a 0:b"));
}

#[test]
fn what_is_about_all_keys_has_them_all() {
    for line in [
        "KEYS *",
        "SCAN 0",
        "DBSIZE",
        "RANDOMKEY",
        "FLUSHALL",
        "FLUSHDB",
        "SWAPDB 0 1",
        "DEBUG DIGEST",
        "SORT a GET x*",
        "SORT_RO a BY x* ALPHA",
        "ZUNION 7 a b",
    ] {
        assert_eq!(reach(&["GET a", line]), None, "{line}");
    }
}
