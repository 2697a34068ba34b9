//! Splits a line into quoted words.
#![no_main]

use base::words;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    let quoted = words::quote(line);
    assert!(quoted.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    assert_eq!(words::split(quoted.as_bytes()), Ok(vec![line.to_vec()]));

    let split = words::split(line);
    let up_to_zero = line.split(|&byte| byte == 0).next().unwrap_or(line);
    assert_eq!(split, words::split(up_to_zero));
    if let Ok(split) = split {
        let again: Vec<String> = split.iter().map(|word| words::quote(word)).collect();
        assert_eq!(words::split(again.join(" ").as_bytes()), Ok(split));
    }
});
