//! Signals that end a server, received in one place and as data.
//!
//! The signals are blocked in every thread and read from a descriptor, so no code runs in a signal
//! handler. Threads inherit the mask, so [`Signals::install`] must be called before the first
//! thread is started.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};

use crate::waker::Waker;

/// A request to end the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, from an operator or the service manager.
    Terminate,
    /// SIGINT, from the terminal.
    Interrupt,
}

/// Why [`Signals::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakening {
    /// A signal was received.
    Signal(Signal),
    /// [`Signals::waker`] rang: another thread wakes the waiting thread.
    Woken,
}

/// The process's receiver of signals. Create one, in the main thread.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    waker: Waker,
}

impl Signals {
    /// Ignores SIGPIPE and SIGHUP, and keeps SIGTERM and SIGINT for [`wait`](Self::wait). Must be
    /// called before any thread is started.
    ///
    /// # Errors
    /// If the process may not open more descriptors.
    pub fn install() -> io::Result<Self> {
        ignore(libc::SIGPIPE);
        ignore(libc::SIGHUP);
        let set = signal_set(&[libc::SIGTERM, libc::SIGINT]);
        // SAFETY: `set` is an initialised signal set; the old mask is not requested.
        let failure =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if failure != 0 {
            return Err(io::Error::from_raw_os_error(failure));
        }
        // SAFETY: `set` is an initialised signal set, and -1 requests a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above just created `fd`, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            fd,
            waker: Waker::new()?,
        })
    }

    /// Sleeps until a signal is received or the waker rings.
    ///
    /// # Errors
    /// If the descriptors cannot be polled, which does not happen in a sound process.
    pub fn wait(&self) -> io::Result<Wakening> {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(signal) = self.next_signal() {
                return Ok(Wakening::Signal(signal));
            }
            if self.waker.take() {
                return Ok(Wakening::Woken);
            }
        }
    }

    /// Returns the waker that makes [`wait`](Self::wait) return from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    #[expect(clippy::host_endian_bytes, reason = "the kernel gives a native number")]
    fn next_signal(&self) -> Option<Signal> {
        // The record starts with the signal's number, a u32.
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        let count = rustix::io::read(&self.fd, &mut record).ok()?;
        let number = record[..count].first_chunk()?;
        match u32::from_ne_bytes(*number).cast_signed() {
            libc::SIGTERM => Some(Signal::Terminate),
            libc::SIGINT => Some(Signal::Interrupt),
            _ => None,
        }
    }
}

/// Clears the signal mask that [`Signals::install`] set. Called in a child process before it runs
/// another program, because the mask survives `exec`.
pub fn unblock_all() {
    let none = signal_set(&[]);
    // SAFETY: `none` is an initialised signal set; the old mask is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
}

fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that it gets.
    let mut set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for &signal in signals {
        // SAFETY: the set is initialised, and the signal is a constant of the system.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

fn ignore(signal: libc::c_int) {
    // SAFETY: SIG_IGN installs no code, so nothing can run in a signal's context.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}
