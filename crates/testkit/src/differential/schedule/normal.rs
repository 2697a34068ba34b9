//! What a session receives, in a normal form without the parts that Redis leaves open:
//!
//! * How many keys an invalidation names. The normal form has one invalidation for each key,
//!   sorted.
//! * In which order UNSUBSCRIBE without arguments goes through channels. A hash table decides it.
//! * The error that a waiting consumer gets when its stream or group is deleted. It changed with
//!   Redis 7.2.
//! * The server's version, and the number of a connection.
//! * In which order several patterns match a message. A hash table decides it, too.

use protocol::Value;

use super::super::sequence::Answer;
use super::show_answer;

/// Returns answers in a form in which equivalent answers are equal.
pub(super) fn normal(heard: &[Answer]) -> Vec<Answer> {
    let mut normal = Vec::new();
    let mut run: Vec<Answer> = Vec::new();
    for answer in heard.iter().flat_map(in_parts) {
        if run
            .last()
            .is_some_and(|last| !are_exchangeable(last, &answer))
        {
            normal.append(&mut in_order(&mut run));
        }
        run.push(answer);
    }
    normal.append(&mut in_order(&mut run));
    normal
}

/// Counts answers and messages. In an invalidation, each key counts as one.
pub(super) fn units(heard: &[Vec<Answer>]) -> usize {
    let answers = heard.iter().flatten();
    answers.map(|answer| in_parts(answer).len()).sum()
}

fn in_parts(answer: &Answer) -> Vec<Answer> {
    if let Ok(value) = answer
        && is_greeting(value)
    {
        return vec![Ok(Value::Simple(b"(greeting)".to_vec()))];
    }
    if let Ok(value) = answer
        && tells_redirection(value)
    {
        return vec![Ok(Value::Simple(b"(tracking)".to_vec()))];
    }
    if let Ok(Value::Error(text)) = answer
        && (text.starts_with(b"UNBLOCKED the stream") || text.starts_with(b"NOGROUP "))
    {
        return vec![Ok(Value::Error(b"NOGROUP".to_vec()))];
    }
    if let Ok(Value::Bulk(text) | Value::Verbatim { text, .. }) = answer
        && text.starts_with(b"id=")
    {
        return vec![Ok(Value::Simple(b"(clients)".to_vec()))];
    }
    let Some(keys) = answer.as_ref().ok().and_then(invalidated) else {
        return vec![answer.clone()];
    };
    let alone = |key: &Value| {
        let kind = Value::Bulk(b"invalidate".to_vec());
        Ok(Value::Push(vec![kind, key.clone()]))
    };
    keys.iter().map(alone).collect()
}

/// Whether the value is a reply of CLIENT TRACKINGINFO, which contains the number of a connection,
/// or the message that this connection is gone.
fn tells_redirection(value: &Value) -> bool {
    let is_flags = |name: &Value| matches!(name, Value::Bulk(name) if name == b"flags");
    match value {
        Value::Array(parts) => {
            parts.first().is_some_and(is_flags) || parts.iter().any(tells_redirection)
        }
        Value::Map(pairs) => pairs.first().is_some_and(|(name, _)| is_flags(name)),
        Value::Push(parts) => {
            matches!(parts.first(), Some(Value::Bulk(kind)) if kind == b"tracking-redir-broken")
        }
        _ => false,
    }
}

/// Whether the value is a reply of HELLO, in a transaction or not.
fn is_greeting(value: &Value) -> bool {
    let first = match value {
        Value::Array(parts) if parts.iter().any(is_greeting) => return true,
        Value::Map(pairs) => pairs.first().map(|(name, _)| name),
        Value::Array(parts) => parts.first(),
        _ => None,
    };
    matches!(first, Some(Value::Bulk(name)) if name == b"server")
}

