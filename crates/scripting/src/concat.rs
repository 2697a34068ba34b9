//! The operands of `..`, converted to texts as Lua 5.1 does: numbers with fourteen digits.
//!
//! Luau concatenates a number with as many digits as reading it back requires. Scripts build names
//! of keys this way, so `0.1 + 0.2 .. ''` has to be `0.3`. Therefore the source is changed before
//! it is compiled: each operand that is not a literal text becomes a call of the prelude's
//! [`OPERAND`].
//!
//! ```text
//!   return KEYS[1] .. ':' .. score * 1.5      return _operand(KEYS[1]) .. ':' .. _operand(score * 1.5)
//! ```
//!
//! There is no parser here. In Lua, an operand of `..` is a run of tokens of one nesting depth:
//! names, literals, whole brackets, and the operators that bind tighter. It ends at any other
//! token, and between two adjacent tokens that do not form a call: the next statement begins there.
//! No line is added, so error lines stay the same.

/// The function that converts operands, and the statement that makes it a local of the chunk.
const OPERAND: &[u8] = b" _operand(";
const DECLARATION: &[u8] = b"local _operand=_operand;";

/// The role of a token in an operand of `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// A name, which can be called.
    Name,
    /// A literal text.
    Text,
    /// A number, `nil`, `true`, `false` or `...`.
    Literal,
    /// A token that binds tighter than `..`, or is part of a name: `+`, `.`, `not` …
    Tight,
    Open,
    Close,
    Concat,
    /// Any other token, which ends an operand.
    End,
}

/// The tokens of a source, with their byte ranges.
struct Tokens<'s> {
    source: &'s [u8],
    at: usize,
}

/// The operators. Those that begin with the same byte are tried in this order.
const OPERATORS: [(&[u8], Token); 26] = [
    (b"...", Token::Literal),
    (b"..=", Token::End),
    (b"..", Token::Concat),
    (b"==", Token::End),
    (b"~=", Token::End),
    (b"<=", Token::End),
    (b">=", Token::End),
    (b"::", Token::End),
    (b"->", Token::End),
    (b"+=", Token::End),
    (b"-=", Token::End),
    (b"*=", Token::End),
    (b"/=", Token::End),
    (b"%=", Token::End),
    (b"^=", Token::End),
    (b"//", Token::Tight),
    (b"+", Token::Tight),
    (b"-", Token::Tight),
    (b"*", Token::Tight),
    (b"/", Token::Tight),
    (b"%", Token::Tight),
    (b"^", Token::Tight),
    (b"#", Token::Tight),
    (b".", Token::Tight),
    (b":", Token::Tight),
    (b"=", Token::End),
];

impl Tokens<'_> {
    /// Returns the next token and its start, or `None` at the end or at something unknown.
    fn next(&mut self) -> Option<(Token, usize)> {
        self.pass_blanks()?;
        let (start, rest) = (self.at, &self.source[self.at..]);
        let first = *rest.first()?;
        let (token, length) = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = run(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
                (word(&rest[..length]), length)
            }
            b'0'..=b'9' => (Token::Literal, number(rest)),
            b'.' if rest.get(1).is_some_and(u8::is_ascii_digit) => (Token::Literal, number(rest)),
            b'"' | b'\'' => (Token::Text, quoted(rest)?),
            b'(' | b'{' => (Token::Open, 1),
            b'[' => match long_bracket(rest) {
                Some(length) => (Token::Text, length?),
                None => (Token::Open, 1),
            },
            b')' | b']' | b'}' => (Token::Close, 1),
            b',' | b';' | b'<' | b'>' => OPERATORS
                .iter()
                .find(|(text, _)| rest.starts_with(text))
                .map_or((Token::End, 1), |(text, token)| (*token, text.len())),
            // An interpolated text, or something else that Lua 5.1 does not have.
            _ => {
                let operator = OPERATORS.iter().find(|(text, _)| rest.starts_with(text))?;
                (operator.1, operator.0.len())
            }
        };
        self.at += length;
        Some((token, start))
    }

    /// Skips white space and comments. Returns `None` if a comment does not end.
    fn pass_blanks(&mut self) -> Option<()> {
        loop {
            let rest = &self.source[self.at..];
            let blank = run(rest, |byte| byte.is_ascii_whitespace() || byte == 0x0b);
            if blank > 0 {
                self.at += blank;
            } else if let Some(remark) = rest.strip_prefix(b"--") {
                self.at += 2 + match long_bracket(remark) {
                    Some(length) => length?,
                    None => run(remark, |byte| byte != b'\n'),
                };
            } else {
                return Some(());
            }
        }
    }

    fn is_at_end(&self) -> bool {
        self.at == self.source.len()
    }
}

fn run(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| belongs(**byte)).count()
}

