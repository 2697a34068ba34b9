//! Bytes as text, in the files under `tests/vectors`.

/// Returns the bytes that `text` spells with `\r \n \t \0 \\ \xHH`.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            bytes.extend(char.to_string().bytes());
            continue;
        }
        bytes.push(match chars.next() {
            Some('r') => b'\r',
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).unwrap()
            }
            other => panic!("no such escape in a vector: {other:?}"),
        });
    }
    bytes
}

/// Returns the lines of a vectors file that are neither empty nor comments.
pub(crate) fn lines(file: &str) -> impl Iterator<Item = &str> {
    file.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}
