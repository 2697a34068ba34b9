//! Signals as data.

use std::thread;

use reactor::signals::{Signal, Signals, Wakening};

/// Sends a signal to the calling thread, because the other threads of a test program do not have
/// the mask that a server's threads inherit.
fn raise(signal: i32) {
    // SAFETY: `raise` accepts any number; `Signals` keeps or ignores the signals used here.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

#[test]
fn signals_are_kept_ignored_or_overtaken_by_a_wake() {
    let signals = Signals::install().unwrap();
    raise(libc::SIGHUP);
    raise(libc::SIGPIPE);
    raise(libc::SIGTERM);
    assert_eq!(signals.wait().unwrap(), Wakening::Signal(Signal::Terminate));
    raise(libc::SIGINT);
    assert_eq!(signals.wait().unwrap(), Wakening::Signal(Signal::Interrupt));
    let waker = signals.waker();
    thread::spawn(move || waker.wake());
    assert_eq!(signals.wait().unwrap(), Wakening::Woken);
}
