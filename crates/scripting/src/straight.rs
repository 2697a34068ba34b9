//! Detection of scripts that end by themselves: those without loops and functions, and without ways
//! to either.
//!
//! Asking at each safe point whether to continue costs more than the rest of a short script. A
//! script that passes here runs through its text at most once. It calls nothing that calls back,
//! takes a pattern or makes functions, so its safe points need not ask. If in doubt, the result is
//! that they ask: only words are examined, including those in texts and comments.

/// Words of the language and its libraries that a straight script must not contain, not even as
/// names of its own.
const FORBIDDEN: [&[u8]; 28] = [
    b"while",
    b"for",
    b"repeat",
    b"function",
    b"load",
    b"loadstring",
    b"_G",
    b"getmetatable",
    b"setmetatable",
    b"pcall",
    b"xpcall",
    b"coroutine",
    b"string",
    b"table",
    b"find",
    b"match",
    b"gmatch",
    b"gfind",
    b"gsub",
    b"rep",
    b"format",
    b"collectgarbage",
    b"rawget",
    b"rawset",
    b"next",
    b"ipairs",
    b"pairs",
    b"gcinfo",
];

/// Returns whether the source runs straight from its beginning to its end.
pub(crate) fn is_straight(source: &[u8]) -> bool {
    const LONG: usize = 64 << 10;
    source.len() <= LONG && words_are_harmless(source) && indices_are_digits(source)
}

fn words_are_harmless(source: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let words = source.split(|byte| !is_part(byte));
    let mut previous_end = 0;
    for word in words {
        let start = previous_end;
        previous_end += word.len() + 1;
        // `redis.pcall` catches only errors of commands.
        let is_of_server = word == b"pcall"
            && (source[..start].ends_with(b"redis.") || source[..start].ends_with(b"server."));
        if FORBIDDEN.contains(&word) && !is_of_server {
            return false;
        }
    }
    true
}

/// Returns whether all indices are digits. A computed index could name any function.
fn indices_are_digits(source: &[u8]) -> bool {
    source.iter().enumerate().all(|(at, byte)| {
        if *byte != b'[' {
            return true;
        }
        let rest = &source[at + 1..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && rest.get(digits) == Some(&b']')
    })
}

#[cfg(test)]
mod tests {
    use super::is_straight;

    #[test]
    fn loops_functions_and_ways_to_them_are_seen() {
        for source in [
            "return redis.call('get', KEYS[1])",
            "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
            "local x = redis.pcall('incr', KEYS[1]) if tonumber(x) == 1 then redis.call('expire', KEYS[1], ARGV[1]) end return x",
            "return cjson.encode({1, 2})",
        ] {
            assert!(is_straight(source.as_bytes()), "{source}");
        }
        for source in [
            "while true do end",
            "return KEYS[ARGV[1]]",
            "local s = '' return s['fi' .. 'nd']",
            "return ('x'):rep(10)",
            "return _G",
            "return pcall(redis.call, 'x')",
            "local p = redis . pcall",
            "return {[1] = [[text]]}",
            "return load",
        ] {
            assert!(!is_straight(source.as_bytes()), "{source}");
        }
    }
}
