//! Inline requests: a line of words, as a person types it.
//!
//! Without quotes, its words are views of the input, like the arguments of any request. With
//! quotes, a word differs from its spelling, and the batch keeps a copy.

use base::words;

use crate::error::ProtocolError;
use crate::request::{Batch, Span};

/// Adds the words of `line`, which begins at `line_start` of the input, to `batch` as spans.
/// Returns whether the spans point into the batch's side buffer instead of the input.
pub(crate) fn push_words(
    line: &[u8],
    line_start: usize,
    batch: &mut Batch,
) -> Result<bool, ProtocolError> {
    let quoted = line.iter().any(|byte| matches!(byte, b'"' | b'\''));
    if quoted {
        push_quoted_words(line, batch)?;
    } else {
        push_plain_words(line, line_start, batch);
    }
    Ok(quoted)
}

fn push_quoted_words(line: &[u8], batch: &mut Batch) -> Result<(), ProtocolError> {
    for word in words::split(line).map_err(|_| ProtocolError::UnbalancedQuotes)? {
        batch
            .spans
            .push(Span::new(batch.unescaped.len(), word.len()));
        batch.unescaped.extend(word);
    }
    Ok(())
}

fn push_plain_words(line: &[u8], line_start: usize, batch: &mut Batch) {
    let mut position = 0;
    loop {
        position += count_while(&line[position..], |byte| {
            matches!(byte, b' ' | b'\t'..=b'\r')
        });
        if position == line.len() {
            return;
        }
        // Vertical tab and form feed separate words only before a word.
        let is_word = |byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let length = count_while(&line[position..], is_word);
        batch.spans.push(Span::new(line_start + position, length));
        position += length;
    }
}

fn count_while(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|&&byte| belongs(byte)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quotes_or_not_the_words_are_the_same(line in "[a-c \t\r\n\x0b\x0c]{0,20}") {
            let mut batch = Batch::new();
            push_plain_words(line.as_bytes(), 0, &mut batch);
            let plain = batch.spans.as_slice().iter().map(|span| span.of(line.as_bytes()));
            let quoted = words::split(line.as_bytes()).unwrap();
            prop_assert_eq!(plain.collect::<Vec<_>>(), quoted);
        }
    }
}
