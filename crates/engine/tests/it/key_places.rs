//! Key positions in requests of real commands.

use engine::key_places::that_fit;
use protocol::OwnedRequest;
use testkit::table;

#[test]
fn a_wrong_count_leaves_no_key_to_judge_and_a_missing_word_the_others() {
    let named = |words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let owned = OwnedRequest::new(&words);
        let spec = table().find(words[0]).unwrap().spec;
        let keys = that_fit(table(), spec, &owned.request()).into_iter();
        keys.map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(named(&["ZUNIONSTORE", "d", "1", "a"]), [1, 3]);
    for wrong in ["0", "2", "-1", "x"] {
        assert!(
            named(&["ZUNIONSTORE", "d", wrong, "a"]).is_empty(),
            "{wrong}"
        );
    }
    let radius = ["GEORADIUS", "k", "1", "1", "1", "m", "STORE"];
    assert_eq!(named(&radius), [1]);
}
