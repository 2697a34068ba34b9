//! An append-only directory. The first byte chooses between the manifest and a file of requests,
//! and the size of the pieces in which that file is read.
//!
//! A manifest that is accepted is written in a form that parses to the same manifest. A file gives
//! the same requests with the same offsets and the same end, however it is read. Each request
//! stands at its offset. What is left out at the end does not begin with a request. The commands
//! are among the requests, in their order, and none is from the part that is left out.
#![no_main]

use std::io::Read;
use std::sync::LazyLock;

use engine::Table;
use libfuzzer_sys::fuzz_target;
use persistence::aof::Manifest;
use persistence::aof::course::{self, Taker};
use persistence::aof::reader::{AofReader, Cut, ReadFault};
use persistence::replay::ReplayFault;
use store::DatabaseId;

/// The commands that a file may hold.
static TABLE: LazyLock<&Table> = LazyLock::new(commands::table);

const DATABASES: DatabaseId = 4;
/// Maximum length of a line of a manifest; longer ones are refused.
const LINE_BYTES_MAX: usize = 1024;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    if choice == b'm' {
        return manifest(bytes);
    }
    let whole = read(bytes, usize::MAX);
    let piece = usize::from(choice) + 1;
    assert_eq!(read(bytes, piece), whole);
    let (requests, cut) = &whole;
    for (offset, request) in requests {
        let at = usize::try_from(*offset).expect("an offset in memory");
        assert!(bytes[at..].starts_with(request));
    }
    if let Some(Cut::Short(offset) | Cut::Damaged(offset)) = cut {
        let at = usize::try_from(*offset).expect("an offset in memory");
        let (again, _) = read(&bytes[at..], usize::MAX);
        assert!(again.is_empty(), "what is left out begins with a request");
    }
    let mut held = Held {
        requests,
        last: None,
    };
    if let Ok(left_out) = course::read(*TABLE, bytes, 0, DATABASES, &mut held) {
        assert!(held.last < left_out.or(Some(u64::MAX)));
    }
});

fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::parse(bytes) else {
        return;
    };
    // A quoted name may be four times as long, which can make a line too long.
    let text = manifest.to_string();
    if text.split('\n').all(|line| line.len() <= LINE_BYTES_MAX) {
        let again = Manifest::parse(text.as_bytes());
        assert_eq!(again.as_ref(), Ok(&manifest));
    }
}

/// A reader that returns at most this many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.min(self.0.len()).min(buffer.len());
        let (now, later) = self.0.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.0 = later;
        Ok(count)
    }
}

type Requests = Vec<(u64, Vec<u8>)>;

fn read(bytes: &[u8], piece: usize) -> (Requests, Option<Cut>) {
    let mut reader = AofReader::new(Pieces(bytes, piece), 0);
    let mut requests = Vec::new();
    loop {
        let next = reader.next(|found| requests.push((found.offset, found.bytes.to_vec())));
        match next {
            Ok(true) => {}
            Ok(false) => return (requests, None),
            Err(ReadFault::Cut(cut)) => return (requests, Some(cut)),
            Err(ReadFault::Io(error)) => panic!("{error}"),
        }
    }
}

/// A taker that compares commands with the requests of the file.
struct Held<'a> {
    requests: &'a Requests,
    /// Offset of the last command taken.
    last: Option<u64>,
}

impl Taker for Held<'_> {
    fn take(
        &mut self,
        offset: u64,
        database: DatabaseId,
        request: &[u8],
    ) -> Result<(), ReplayFault> {
        assert!(database < DATABASES);
        assert!(self.last.is_none_or(|last| last < offset));
        self.last = Some(offset);
        let found = self
            .requests
            .binary_search_by_key(&offset, |(offset, _)| *offset);
        let found = &self.requests[found.expect("a request of the file")];
        assert_eq!(found.1, request);
        Ok(())
    }

    fn passed(&mut self, _bytes: u64) {}
}
