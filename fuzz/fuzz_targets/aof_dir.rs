//! An append-only directory: the first byte chooses between the manifest and a file of requests, and
//! in how large pieces that is read.
//!
//! A manifest that is understood is written so that it is understood the same way. Of a file the same
//! requests come with the same offsets and the same end however it is read; they stand where they say;
//! and what is left out at the end is no request. Commands are among the requests, in their order, and
//! none is of what is left out.
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
/// Longer lines of a manifest are refused.
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
    // In quotes a name may be four times as long, and a line too long then.
    let text = manifest.to_string();
    if text.split('\n').all(|line| line.len() <= LINE_BYTES_MAX) {
        let again = Manifest::parse(text.as_bytes());
        assert_eq!(again.as_ref(), Ok(&manifest));
    }
}

/// Gives so many bytes at a time.
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

/// Holds commands against the requests of the file.
struct Held<'a> {
    requests: &'a Requests,
    /// The last command that was taken.
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
