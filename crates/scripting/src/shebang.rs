//! The first line of a script or a library: `#!lua name=mylib flags=no-writes,allow-stale`.

/// What a first line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shebang {
    /// The engine, as written: `lua`.
    pub engine: Vec<u8>,
    /// Words after it of the form `key=value`, in their order.
    pub options: Vec<(Vec<u8>, Vec<u8>)>,
    /// Words after it without a `=`.
    pub others: Vec<Vec<u8>>,
}

impl Shebang {
    /// The value of the option `name`.
    #[must_use]
    pub fn option(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.options.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_slice())
    }
}

/// The first line, when it is one, and the rest of the source with the end of that line, so that
/// numbers of lines stay what they are.
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
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let mut shebang = Shebang {
        engine: words.next().unwrap_or_default().to_vec(),
        ..Shebang::default()
    };
    for word in words {
        match word.iter().position(|byte| *byte == b'=') {
            Some(at) => shebang
                .options
                .push((word[..at].to_vec(), word[at + 1..].to_vec())),
            None => shebang.others.push(word.to_vec()),
        }
    }
    (Some(shebang), body)
}
