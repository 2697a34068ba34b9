//! Files of the system that are written and read past its cache.
//!
//! ```text
//!   write_at ──► piece, on pages of its own ──► device          whole pages
//!                  └ what ends inside a page ──► system         until there is more of it
//! ```
//!
//! A new page in the system's cache costs more than the copy into it: some microseconds on virtual
//! machines, where its memory has to be found twice. Data that is written once and seldom read
//! needs no page there. Direct writes must begin and end with blocks of the device, in the file and
//! in memory. So this module collects bytes in memory that it reuses. Words that lie in pages of
//! memory exactly as in the file go to the device from where they are.
//!
//! Rules
//!  1. Bytes that end inside a page are padded with zeroes to the page's end if the file reaches
//!     that far. Otherwise they go through the system's cache. So a file is never longer than
//!     requested, whenever the power fails.
//!  2. The system keeps its cache and direct writes consistent if they happen one after the other.
//!     So no thread reads or writes through the cache while a piece is in flight
//!     ([`Pump::settle`]).
//!  3. If a file system does not accept direct writes, they go through the cache. Callers need not
//!     know.
//!  4. If a piece in flight is lost, every later call fails, [`DiskFile::sync`] above all.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::AtomicBool;
#[cfg(not(any(loom, shuttle)))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use base::page_buffer::PageBuffer;
#[cfg(not(any(loom, shuttle)))]
use base::shared_words::copy_out;

use rustix::fs::StatxFlags;

use super::{BlockFile, DiskFile, SystemFile};

/// Alignment that every device accepts. Devices that do not are accessed through the cache.
const PAGE_BYTES: usize = 4096;

#[cfg(not(any(loom, shuttle)))]
const WORD_BYTES: usize = size_of::<AtomicU64>();

/// Size of a piece, which goes to the device at once.
const PIECE_BYTES: usize = 1 << 20;

/// Minimum number of pages of words that are worth a call of their own.
#[cfg(not(any(loom, shuttle)))]
const PAGES_IN_PLACE_MIN: usize = 8;

/// Pieces of one file: one that is being filled, and one in flight.
const PIECES_MAX: usize = 2;

/// The thread that writes pieces to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helper {
    /// A thread of the file's own, so that the thread that fills pieces need not wait for the
    /// device.
    Thread,
    /// The thread that fills the pieces.
    None,
}

/// Creates a file that must not exist yet.
pub(super) fn create(path: &Path, helper: Helper) -> io::Result<Box<dyn DiskFile>> {
    let file = direct_file(path, File::create_new(path)?, helper)?;
    Ok(Box::new(file))
}

/// Opens an existing file whose content no longer counts.
pub(super) fn rewrite(path: &Path) -> io::Result<Box<dyn DiskFile>> {
    let plain = File::options().read(true).write(true).open(path)?;
    let file = direct_file(path, plain, Helper::None)?;
    // Pages are written whole, with zeroes in place of old content.
    file.state().written_end = 0;
    Ok(Box::new(file))
}

fn direct_file(path: &Path, plain: File, helper: Helper) -> io::Result<DirectFile> {
    let direct = open_direct(path, OpenOptions::new().write(true));
    DirectFile::new(Ways::new(plain, direct), PIECE_BYTES, helper)
}

/// Opens a file that is read once, from front to back.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn DiskFile>> {
    let plain = File::open(path)?;
    let Some(direct) = open_direct(path, OpenOptions::new().read(true)) else {
        return Ok(Box::new(SystemFile::new(plain)));
    };
    let plain = SystemFile::new(plain);
    let whole = plain.size()?.next_multiple_of(PAGE_BYTES as u64);
    let piece_bytes = usize::try_from(whole).unwrap_or(PIECE_BYTES);
    let piece_bytes = piece_bytes.clamp(PAGE_BYTES, PIECE_BYTES);
    let reader = DirectReader::new(plain, direct, piece_bytes)?;
    Ok(Box::new(reader))
}

/// Opens a file from which the kernel reads whole blocks. Only where the system reports the block
/// size.
pub(super) fn open_blocks(path: &Path) -> Option<BlockFile> {
    let file = open_direct(path, OpenOptions::new().read(true))?;
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    let told = rustix::fs::statx(&file, "", flags, StatxFlags::DIOALIGN).ok()?;
    let is_told = told.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let in_memory = usize::try_from(told.stx_dio_mem_align).ok()?;
    let block_bytes = usize::try_from(told.stx_dio_offset_align).ok()?;
    let is_good = |bytes: usize| bytes.is_power_of_two() && bytes <= PAGE_BYTES;
    (is_told && is_good(in_memory) && is_good(block_bytes)).then(|| BlockFile {
        file: Arc::new(file),
        block_bytes,
    })
}

