//! Files of the system that are written and read past its cache.
//!
//! ```text
//!   write_at ──► piece, on pages of its own ──► device          whole pages
//!                  └ what ends inside a page ──► system         until there is more of it
//! ```
//!
//! A page that is new in the system's cache costs more than what is written into it: some microseconds on virtual
//! machines, where its memory has to be found twice. What is written once and read seldom needs no place there.
//! Such writes must begin and end with blocks of the device, in the file and in memory; so bytes are put together
//! here, in memory that is used again and again. Words that lie in pages of memory as they are to lie in the file go
//! to the device from where they are.
//!
//! Rules
//!  1. What ends inside a page goes there with zeroes behind it if the file reaches that far, and else through the
//!     system's cache: a file is never longer than it was asked to be, whenever the power goes.
//!  2. The system keeps its cache and such writes in agreement, one after the other. So nobody reads or writes the
//!     usual way while a piece is on its way ([`Pump::settle`]).
//!  3. Where a file system does not take such writes, they go the usual way, and nobody need know.
//!  4. A piece that was lost on its way is an error of everything that follows, [`DiskFile::sync`] above all.

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

/// What begins and ends here is taken by every device; others use the usual way.
const PAGE_BYTES: usize = 4096;

#[cfg(not(any(loom, shuttle)))]
const WORD_BYTES: usize = size_of::<AtomicU64>();

/// What goes to the device at once.
const PIECE_BYTES: usize = 1 << 20;

/// Words of so many pages are worth a call of their own.
#[cfg(not(any(loom, shuttle)))]
const PAGES_IN_PLACE_MIN: usize = 8;

/// Pieces of one file: one that is being filled, and one that is on its way.
const PIECES_MAX: usize = 2;

/// Who takes pieces to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helper {
    /// A thread of the file's own, so that who fills them need not wait for it.
    Thread,
    /// Whoever fills them.
    None,
}

/// Makes a file that must not exist yet.
pub(super) fn create(path: &Path, helper: Helper) -> io::Result<Box<dyn DiskFile>> {
    let file = direct_file(path, File::create_new(path)?, helper)?;
    Ok(Box::new(file))
}

/// Opens a file that exists, of which nothing counts any more.
pub(super) fn rewrite(path: &Path) -> io::Result<Box<dyn DiskFile>> {
    let plain = File::options().read(true).write(true).open(path)?;
    let file = direct_file(path, plain, Helper::None)?;
    // Pages are written whole, with zeroes in place of what is not kept.
    file.state().written_end = 0;
    Ok(Box::new(file))
}

fn direct_file(path: &Path, plain: File, helper: Helper) -> io::Result<DirectFile> {
    let direct = open_direct(path, OpenOptions::new().write(true));
    DirectFile::new(Ways::new(plain, direct), PIECE_BYTES, helper)
}

/// Opens a file that is read from front to back, once.
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

/// Opens a file that the kernel reads whole blocks of. Only where the system tells how long a block is.
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
    // Whatever is in the way, there is another one.
    options.custom_flags(flags).open(path).ok()
}

/// Whether an error says that the file system, or the device behind it, does not take such a request.
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
    /// The direct way was refused.
    is_refused: AtomicBool,
    /// It is to be refused when it is taken first.
    #[cfg(test)]
    refuses: bool,
}

impl Ways {
    /// Of a file that was opened the usual way, and perhaps the direct way.
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
                // From here on it cannot go on that way.
                break;
            }
        }
        self.plain.write_at(&bytes[done..], offset + done as u64)
    }

    /// Writes whole pages of bytes and, behind them, of words from where they are.
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

/// A file that is written to past the system's cache, from front to back above all.
#[derive(Debug)]
struct DirectFile {
    ways: Arc<Ways>,
    state: Mutex<State>,
}

/// What is being put together.
#[derive(Debug)]
struct State {
    buffer: PageBuffer,
    /// Where the buffer's first byte goes, which begins a page; none when nobody knows.
    start: Option<u64>,
    /// Bytes of the buffer that there are.
    filled: usize,
    /// So many of them are in the file already.
    out: usize,
    /// Length of the file, as far as it is known here: it is no shorter.
    len: u64,
    /// Behind the last byte of the file that was written and is kept.
    written_end: u64,
    pump: Option<Pump>,
    fault: Option<Fault>,
}

