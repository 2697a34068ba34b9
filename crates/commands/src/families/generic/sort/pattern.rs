//! Key names made from elements: `weight_*`, `object_*->field`.

/// What BY and GET look up for an element, which replaces the star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern<'a> {
    before: &'a [u8],
    after: &'a [u8],
    field: Option<&'a [u8]>,
}

impl<'a> Pattern<'a> {
    /// Parses `text`. Returns `None` if it has no star, and so leads to no key.
    ///
    /// Star and arrow are found as C's `strchr` and `strstr` find them: not after a zero byte. An
    /// arrow counts only after the star and if a field follows it.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let star = up_to_zero(text).iter().position(|byte| *byte == b'*')?;
        let (before, rest) = (&text[..star], &text[star + 1..]);
        let arrow = up_to_zero(rest).windows(2).position(|two| two == b"->");
        let arrow = arrow.filter(|at| rest.get(at + 2).is_some_and(|byte| *byte != 0));
        Some(match arrow {
            Some(at) => Self {
                before,
                after: &rest[..at],
                field: Some(&rest[at + 2..]),
            },
            None => Self {
                before,
                after: rest,
                field: None,
            },
        })
    }

    /// Returns the key that it leads to for an element.
    pub(super) fn key_for(&self, element: &[u8]) -> Vec<u8> {
        [self.before, element, self.after].concat()
    }

    /// Returns the field of the hash at that key, or `None` if the key holds a string.
    pub(super) fn field(&self) -> Option<&'a [u8]> {
        self.field
    }
}

fn up_to_zero(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0);
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_star_stands_for_the_element() {
        for (text, key, field) in [
            (&b"w_*"[..], &b"w_x"[..], None),
            (b"*", b"x", None),
            (b"a*b*", b"axb*", None),
            (b"o_*->f", b"o_x", Some(&b"f"[..])),
            (b"o_*_z->f->g", b"o_x_z", Some(b"f->g")),
            (b"o_*->", b"o_x->", None),
            (b"a->b*", b"a->bx", None),
            (b"a*->\0f", b"ax->\0f", None),
        ] {
            let pattern = Pattern::parse(text).expect("a star");
            assert_eq!(pattern.key_for(b"x"), key);
            assert_eq!(pattern.field(), field);
        }
        for text in [&b""[..], b"nosort", b"#", b"a\0*"] {
            assert_eq!(Pattern::parse(text), None);
        }
    }
}