fn open_direct(path: &Path, options: &mut OpenOptions) -> Option<File> {
    let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    // Any error is ignored, because the other way remains.
    options.custom_flags(flags).open(path).ok()
}

/// Whether an error says that the file system, or the device behind it, does not support such a
/// request.
fn is_refusal(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(
        errno,
        Some(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP)
    )
}

/// One file, opened twice.
#[derive(Debug)]
struct Ways {
    plain: SystemFile,
    direct: Option<File>,
    /// Whether a direct write was refused.
    is_refused: AtomicBool,
    /// Whether the first direct write is to be refused, for tests.
    #[cfg(test)]
    refuses: bool,
}

impl Ways {
    /// Returns the ways of a file that was opened through the cache, and perhaps also directly.
    fn new(plain: File, direct: Option<File>) -> Self {
        Self {
            plain: SystemFile::new(plain),
            direct,
            is_refused: AtomicBool::new(false),
            #[cfg(test)]
            refuses: false,
        }
    }

    fn direct(&self) -> Option<&File> {
        let is_refused = self.is_refused.load(Relaxed);
        self.direct.as_ref().filter(|_| !is_refused)
    }

    fn write_some(&self, direct: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        #[cfg(test)]
        if self.refuses {
            return Err(rustix::io::Errno::INVAL.into());
        }
        direct.write_at(bytes, offset)
    }

    /// Writes whole pages.
    fn write_pages(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while let Some(direct) = self.direct()
            && done < bytes.len()
        {
            match self.write_some(direct, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_refusal(&error) => self.is_refused.store(true, Relaxed),
                Err(error) => return Err(error),
            }
            if !done.is_multiple_of(PAGE_BYTES) {
                // The rest cannot go the direct way.
                break;
            }
        }
        self.plain.write_at(&bytes[done..], offset + done as u64)
    }

    /// Writes whole pages of bytes and, behind them, of words from where they lie.
    #[cfg(not(any(loom, shuttle)))]
    fn write_pages_of_words(
        &self,
        bytes: &[u8],
        words: &[AtomicU64],
        offset: u64,
    ) -> io::Result<()> {
        if let Some(direct) = self.direct() {
            match self.write_some_words(direct, bytes, words, offset) {
                Err(error) if is_refusal(&error) => self.is_refused.store(true, Relaxed),
                written => return written,
            }
        }
        self.plain.write_words_at(bytes, &[words], offset)
    }

    #[cfg(not(any(loom, shuttle)))]
    fn write_some_words(
        &self,
        direct: &File,
        bytes: &[u8],
        words: &[AtomicU64],
        offset: u64,
    ) -> io::Result<()> {
        #[cfg(test)]
        if self.refuses {
            return Err(rustix::io::Errno::INVAL.into());
        }
        base::gather_write::write_words_at(direct, bytes, &[words], offset)
    }
}

/// A file that is written past the system's cache, mostly from front to back.
#[derive(Debug)]
struct DirectFile {
    ways: Arc<Ways>,
    state: Mutex<State>,
}

/// The piece that is being filled.
#[derive(Debug)]
struct State {
    buffer: PageBuffer,
    /// Position of the buffer's first byte in the file, which begins a page; `None` if there is no
    /// piece.
    start: Option<u64>,
    /// Number of bytes in the buffer.
    filled: usize,
    /// Number of those bytes that are in the file already.
    out: usize,
    /// Lower bound of the file's length.
    len: u64,
    /// End of the last byte of the file that was written and is kept.
    written_end: u64,
    pump: Option<Pump>,
    fault: Option<Fault>,
}

/// An error that later calls report again.
#[derive(Clone, Copy, Debug)]
struct Fault(Option<i32>, io::ErrorKind);

impl Fault {
    fn of(error: &io::Error) -> Self {
        Self(error.raw_os_error(), error.kind())
    }

    fn error(self) -> io::Error {
        self.0
            .map_or_else(|| self.1.into(), io::Error::from_raw_os_error)
    }
}