/// An error, to be told again.
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
            // Where there is no thread to be had, it is done without.
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

    /// The state, with everything that was written in the file.
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

    /// Forgets what could not be written. Who was told that it would be must not believe that it was.
    fn lose(&mut self, error: io::Error) -> io::Error {
        self.forget();
        self.fault.get_or_insert_with(|| Fault::of(&error));
        error
    }

    fn forget(&mut self) {
        (self.start, self.filled, self.out) = (None, 0, 0);
    }

    /// Where what is put together ends.
    fn end(&self) -> Option<u64> {
        self.start.map(|start| start + self.filled as u64)
    }

    /// Puts bytes behind what there is, and hands over what became a whole piece.
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

    /// As [`State::put`], of words.
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

    /// Takes words to the device from where they are, if their pages are those of the file; how many that were. What is
    /// before them on a page goes with it, and what is behind the last page is left.
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

    /// Everything before a page is in the file, and nothing behind.
    fn begin_behind(&mut self, end: u64) {
        self.len = self.len.max(end);
        self.written_end = self.written_end.max(end);
        (self.start, self.filled, self.out) = (Some(end), 0, 0);
    }

    /// So many bytes more were put into the buffer.
    fn advance(&mut self, ways: &Ways, count: usize) -> io::Result<()> {
        self.filled += count;
        if self.filled == self.buffer.len() {
            self.end_piece(ways)?;
        }
        Ok(())
    }

    /// Begins at another place, with what stands before it on its page.
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

    /// The piece is full: it goes, and the next one begins.
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

    /// Hands over what is not a whole piece.
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

    /// Hands over what is not a whole piece, to the system alone.
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

    /// Sees to it that everything is in the file, and nothing on its way.
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

    /// Through the system's cache: nobody waits for the device. The next piece takes whole pages again.
    fn hand_over(&self) -> io::Result<()> {
        let mut state = self.state();
        let handed = state.check().and_then(|()| state.put_in_cache(&self.ways));
        handed.map_err(|error| state.lose(error))
    }

    fn sync(&self) -> io::Result<()> {
        // Who writes on meanwhile does not wait for the device.
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
        // Whether it comes to that or not.
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

/// A thread that takes pieces to the device, so that who fills them need not wait for it.
#[derive(Debug)]
struct Pump {
    pieces: Option<SyncSender<Piece>>,
    back: Receiver<(PageBuffer, io::Result<()>)>,
    thread: Option<JoinHandle<()>>,
    /// Pieces that are on their way.
    on_way: usize,
    /// Room for pieces, to be filled.
    spare: Vec<PageBuffer>,
    /// Pieces that may still be made.
    to_make: usize,
    piece_bytes: usize,
}

/// What goes to the device, from some page of it on.
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

    /// Sends what is in `buffer`, from a page of it on, and puts room for the next piece in its place.
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

    /// Waits for a piece that is on its way.
    fn take_back(&mut self) -> io::Result<PageBuffer> {
        let (buffer, result) = self.back.recv().map_err(|_| gone())?;
        self.on_way -= 1;
        result.map(|()| buffer)
    }

    /// Waits for all of them.
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

/// A file that is read past the system's cache, from front to back above all.
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
    /// The bytes at `offset`, as many as are there at once; none at the end of the file.
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

    /// Has the next piece read meanwhile. Where there is no thread for it, it is read when it is wanted.
    fn look_ahead(&mut self, file: &Arc<File>) {
        if self.scout.is_none() {
            self.scout = Scout::start(file, self.buffer.len()).ok();
        }
        if let Some(scout) = &mut self.scout {
            scout.want(self.start + self.filled as u64);
        }
    }
}

/// One read; none of it at the end of the file.
fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// A thread that reads the next piece, so that who works on this one need not wait for the device.
#[derive(Debug)]
struct Scout {
    wanted: Option<SyncSender<(PageBuffer, u64)>>,
    read: Receiver<(PageBuffer, u64, io::Result<usize>)>,
    thread: Option<JoinHandle<()>>,
    /// Room for a piece; none while it is being read.
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

    /// Asks for the piece at `start`. What was asked for before must have been taken.
    fn want(&mut self, start: u64) {
        if let (Some(wanted), Some(spare)) = (&self.wanted, self.spare.take()) {
            // Without the thread there is no piece, and it is read when it is wanted.
            let _sent = wanted.send((spare, start));
        }
    }

    /// Puts what was asked for in place of `buffer`; where it begins and how long it is.
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
