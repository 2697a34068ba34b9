//! Reads of files and pipes by a ring. If the kernel does not provide one, they test nothing.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::event::{PollFd, PollFlags, poll};

use super::*;

/// The result of a read.
type Came = Result<Vec<u8>, Option<i32>>;

struct Bed {
    ring: Ring,
    waker: Waker,
}

impl Bed {
    fn new(depth: usize) -> Option<Self> {
        let waker = Waker::new().unwrap();
        let ring = Ring::new(depth, &waker).ok()?;
        Some(Self { ring, waker })
    }

    fn push(&mut self, file: &Arc<File>, offset: u64, bytes: usize) -> Option<usize> {
        let file = Arc::clone(file);
        let read = RingRead {
            file,
            offset,
            bytes,
        };
        self.ring.push(read)
    }

    /// Waits as a loop does until `count` reads are completed. Returns their results by place.
    fn wait(&mut self, count: usize) -> BTreeMap<usize, Came> {
        let mut came = BTreeMap::new();
        loop {
            self.ring.enter().unwrap();
            self.ring.reap(usize::MAX, |place, read| {
                let read = read.map(<[u8]>::to_vec);
                came.insert(place, read.map_err(|error| error.raw_os_error()));
            });
            if came.len() >= count {
                return came;
            }
            if self.ring.arm() {
                continue;
            }
            let mut bell = [PollFd::new(&self.waker, PollFlags::IN)];
            poll(&mut bell, None).unwrap();
            self.waker.take();
        }
    }

    fn read(&mut self, file: &Arc<File>, offset: u64, bytes: usize) -> Came {
        let place = self.push(file, offset, bytes).unwrap();
        self.wait(1).remove(&place).unwrap()
    }
}

impl std::os::fd::AsFd for Waker {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        Waker::as_fd(self)
    }
}

/// Returns bytes that encode their positions.
fn pattern(len: usize) -> Vec<u8> {
    let words = (0_u32..).flat_map(u32::to_le_bytes);
    words.take(len).collect()
}

fn file(len: usize) -> (tempfile::TempDir, Arc<File>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(len)).unwrap();
    let file = Arc::new(File::open(&path).unwrap());
    (directory, file)
}

fn pipe() -> (Arc<File>, File) {
    let (reader, writer) = io::pipe().unwrap();
    let file = |fd: std::os::fd::OwnedFd| File::from(fd);
    (Arc::new(file(reader.into())), file(writer.into()))
}

#[test]
fn reads_give_what_is_in_the_file_wherever_their_bytes_go() {
    let Some(mut bed) = Bed::new(4) else { return };
    let bytes = pattern(300_000);
    let (_directory, file) = file(bytes.len());
    for knows_buffers in [bed.ring.knows_buffers, false] {
        bed.ring.knows_buffers = knows_buffers;
        for (offset, len) in [(0, 1), (4097, 16_384), (5, 200_000), (0, 300_000)] {
            let came = bed.read(&file, offset as u64, len);
            assert_eq!(came.as_deref(), Ok(&bytes[offset..offset + len]));
        }
    }
    assert!(bed.ring.is_empty());
}

#[test]
fn a_ring_takes_as_many_as_it_is_deep_and_more_when_they_are_reaped() {
    let Some(mut bed) = Bed::new(3) else { return };
    let bytes = pattern(40_000);
    let (_directory, file) = file(bytes.len());
    for round in 0..100 {
        let offsets = [0, 10, 20].map(|offset| offset * 1000 + round);
        let places = offsets.map(|offset| bed.push(&file, offset as u64, 1000).unwrap());
        assert!(bed.ring.is_full());
        assert_eq!(bed.push(&file, 0, 1), None);
        let came = bed.wait(3);
        for (place, offset) in places.into_iter().zip(offsets) {
            assert_eq!(came[&place].as_deref(), Ok(&bytes[offset..offset + 1000]));
        }
        assert!(!bed.ring.is_full());
    }
}