impl DirectFile {
    fn new(ways: Ways, piece_bytes: usize, helper: Helper) -> io::Result<Self> {
        let len = ways.plain.size()?;
        let ways = Arc::new(ways);
        let pump = match helper {
            // If no thread can be started, the file works without one.
            Helper::Thread => Pump::start(&ways, piece_bytes).ok(),
            Helper::None => None,
        };
        let state = State {
            buffer: PageBuffer::new(piece_bytes)?,
            start: None,
            filled: 0,
            out: 0,
            len,
            written_end: len,
            pump,
            fault: None,
        };
        Ok(Self {
            ways,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state after all written bytes are in the file.
    fn settled(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        let settled = state.check().and_then(|()| state.settle(&self.ways));
        settled.map_err(|error| state.lose(error))?;
        Ok(state)
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        self.fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    /// Forgets the bytes that could not be written, and keeps the error. A caller whose write was
    /// accepted must not believe that it reached the file.
    fn lose(&mut self, error: io::Error) -> io::Error {
        self.forget();
        self.fault.get_or_insert_with(|| Fault::of(&error));
        error
    }

    fn forget(&mut self) {
        (self.start, self.filled, self.out) = (None, 0, 0);
    }

    /// Returns the position behind the buffered bytes.
    fn end(&self) -> Option<u64> {
        self.start.map(|start| start + self.filled as u64)
    }

    /// Appends bytes to the piece, and hands over each piece that is full.
    fn put(&mut self, ways: &Ways, mut bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.end() != Some(offset) && !bytes.is_empty() {
            self.go_to(ways, offset)?;
        }
        while !bytes.is_empty() {
            let room = self.buffer.len() - self.filled;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer[self.filled..][..now.len()].copy_from_slice(now);
            bytes = later;
            self.advance(ways, now.len())?;
        }
        self.written_end = self.written_end.max(self.end().unwrap_or(0));
        Ok(())
    }

    /// Like [`State::put`], for words.
    #[cfg(not(any(loom, shuttle)))]
    fn put_words(&mut self, ways: &Ways, mut words: &[AtomicU64], offset: u64) -> io::Result<()> {
        if self.end() != Some(offset) && !words.is_empty() {
            self.go_to(ways, offset)?;
        }
        while let Some(word) = words.first() {
            let gone = self.put_in_place(ways, words)?;
            if gone > 0 {
                words = &words[gone..];
                continue;
            }
            let room = &mut self.buffer[self.filled..];
            let (now, later) = words.split_at((room.len() / WORD_BYTES).min(words.len()));
            copy_out(now, &mut room[..size_of_val(now)]);
            words = later;
            if now.is_empty() {
                // The piece ends inside a word.
                let end = self.end().unwrap_or(offset);
                self.put(ways, &word.load(Relaxed).to_le().to_le_bytes(), end)?;
                words = &words[1..];
            } else {
                self.advance(ways, size_of_val(now))?;
            }
        }
        self.written_end = self.written_end.max(self.end().unwrap_or(0));
        Ok(())
    }

    /// Writes words to the device from where they lie, if their pages coincide with those of the
    /// file. Returns the number of words written. Buffered bytes before them on the first page go
    /// with them; words behind the last whole page are left.
    #[cfg(not(any(loom, shuttle)))]
    fn put_in_place(&mut self, ways: &Ways, words: &[AtomicU64]) -> io::Result<usize> {
        let in_page = self.filled % PAGE_BYTES;
        let first = in_page.next_multiple_of(PAGE_BYTES) - in_page;
        let pages = size_of_val(words).saturating_sub(first) / PAGE_BYTES;
        let is_in_step = words.as_ptr().addr() % PAGE_BYTES == in_page;
        let (Some(start), None) = (self.start, &self.pump) else {
            return Ok(0);
        };
        if !is_in_step || pages < PAGES_IN_PLACE_MIN {
            return Ok(0);
        }
        let (on_page, behind) = words.split_at(first / WORD_BYTES);
        copy_out(on_page, &mut self.buffer[self.filled..][..first]);
        self.filled += first;
        let whole = &behind[..pages * PAGE_BYTES / WORD_BYTES];
        let from = self.out - self.out % PAGE_BYTES;
        let staged = &self.buffer[from..self.filled];
        ways.write_pages_of_words(staged, whole, start + from as u64)?;
        self.begin_behind(start + (self.filled + size_of_val(whole)) as u64);
        Ok(on_page.len() + whole.len())
    }

    /// Starts an empty piece at page boundary `end`: everything before it is in the file.
    fn begin_behind(&mut self, end: u64) {
        self.len = self.len.max(end);
        self.written_end = self.written_end.max(end);
        (self.start, self.filled, self.out) = (Some(end), 0, 0);
    }

    /// Accounts for `count` more bytes in the buffer, and ends the piece if it is full.
    fn advance(&mut self, ways: &Ways, count: usize) -> io::Result<()> {
        self.filled += count;
        if self.filled == self.buffer.len() {
            self.end_piece(ways)?;
        }
        Ok(())
    }

    /// Starts a piece at another position, with the file's bytes before it on its page.
    fn go_to(&mut self, ways: &Ways, offset: u64) -> io::Result<()> {
        self.settle(ways)?;
        self.forget();
        let before = usize::try_from(offset % PAGE_BYTES as u64).map_err(io::Error::other)?;
        let start = offset - before as u64;
        let page = &mut self.buffer[..before];
        let found = ways.plain.read_at(page, start)?;
        page[found..].fill(0);
        (self.start, self.filled, self.out) = (Some(start), before, before);
        Ok(())
    }

    /// Writes or sends the full piece, and starts the next one.
    fn end_piece(&mut self, ways: &Ways) -> io::Result<()> {
        let Some(start) = self.start else {
            return Ok(());
        };
        let from = self.out - self.out % PAGE_BYTES;
        match &mut self.pump {
            Some(pump) => pump.send(&mut self.buffer, from, start)?,
            None => ways.write_pages(&self.buffer[from..], start + from as u64)?,
        }
        self.begin_behind(start + self.buffer.len() as u64);
        Ok(())
    }

    /// Hands over a piece that is not full.
    fn hand_over(&mut self, ways: &Ways) -> io::Result<()> {
        let Some(start) = self.start else {
            return Ok(());
        };
        if self.out == self.filled {
            return Ok(());
        }
        let end = start + self.filled as u64;
        let whole = self.filled - self.filled % PAGE_BYTES;
        let padded = self.filled.next_multiple_of(PAGE_BYTES);
        let mut from = self.out - self.out % PAGE_BYTES;
        let mut to = whole;
        if start + padded as u64 <= self.len {
            let padding = &mut self.buffer[self.filled..padded];
            let mut found = 0;
            if end < self.written_end {
                found = ways.plain.read_at(padding, end)?;
            }
            padding[found..].fill(0);
            to = padded;
        }
        if from < to {
            ways.write_pages(&self.buffer[from..to], start + from as u64)?;
            from = to;
        }
        if from < self.filled {
            let rest = from.max(self.out);
            let bytes = &self.buffer[rest..self.filled];
            ways.plain.write_at(bytes, start + rest as u64)?;
        }
        self.out = self.filled;
        self.len = self.len.max(end);
        Ok(())
    }

    /// Hands over a piece that is not full, only to the system's cache.
    fn put_in_cache(&mut self, ways: &Ways) -> io::Result<()> {
        if let Some(pump) = &mut self.pump {
            pump.settle()?;
        }
        if let Some(start) = self.start
            && self.out < self.filled
        {
            let bytes = &self.buffer[self.out..self.filled];
            ways.plain.write_at(bytes, start + self.out as u64)?;
            self.out = self.filled;
            self.len = self.len.max(start + self.filled as u64);
        }
        Ok(())
    }

    /// Waits until all bytes are in the file and no piece is in flight.
    fn settle(&mut self, ways: &Ways) -> io::Result<()> {
        if let Some(pump) = &mut self.pump {
            pump.settle()?;
        }
        self.hand_over(ways)
    }
}

impl DiskFile for DirectFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state();
        let written = state.check();
        let written = written.and_then(|()| state.put(&self.ways, bytes, offset));
        written.map_err(|error| state.lose(error))
    }

    #[cfg(not(any(loom, shuttle)))]
    fn write_words_at(&self, head: &[u8], rows: &[&[AtomicU64]], offset: u64) -> io::Result<()> {
        let mut state = self.state();
        let mut put = || {
            state.check()?;
            state.put(&self.ways, head, offset)?;
            let mut end = offset + head.len() as u64;
            for row in rows {
                state.put_words(&self.ways, row, end)?;
                end += size_of_val(*row) as u64;
            }
            Ok(())
        };
        let written = put();
        written.map_err(|error| state.lose(error))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let _settled = self.settled()?;
        self.ways.plain.read_at(buffer, offset)
    }

    /// Writes through the system's cache, so that no thread waits for the device. The next piece
    /// takes whole pages again.
    fn hand_over(&self) -> io::Result<()> {
        let mut state = self.state();
        let handed = state.check().and_then(|()| state.put_in_cache(&self.ways));
        handed.map_err(|error| state.lose(error))
    }

    fn sync(&self) -> io::Result<()> {
        // The lock is released before the sync, so that writers do not wait for the device.
        drop(self.settled()?);
        self.ways.plain.sync()
    }

    fn size(&self) -> io::Result<u64> {
        let _settled = self.settled()?;
        self.ways.plain.size()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.settled()?;
        state.forget();
        // Lowered first, because the call may fail.
        state.len = state.len.min(len);
        self.ways.plain.set_len(len)?;
        state.len = len;
        state.written_end = state.written_end.min(len);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.settled()?;
        self.ways.plain.allocate(len)?;
        state.len = state.len.max(len);
        Ok(())
    }

    fn is_past_cache(&self) -> bool {
        self.ways.direct().is_some()
    }
}

/// A thread that writes pieces to the device, so that the thread that fills them need not wait for
/// it.
#[derive(Debug)]
struct Pump {
    pieces: Option<SyncSender<Piece>>,
    back: Receiver<(PageBuffer, io::Result<()>)>,
    thread: Option<JoinHandle<()>>,
    /// Number of pieces in flight.
    on_way: usize,
    /// Empty buffers for pieces.
    spare: Vec<PageBuffer>,
    /// Number of buffers that may still be allocated.
    to_make: usize,
    piece_bytes: usize,
}

/// Bytes that go to the device, from one of the buffer's pages on.
#[derive(Debug)]
struct Piece {
    buffer: PageBuffer,
    from: usize,
    start: u64,
}

impl Pump {
    fn start(ways: &Arc<Ways>, piece_bytes: usize) -> io::Result<Self> {
        let (pieces, to_write) = sync_channel::<Piece>(PIECES_MAX);
        let (written, back) = sync_channel(PIECES_MAX);
        let ways = Arc::clone(ways);
        let thread = std::thread::Builder::new().name("past-cache".into());
        let thread = thread.spawn(move || {
            for Piece {
                buffer,
                from,
                start,
            } in to_write
            {
                let result = ways.write_pages(&buffer[from..], start + from as u64);
                if written.send((buffer, result)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            pieces: Some(pieces),
            back,
            thread: Some(thread),
            on_way: 0,
            spare: Vec::new(),
            to_make: PIECES_MAX - 1,
            piece_bytes,
        })
    }

    /// Sends the content of `buffer` from byte `from` on, and replaces it by an empty buffer for
    /// the next piece.
    fn send(&mut self, buffer: &mut PageBuffer, from: usize, start: u64) -> io::Result<()> {
        let empty = self.empty()?;
        let buffer = std::mem::replace(buffer, empty);
        let piece = Piece {
            buffer,
            from,
            start,
        };
        let sent = self.pieces.as_ref().map(|pieces| pieces.send(piece));
        if !matches!(sent, Some(Ok(()))) {
            return Err(gone());
        }
        self.on_way += 1;
        Ok(())
    }

    fn empty(&mut self) -> io::Result<PageBuffer> {
        if let Some(buffer) = self.spare.pop() {
            return Ok(buffer);
        }
        if self.to_make > 0 {
            self.to_make -= 1;
            return PageBuffer::new(self.piece_bytes);
        }
        self.take_back()
    }

    /// Waits for one piece in flight.
    fn take_back(&mut self) -> io::Result<PageBuffer> {
        let (buffer, result) = self.back.recv().map_err(|_| gone())?;
        self.on_way -= 1;
        result.map(|()| buffer)
    }

    /// Waits for all pieces in flight.
    fn settle(&mut self) -> io::Result<()> {
        let mut settled = Ok(());
        while self.on_way > 0 {
            match self.back.recv() {
                Ok((buffer, result)) => {
                    self.on_way -= 1;
                    self.spare.push(buffer);
                    settled = settled.and(result);
                }
                Err(_) => return Err(gone()),
            }
        }
        settled
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.pieces = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that writes is gone")
}

/// A file that is read past the system's cache, mostly from front to back.
#[derive(Debug)]
struct DirectReader {
    plain: SystemFile,
    direct: Arc<File>,
    ahead: Mutex<Ahead>,
}

impl DirectReader {
    fn new(plain: SystemFile, direct: File, piece_bytes: usize) -> io::Result<Self> {
        let ahead = Ahead {
            buffer: PageBuffer::new(piece_bytes)?,
            start: 0,
            filled: 0,
            scout: None,
        };
        Ok(Self {
            plain,
            direct: Arc::new(direct),
            ahead: Mutex::new(ahead),
        })
    }
}

/// The piece that was read last, and the one behind it.
#[derive(Debug)]
struct Ahead {
    buffer: PageBuffer,
    start: u64,
    filled: usize,
    scout: Option<Scout>,
}

impl Ahead {
    /// Returns the bytes at `offset` that are available at once; none at the end of the file.
    fn at(&mut self, file: &Arc<File>, offset: u64) -> io::Result<&[u8]> {
        if !self.has(offset) {
            self.filled = 0;
            if let Some(scout) = &mut self.scout {
                (self.start, self.filled) = scout.swap(&mut self.buffer)?;
            }
            if !self.has(offset) {
                self.start = offset - offset % PAGE_BYTES as u64;
                self.filled = 0;
                self.filled = read_some(file, &mut self.buffer, self.start)?;
            }
            if self.filled == self.buffer.len() {
                self.look_ahead(file);
            }
        }
        let from = usize::try_from(offset - self.start).map_err(io::Error::other)?;
        Ok(self.buffer[..self.filled].get(from..).unwrap_or_default())
    }

    fn has(&self, offset: u64) -> bool {
        (self.start..self.start + self.filled as u64).contains(&offset)
    }

    /// Has the next piece read meanwhile. If no thread can be started, the piece is read when it is
    /// needed.
    fn look_ahead(&mut self, file: &Arc<File>) {
        if self.scout.is_none() {
            self.scout = Scout::start(file, self.buffer.len()).ok();
        }
        if let Some(scout) = &mut self.scout {
            scout.want(self.start + self.filled as u64);
        }
    }
}

/// Reads once; returns 0 at the end of the file.
fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// A thread that reads the next piece, so that the reader of this one need not wait for the device.
#[derive(Debug)]
struct Scout {
    wanted: Option<SyncSender<(PageBuffer, u64)>>,
    read: Receiver<(PageBuffer, u64, io::Result<usize>)>,
    thread: Option<JoinHandle<()>>,
    /// Buffer for a piece; `None` while it is being read.
    spare: Option<PageBuffer>,
}

impl Scout {
    fn start(file: &Arc<File>, piece_bytes: usize) -> io::Result<Self> {
        let spare = PageBuffer::new(piece_bytes)?;
        let (wanted, to_read) = sync_channel::<(PageBuffer, u64)>(1);
        let (done, read) = sync_channel(1);
        let file = Arc::clone(file);
        let thread = std::thread::Builder::new().name("past-cache".into());
        let thread = thread.spawn(move || {
            for (mut buffer, start) in to_read {
                let result = read_some(&file, &mut buffer, start);
                if done.send((buffer, start, result)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            wanted: Some(wanted),
            read,
            thread: Some(thread),
            spare: Some(spare),
        })
    }

    /// Requests the piece at `start`. The previous piece must have been taken.
    fn want(&mut self, start: u64) {
        if let (Some(wanted), Some(spare)) = (&self.wanted, self.spare.take()) {
            // If the thread is gone there is no piece, and it is read when it is needed.
            let _sent = wanted.send((spare, start));
        }
    }

    /// Swaps the requested piece with `buffer`; returns its position and length.
    fn swap(&mut self, buffer: &mut PageBuffer) -> io::Result<(u64, usize)> {
        if self.spare.is_some() {
            return Ok((0, 0));
        }
        let (read, start, result) = self.read.recv().map_err(|_| gone())?;
        self.spare = Some(std::mem::replace(buffer, read));
        Ok((start, result?))
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        self.wanted = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl DiskFile for DirectReader {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.plain.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < buffer.len() {
            let bytes = match ahead.at(&self.direct, offset + done as u64) {
                Err(error) if is_refusal(&error) => {
                    let rest = &mut buffer[done..];
                    return Ok(done + self.plain.read_at(rest, offset + done as u64)?);
                }
                bytes => bytes?,
            };
            let count = bytes.len().min(buffer.len() - done);
            if count == 0 {
                break;
            }
            buffer[done..done + count].copy_from_slice(&bytes[..count]);
            done += count;
        }
        Ok(done)
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.plain.size()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.plain.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.plain.allocate(len)
    }
}

#[cfg(test)]
mod tests;
