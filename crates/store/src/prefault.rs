//! Memory that is there before it is needed, and huge pages.
//!
//! The first touch of a huge page costs whoever does it the clearing of 2 MiB, some hundred
//! microseconds to several milliseconds. So when the index or the arena come to a huge page, the
//! next one is asked for here, and a thread of its own has the system clear it meanwhile.
//!
//! A small store would notice the 2 MiB that are held from the first touch on, twice with the next one.
//! There small pages are touched one by one, and moved to a huge one when 2 MiB are in use; that thread
//! does the copying.
//!
//! Page tables are the process', so there is one such thread for all stores, from the first request
//! on. It is advice all the way: when the thread lags behind, the queue is full or the system does
//! not know the call, who comes to the page first pays, as without it. That pages may be huge is
//! said by that thread, too, so that who comes before it pays for 4 KiB where the system makes no
//! huge pages unasked.

use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use crate::reservation::Advice;

/// How much advice may wait.
const QUEUE_MAX: usize = 16;

static QUEUE: OnceLock<Option<SyncSender<Advice>>> = OnceLock::new();

/// Gives advice soon. What it is about stays mapped until then.
pub(crate) fn ask(advice: Advice) {
    if let Some(queue) = QUEUE.get_or_init(begin) {
        // Full, or the thread is gone: nobody waits for it.
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
