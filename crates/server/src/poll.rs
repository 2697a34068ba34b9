//! Polling, for threads that may wait and for state without notification of its changes.

use std::time::Duration;

/// Calls `ask` until it returns an answer, or for `time`; at least once. Sleeps for `pause` between
/// two calls.
pub(crate) fn poll<T>(
    time: Duration,
    pause: Duration,
    mut ask: impl FnMut() -> Option<T>,
) -> Option<T> {
    let mut waited = Duration::ZERO;
    loop {
        let answer = ask();
        if answer.is_some() || waited >= time {
            return answer;
        }
        std::thread::sleep(pause);
        waited += pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_until_there_is_an_answer_or_no_time_left() {
        let pause = Duration::from_millis(1);
        let mut asked = 0;
        let answer = poll(10 * pause, pause, || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!((answer, asked), (Some(3), 3));
        let mut asked = 0;
        let answer = poll(2 * pause, pause, || {
            asked += 1;
            None::<()>
        });
        assert_eq!((answer, asked), (None, 3));
    }
}
