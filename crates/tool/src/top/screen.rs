//! The terminal: an alternate screen, with the previous state restored at the end, and key presses
//! without a line break.

use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Number of rows if the terminal does not report it.
const ROWS: usize = 24;

/// A terminal's previous state, which is restored at the end.
pub(super) struct Screen {
    before: Termios,
}

impl Screen {
    pub(super) fn enter() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        let screen = Self { before };
        let mut out = io::stdout();
        out.write_all(b"\x1b[?1049h\x1b[?25l")?;
        out.flush()?;
        Ok(screen)
    }

    pub(super) fn rows(&self) -> usize {
        let size = tcgetwinsize(io::stdout());
        match size.map(|size| usize::from(size.ws_row)) {
            Ok(rows) if rows > 0 => rows,
            _ => ROWS,
        }
    }

    /// Replaces the shown text.
    pub(super) fn show(&self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut bytes = b"\x1b[H".to_vec();
        for line in text.lines().take(self.rows()) {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\x1b[K\r\n");
        }
        // Without the last line break, because a full screen would scroll.
        bytes.truncate(bytes.len().saturating_sub(2));
        bytes.extend_from_slice(b"\x1b[J");
        out.write_all(&bytes)?;
        out.flush()
    }

    /// Waits. Returns whether the user wants to end it.
    pub(super) fn is_ended_within(&self, pause: Duration) -> bool {
        let timeout = Timespec::try_from(pause).unwrap_or_default();
        let stdin = io::stdin();
        let waited = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout));
        if !matches!(waited, Ok(1)) {
            return false;
        }
        let mut keys = [0; 16];
        match rustix::io::read(&stdin, &mut keys) {
            // q, Ctrl-C, Ctrl-D, or the terminal is closed.
            Ok(count) => count == 0 || keys[..count].iter().any(|key| matches!(key, b'q' | 3 | 4)),
            Err(_) => true,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        // The process ends: failures have no consequence now.
        let _shown = out
            .write_all(b"\x1b[?25h\x1b[?1049l")
            .and_then(|()| out.flush());
        let _set = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