/// Whether the answer is an invalidation.
pub(super) fn is_invalidation(answer: &Answer) -> bool {
    let parts = answer.as_ref().ok().and_then(parts);
    let kind = parts.and_then(<[Value]>::first);
    matches!(kind, Some(Value::Bulk(kind)) if kind == b"invalidate")
}

/// Returns the keys that a message invalidates, or `None` for any other message. In RESP2 an
/// invalidation is a message of a channel.
fn invalidated(value: &Value) -> Option<&[Value]> {
    let parts = parts(value)?;
    let is_invalidation = match parts.first()? {
        Value::Bulk(kind) => kind == b"invalidate" || kind == b"message",
        _ => false,
    };
    match parts.last()? {
        Value::Array(keys) if is_invalidation => Some(keys),
        _ => None,
    }
}

fn parts(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Push(parts) | Value::Array(parts) => Some(parts),
        _ => None,
    }
}

/// Whether two adjacent messages may come in either order.
fn are_exchangeable(one: &Answer, two: &Answer) -> bool {
    let parts_of = |answer| Answer::as_ref(answer).ok().and_then(parts);
    let (Some(ones), Some(twos)) = (parts_of(one), parts_of(two)) else {
        return false;
    };
    let (Some(Value::Bulk(kind)), Some(Value::Bulk(other))) = (ones.first(), twos.first()) else {
        return false;
    };
    kind == other
        && match kind.as_slice() {
            b"invalidate" | b"unsubscribe" | b"punsubscribe" | b"sunsubscribe" => true,
            // The same message, received through two patterns.
            b"pmessage" => ones[2..] == twos[2..],
            _ => false,
        }
}

/// Sorts a run of exchangeable messages. The counts in confirmations stay at their positions.
fn in_order(run: &mut Vec<Answer>) -> Vec<Answer> {
    let mut run = std::mem::take(run);
    let counts: Vec<Option<Value>> = run.iter_mut().map(take_count).collect();
    run.sort_by_key(show_answer);
    for (answer, count) in run.iter_mut().zip(counts) {
        if let (Ok(Value::Push(parts) | Value::Array(parts)), Some(count)) = (answer, count) {
            parts.push(count);
        }
    }
    run
}

/// Removes the number of remaining subscriptions from a confirmation, and returns it.
fn take_count(answer: &mut Answer) -> Option<Value> {
    let Ok(Value::Push(parts) | Value::Array(parts)) = answer else {
        return None;
    };
    let [Value::Bulk(kind), _, Value::Integer(_)] = parts.as_slice() else {
        return None;
    };
    match kind.ends_with(b"unsubscribe") {
        true => parts.pop(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn gone(channel: &str, count: i64) -> Answer {
        let count = Value::Integer(count);
        Ok(Value::Push(vec![bulk("unsubscribe"), bulk(channel), count]))
    }

    fn invalid(keys: &[&str]) -> Answer {
        let keys = Value::Array(keys.iter().map(|key| bulk(key)).collect());
        Ok(Value::Push(vec![bulk("invalidate"), keys]))
    }

    #[test]
    fn what_redis_leaves_open_is_the_same() {
        assert_eq!(
            normal(&[gone("a", 1), gone("b", 0)]),
            normal(&[gone("b", 1), gone("a", 0)])
        );
        assert_ne!(
            normal(&[gone("a", 1), gone("b", 0)]),
            normal(&[gone("a", 0), gone("b", 1)])
        );
        assert_eq!(
            normal(&[invalid(&["a", "b"])]),
            normal(&[invalid(&["b"]), invalid(&["a"])])
        );
        assert_eq!(units(&[vec![invalid(&["a", "b"])], vec![gone("a", 1)]]), 3);
    }

    #[test]
    fn replies_stay_in_their_order() {
        let (one, two) = (Ok(Value::Integer(1)), Ok(Value::Integer(2)));
        assert_ne!(normal(&[one.clone(), two.clone()]), normal(&[two, one]));
    }
}
