//! Memory that is provided before it is needed, and huge pages.
//!
//! At the first touch of a huge page, the system clears 2 MiB, which costs the thread some hundred
//! microseconds to several milliseconds. So when the index or the arena reaches a huge page, it
//! requests the next one here, and a separate thread has the system clear that one meanwhile.
//!
//! In a small store, the 2 MiB that are held from the first touch on would be noticeable, and twice
//! that with the next page. So it touches small pages one by one, and they move to a huge page once
//! 2 MiB are in use; the separate thread does the copying.
//!
//! Page tables belong to the process, so one such thread serves all stores, from the first request
//! on. All of it is only advice: if the thread lags behind, the queue is full or the system does
//! not know the call, the first thread to touch the page pays, as it would without the advice. The
//! separate thread also marks the pages as eligible for huge pages. So a thread that touches the
//! page before that pays for 4 KiB only, if the system makes no huge pages by default.

use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use crate::reservation::Advice;

/// Maximum number of queued requests.
const QUEUE_MAX: usize = 16;

static QUEUE: OnceLock<Option<SyncSender<Advice>>> = OnceLock::new();

/// Queues advice. The memory that it is about stays mapped until it is given.
pub(crate) fn ask(advice: Advice) {
    if let Some(queue) = QUEUE.get_or_init(begin) {
        // The queue is full, or the thread is gone: no thread waits for the advice.
        let _refused = queue.try_send(advice);
    }
}

fn begin() -> Option<SyncSender<Advice>> {
    let (sender, receiver) = mpsc::sync_channel(QUEUE_MAX);
    let builder = thread::Builder::new().name("prefault".to_owned());
    let started = builder.spawn(move || run(&receiver));
    started.ok().map(|_detached| sender)
}

fn run(queue: &Receiver<Advice>) {
    while let Ok(advice) = queue.recv() {
        advice.run();
    }
}
