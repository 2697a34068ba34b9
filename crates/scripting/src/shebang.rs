//! The first line of a script or a library: `#!lua name=mylib flags=no-writes,allow-stale`.

/// The parsed first line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shebang {
    /// The engine, as written: `lua`.
    pub engine: Vec<u8>,
    /// The words after it of the form `key=value`, in their order.
    pub options: Vec<(Vec<u8>, Vec<u8>)>,
    /// The words after it without a `=`.
    pub others: Vec<Vec<u8>>,
    /// Whether a quote has no end, or something follows it directly.
    pub is_malformed: bool,
}

impl Shebang {
    /// Returns the value of the option `name`.
    #[must_use]
    pub fn option(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.options.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_slice())
    }
}

/// Returns the first line if it is a shebang, and the rest of the source including the end of that
/// line, so that line numbers stay the same.
#[must_use]
pub fn split(source: &[u8]) -> (Option<Shebang>, &[u8]) {
    let Some(rest) = source.strip_prefix(b"#!") else {
        return (None, source);
    };
    let end = rest
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(rest.len());
    let (line, body) = rest.split_at(end);
    // The mark is part of the first word.
    let engine_bytes = line.iter().take_while(|byte| !byte.is_ascii_whitespace());
    let (engine, options) = line.split_at(engine_bytes.count());
    let mut shebang = Shebang {
        engine: engine.to_vec(),
        ..Shebang::default()
    };
    let Some(words) = words(options) else {
        shebang.is_malformed = true;
        return (Some(shebang), body);
    };
    for word in words {
        match word.iter().position(|byte| *byte == b'=') {
            Some(at) => shebang
                .options
                .push((word[..at].to_vec(), word[at + 1..].to_vec())),
            None => shebang.others.push(word),
        }
    }
    (Some(shebang), body)
}

/// Returns the words of a line, or `None` if the quotes do not match. Blanks between quotes belong
/// to the word.
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii();
    while !rest.is_empty() {
        let mut word = Vec::new();
        while let Some((first, behind)) = rest.split_first() {
            match first {
                b'"' | b'\'' => {
                    rest = quoted(*first, behind, &mut word)?;
                    if !rest.first().is_none_or(u8::is_ascii_whitespace) {
                        return None;
                    }
                }
                byte if byte.is_ascii_whitespace() => break,
                byte => {
                    word.push(*byte);
                    rest = behind;
                }
            }
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Some(words)
}

/// Appends the text between quotes to a word. Returns the rest after the closing quote. A backslash
/// takes its meaning from the next byte.
fn quoted<'l>(quote: u8, mut rest: &'l [u8], word: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        let (first, behind) = rest.split_first()?;
        rest = match first {
            byte if *byte == quote => return Some(behind),
            b'\\'
                if behind
                    .first()
                    .is_some_and(|next| *next == quote || *next == b'\\') =>
            {
                word.extend(behind.first());
                &behind[1..]
            }
            byte => {
                word.push(*byte);
                behind
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_stand_in_quotes() {
        let (line, body) = split(b"#!lua name=\"my lib\" 'flags=a,b' x\nreturn");
        let line = line.unwrap_or_default();
        assert_eq!((&*line.engine, body), (&b"lua"[..], &b"\nreturn"[..]));
        assert_eq!(line.option(b"name"), Some(&b"my lib"[..]));
        assert_eq!(line.option(b"flags"), Some(&b"a,b"[..]));
        assert_eq!(line.others, [b"x"]);
        for malformed in [&b"#!lua name=\"x\n"[..], b"#!lua name='x'y\n"] {
            assert!(split(malformed).0.is_some_and(|line| line.is_malformed));
        }
    }

    #[test]
    fn an_engine_stands_right_behind_the_mark() {
        let (line, _) = split(b"#! name=lib\n");
        let line = line.unwrap_or_default();
        assert_eq!(line.engine, b"");
        assert_eq!(line.option(b"name"), Some(&b"lib"[..]));
    }
}