#[test]
fn a_file_that_ends_gives_what_it_has() {
    let Some(mut bed) = Bed::new(1) else { return };
    let bytes = pattern(5_000);
    let (_directory, file) = file(bytes.len());
    assert_eq!(bed.read(&file, 4_000, 4_096), Ok(bytes[4_000..].to_vec()));
    assert_eq!(bed.read(&file, 0, 50_000), Ok(bytes));
    for behind in [5_000, 1 << 40] {
        assert_eq!(bed.read(&file, behind, 100), Ok(Vec::new()));
    }
}

#[test]
fn past_the_cache_whole_blocks_are_read() {
    let Some(mut bed) = Bed::new(2) else { return };
    let bytes = pattern(10_000);
    let (directory, plain) = file(bytes.len());
    plain.sync_all().unwrap();
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_DIRECT);
    let Ok(direct) = options.open(directory.path().join("file")) else {
        return;
    };
    let direct = Arc::new(direct);
    assert_eq!(
        bed.read(&direct, 4_096, 4_096),
        Ok(bytes[4_096..8_192].to_vec())
    );
    assert_eq!(bed.read(&direct, 8_192, 4_096), Ok(bytes[8_192..].to_vec()));
}

#[test]
fn a_file_is_open_until_it_was_read_and_what_cannot_be_read_is_an_error() {
    let Some(mut bed) = Bed::new(2) else { return };
    let bytes = pattern(1_000);
    let (directory, file) = file(bytes.len());
    let place = bed.push(&file, 0, 1_000).unwrap();
    drop((file, directory));
    assert_eq!(bed.wait(1)[&place], Ok(bytes));
    let directory = tempfile::tempdir().unwrap();
    let written = File::create(directory.path().join("file")).unwrap();
    assert_eq!(
        bed.read(&Arc::new(written), 0, 10),
        Err(Some(libc::EBADF)),
        "it is open for writing only"
    );
    let folder = Arc::new(File::open(directory.path()).unwrap());
    assert!(bed.read(&folder, 0, 10).is_err());
}

#[test]
fn who_waits_long_holds_up_nobody_else() {
    let Some(mut bed) = Bed::new(2) else { return };
    let bytes = pattern(1_000);
    let (_directory, file) = file(bytes.len());
    let (end, mut writer) = pipe();
    let slow = bed.push(&end, 0, 5).unwrap();
    for _ in 0..10 {
        assert_eq!(bed.read(&file, 0, 1_000), Ok(bytes.clone()));
    }
    assert_eq!(bed.ring.len(), 1);
    writer.write_all(b"at last").unwrap();
    assert_eq!(bed.wait(1)[&slow], Ok(b"at la".to_vec()));
}

#[test]
fn a_ring_that_is_dropped_waits_or_breaks_off_what_is_under_way() {
    let (end, mut writer) = pipe();
    let (_directory, file) = file(1_000);
    for entered in [false, true] {
        let Some(mut bed) = Bed::new(4) else { return };
        bed.push(&file, 0, 1_000).unwrap();
        bed.push(&end, 0, 5).unwrap();
        if entered {
            bed.ring.enter().unwrap();
        }
        drop(bed.ring);
        drop(bed.waker);
    }
    // No dropped read has taken bytes from the pipe.
    writer.write_all(b"still").unwrap();
    let Some(mut bed) = Bed::new(1) else { return };
    assert_eq!(bed.read(&end, 0, 10), Ok(b"still".to_vec()));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "it is about another thread")]
fn a_ring_that_another_thread_drops_keeps_what_the_kernel_may_write_to() {
    let (end, mut writer) = pipe();
    let Some(mut bed) = Bed::new(1) else { return };
    bed.push(&end, 0, 5).unwrap();
    bed.ring.enter().unwrap();
    let ring = bed.ring;
    std::thread::spawn(move || drop(ring)).join().unwrap();
    writer.write_all(b"anything").unwrap();
}