fn word(word: &[u8]) -> Token {
    match word {
        b"nil" | b"true" | b"false" => Token::Literal,
        b"not" => Token::Tight,
        b"and" | b"break" | b"do" | b"else" | b"elseif" | b"end" | b"for" | b"function" | b"if"
        | b"in" | b"local" | b"or" | b"repeat" | b"return" | b"then" | b"until" | b"while" => {
            Token::End
        }
        _ => Token::Name,
    }
}

/// Returns the length of the number at the start: digits and letters, points, and signs of
/// exponents. `1..2` is a malformed number in Lua, too.
fn number(bytes: &[u8]) -> usize {
    let is_hex = bytes.get(1).is_some_and(|byte| matches!(byte, b'x' | b'X'));
    let mut length = 0;
    while let Some(byte) = bytes.get(length) {
        let is_sign = matches!(byte, b'+' | b'-')
            && !is_hex
            && matches!(bytes[length.max(1) - 1], b'e' | b'E');
        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || is_sign) {
            break;
        }
        length += 1;
    }
    length
}

/// Returns the length of the quoted text at the start, or `None` if it does not end.
fn quoted(bytes: &[u8]) -> Option<usize> {
    let quote = bytes[0];
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            b'\\' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Returns the length of the long bracket at the start, `Some(None)` if it does not end, or `None`
/// if there is none.
fn long_bracket(bytes: &[u8]) -> Option<Option<usize>> {
    let rest = bytes.strip_prefix(b"[")?;
    let level = run(rest, |byte| byte == b'=');
    if rest.get(level) != Some(&b'[') {
        return None;
    }
    let end = [&b"]"[..], &vec![b'='; level], b"]"].concat();
    let body = level + 2;
    let found = memchr::memmem::find(&bytes[body..], &end);
    Some(found.map(|at| body + at + end.len()))
}

/// The state at one nesting depth.
#[derive(Clone, Copy, Debug, Default)]
struct Depth {
    /// The start of the current operand.
    start: Option<usize>,
    /// The end of its last token.
    end: usize,
    /// Number of its tokens, and whether the first one is a literal text.
    tokens: usize,
    begins_with_text: bool,
    /// Whether the last token ends a value: another value after it begins a statement.
    is_value: bool,
    /// Whether the last token can be called.
    is_callable: bool,
    /// Whether a `..` precedes the operand.
    is_joined: bool,
}

/// Returns the source with its operands of `..` converted to texts as Lua 5.1 does, or `None` if
/// nothing needs to change or the source is not Lua 5.1. In the latter case the compiler reports
/// the error.
pub(crate) fn with_plain_operands(source: &[u8]) -> Option<Vec<u8>> {
    memchr::memmem::find(source, b"..")?;
    let operands = operands(source)?;
    if operands.is_empty() {
        return None;
    }
    let mut marks: Vec<(usize, &[u8])> = Vec::new();
    for (start, end) in operands {
        marks.push((start, OPERAND));
        marks.push((end, b")"));
    }
    // Operands nest: at one position, marks of operands that end come before marks of those that
    // begin.
    marks.sort_by_key(|&(at, text)| (at, text != b")"));
    let mut changed = DECLARATION.to_vec();
    let mut at = 0;
    for (place, text) in marks {
        changed.extend_from_slice(&source[at..place]);
        changed.extend_from_slice(text);
        at = place;
    }
    changed.extend_from_slice(&source[at..]);
    Some(changed)
}

/// Returns the operands of `..` that are not literal texts, as byte ranges.
fn operands(source: &[u8]) -> Option<Vec<(usize, usize)>> {
    let mut tokens = Tokens { source, at: 0 };
    let (mut found, mut depths, mut here) = (Vec::new(), Vec::new(), Depth::default());
    while let Some((token, start)) = tokens.next() {
        let end = tokens.at;
        let begins_value = matches!(token, Token::Name | Token::Text | Token::Literal);
        // A text or a bracket after something callable is its argument.
        let is_suffix = here.is_callable && matches!(token, Token::Text | Token::Open)
            || token == Token::Open && source[start] == b'[' && here.is_value;
        if here.is_value && (begins_value || token == Token::Open) && !is_suffix {
            here.finish(false, &mut found);
        }
        match token {
            Token::Name | Token::Text | Token::Literal => {
                here.take(start, end, token == Token::Text);
                (here.is_value, here.is_callable) = (true, token == Token::Name || is_suffix);
            }
            Token::Tight => {
                here.take(start, end, false);
                (here.is_value, here.is_callable) = (false, false);
            }
            Token::Open => {
                here.take(start, end, false);
                // Whether the whole can be called is known when the bracket closes.
                here.is_callable = is_suffix || source[start] == b'(';
                depths.push(here);
                here = Depth::default();
            }
            Token::Close => {
                here.finish(false, &mut found);
                here = depths.pop()?;
                (here.end, here.is_value) = (end, true);
            }
            Token::Concat => here.finish(true, &mut found),
            Token::End => here.finish(false, &mut found),
        }
    }
    here.finish(false, &mut found);
    (tokens.is_at_end() && depths.is_empty()).then_some(found)
}

impl Depth {
    fn take(&mut self, start: usize, end: usize, is_text: bool) {
        if self.start.is_none() {
            (self.start, self.begins_with_text, self.tokens) = (Some(start), is_text, 0);
        }
        self.tokens += 1;
        self.end = end;
    }

    /// Ends the operand. `joins`: whether a `..` follows.
    fn finish(&mut self, joins: bool, found: &mut Vec<(usize, usize)>) {
        let is_text = self.begins_with_text && self.tokens == 1;
        if let Some(start) = self.start
            && (joins || self.is_joined)
            && !is_text
        {
            found.push((start, self.end));
        }
        *self = Self {
            is_joined: joins,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the source with `<` and `>` around the operands that are converted.
    fn marked(source: &str) -> String {
        let Some(changed) = with_plain_operands(source.as_bytes()) else {
            return source.to_owned();
        };
        let changed = String::from_utf8(changed).unwrap();
        let body = changed.strip_prefix("local _operand=_operand;").unwrap();
        body.replace(" _operand(", "<")
    }

    #[test]
    fn operands_reach_as_far_as_they_bind_tighter() {
        for (source, expected) in [
            ("return a .. 'x'", "return <a) .. 'x'"),
            ("return a+1 .. b*2 .. c", "return <a+1) .. <b*2) .. <c)"),
            ("return -a .. #t .. not b", "return <-a) .. <#t) .. <not b)"),
            (
                "return a == b .. c and d .. e or f",
                "return a == <b) .. <c) and <d) .. <e) or f",
            ),
            ("return 2^-1 .. ''", "return <2^-1) .. ''"),
            ("return 1.5 ..2", "return <1.5) ..<2)"),
            ("return (a) .. ''", "return <(a)) .. ''"),
            ("return(a)..''", "return<(a))..''"),
        ] {
            assert_eq!(marked(source), expected);
        }
    }

    #[test]
    fn brackets_and_calls_are_parts_of_an_operand() {
        for (source, expected) in [
            (
                "return f(a .. b, c) .. d",
                "return <f(<a) .. <b), c)) .. <d)",
            ),
            (
                "return t[i .. j].k:m'x'{1}(2) .. ''",
                "return <t[<i) .. <j)].k:m'x'{1}(2)) .. ''",
            ),
            (
                "return {a .. b; [c .. d] = e .. f}",
                "return {<a) .. <b); [<c) .. <d)] = <e) .. <f)}",
            ),
            (
                "return ('%d'):format(x) .. y",
                "return <('%d'):format(x)) .. <y)",
            ),
            ("local s = ... .. 'x'", "local s = <...) .. 'x'"),
        ] {
            assert_eq!(marked(source), expected);
        }
    }

    #[test]
    fn an_operand_ends_where_the_next_statement_begins() {
        for (source, expected) in [
            ("x = a .. b y = c", "x = <a) .. <b) y = c"),
            ("x = a .. 1 y = c", "x = <a) .. <1) y = c"),
            ("x = 'a' .. b\nlocal c = 1", "x = 'a' .. <b)\nlocal c = 1"),
            ("f(a .. b) g(c)", "f(<a) .. <b)) g(c)"),
            ("x = a .. f\n(g or h)()", "x = <a) .. <f\n(g or h)())"),
            ("x = a .. 'b' (g or h)()", "x = <a) .. 'b' (g or h)()"),
            ("if a .. b then c() end", "if <a) .. <b) then c() end"),
            (
                "local f = function(a) return a .. 1 end local g = f",
                "local f = function(a) return <a) .. <1) end local g = f",
            ),
        ] {
            assert_eq!(marked(source), expected);
        }
    }

    #[test]
    fn texts_and_remarks_are_passed_over() {
        for source in [
            "return 'a' .. \"b\" .. [[c]] .. [==[d]]]==]",
            "return 'a .. b', \"\\\" .. c\"",
            "return [[ a .. b ]]",
            "-- a .. b\nreturn 1",
            "--[[ a .. b\n c .. d ]] return 1",
            "local function f(...) return ... end",
            "return 1",
        ] {
            assert_eq!(marked(source), source);
        }
        assert_eq!(
            marked("return a --[[x]] .. b -- c .. d"),
            "return <a) --[[x]] .. <b) -- c .. d"
        );
    }

    #[test]
    fn what_is_not_understood_is_left_to_the_compiler() {
        for source in [
            "return `{a .. b}`",
            "return 'a .. b",
            "return (a .. b",
            "return a .. b)",
            "--[[ a .. b",
            "a ? b .. c",
        ] {
            assert_eq!(with_plain_operands(source.as_bytes()), None, "{source}");
        }
    }
}
