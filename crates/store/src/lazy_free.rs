//! Dropping large values on another thread, not in a client's command.
//!
//! There is one thread per store, started when the first value comes. The queue is bounded: if it
//! is full, the caller drops the value itself, which slows down exactly those clients that delete
//! faster than memory can be freed.
//!
//! An allocator keeps some of what a thread frees, to give it to the same thread again. This thread
//! allocates nothing, and a few pieces may be all that keeps their pages; so it calls a function of
//! its owner once it rests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Maximum number of values that wait to be dropped.
const QUEUE_MAX: usize = 4096;

/// The thread rests once nothing has come for this long.
const REST: Duration = Duration::from_millis(100);

/// A value to be dropped, and how many objects of the user it stands for.
struct Job {
    objects: u64,
    thing: Box<dyn Send>,
}

/// The thread that drops values, and its queue. Dropping this waits for the queue.
pub(crate) struct LazyFree {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    pending: AtomicU64,
    freed: AtomicU64,
    at_rest: OnceLock<fn()>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl LazyFree {
    /// Creates the queue, without a thread yet.
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::default(),
            thread: Mutex::new(None),
        }
    }

    /// Drops `thing`, which stands for `objects` values of the user, soon; at once if too much is
    /// waiting or no thread can be started.
    pub(crate) fn submit(&self, objects: u64, thing: Box<dyn Send>) {
        self.shared.pending.fetch_add(objects, Ordering::Relaxed);
        let job = Job { objects, thing };
        if let Some(refused) = self.try_queue(job) {
            self.shared.finish(refused);
        }
    }

    /// Sets a function that the thread calls after its work, when nothing has come for a while.
    /// Only the first call counts.
    pub(crate) fn set_at_rest(&self, function: fn()) {
        let _first_counts = self.shared.at_rest.set(function);
    }

    /// Number of objects that wait to be dropped.
    pub(crate) fn pending_objects(&self) -> u64 {
        self.shared.pending.load(Ordering::Relaxed)
    }

    /// Number of objects dropped since the last reset.
    pub(crate) fn freed_objects(&self) -> u64 {
        self.shared.freed.load(Ordering::Relaxed)
    }

    /// Resets the count of dropped objects.
    pub(crate) fn forget_freed(&self) {
        self.shared.freed.store(0, Ordering::Relaxed);
    }

    /// Queues a job, or returns it if it cannot be queued.
    fn try_queue(&self, job: Job) -> Option<Job> {
        if !self.ensure_thread() {
            return Some(job);
        }
        let mut queue = lock(&self.shared.queue);
        if queue.jobs.len() >= QUEUE_MAX {
            return Some(job);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.arrived.notify_one();
        None
    }

    fn ensure_thread(&self) -> bool {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            *thread = thread::Builder::new()
                .name("lazy-free".to_owned())
                .spawn(move || shared.run())
                .ok();
        }
        thread.is_some()
    }
}

impl Shared {
    fn run(&self) {
        while let Some(job) = self.next() {
            self.finish(job);
        }
    }

    /// Returns the next job, or `None` once the queue is closed and empty.
    fn next(&self) -> Option<Job> {
        let is_idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.closed;
        let waited = self
            .arrived
            .wait_timeout_while(lock(&self.queue), REST, is_idle);
        let (mut queue, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            drop(queue);
            self.at_rest.get().inspect(|function| function());
            let waited = self.arrived.wait_while(lock(&self.queue), is_idle);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
        queue.jobs.pop_front()
    }

    fn finish(&self, job: Job) {
        drop(job.thing);
        self.pending.fetch_sub(job.objects, Ordering::Relaxed);
        self.freed.fetch_add(job.objects, Ordering::Relaxed);
    }
}

impl Drop for LazyFree {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = lock(&self.thread).take() {
            // The panic hook has already reported a panic of the thread, and nothing is left to
            // free.
            let _joined = thread.join();
        }
    }
}

impl std::fmt::Debug for LazyFree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazyFree")
            .field("pending_objects", &self.pending_objects())
            .field("freed_objects", &self.freed_objects())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Reports when it is dropped, and by which thread.
    struct Tell(mpsc::Sender<thread::ThreadId>);

    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).expect("the test waits");
        }
    }

    #[test]
    fn drops_on_its_own_thread_and_counts() {
        let lazy = LazyFree::new();
        let (sender, receiver) = mpsc::channel();
        lazy.submit(1, Box::new(Tell(sender.clone())));
        lazy.submit(5, Box::new(Tell(sender)));
        let dropped_by: Vec<_> = receiver.iter().collect();
        assert_eq!(dropped_by.len(), 2);
        assert!(!dropped_by.contains(&thread::current().id()));
        let shared = Arc::clone(&lazy.shared);
        drop(lazy);
        assert_eq!(shared.pending.load(Ordering::Relaxed), 0);
        assert_eq!(shared.freed.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn its_thread_calls_the_function_once_it_rests() {
        static RESTS: AtomicU64 = AtomicU64::new(0);
        let lazy = LazyFree::new();
        lazy.set_at_rest(|| {
            RESTS.fetch_add(1, Ordering::Relaxed);
        });
        let (sender, receiver) = mpsc::channel();
        for count in 1..=2 {
            lazy.submit(1, Box::new(Tell(sender.clone())));
            receiver.recv().expect("it is dropped");
            while RESTS.load(Ordering::Relaxed) < count {
                thread::yield_now();
            }
        }
        drop(lazy);
        assert_eq!(RESTS.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_full_queue_makes_the_caller_drop() {
        let lazy = LazyFree::new();
        let (release, wait) = mpsc::channel::<()>();
        struct Block(mpsc::Receiver<()>);
        impl Drop for Block {
            fn drop(&mut self) {
                let _released = self.0.recv();
            }
        }
        lazy.submit(1, Box::new(Block(wait)));
        let (sender, receiver) = mpsc::channel();
        for _ in 0..QUEUE_MAX + 2 {
            lazy.submit(1, Box::new(Tell(sender.clone())));
        }
        let first = receiver.recv().expect("the surplus was dropped");
        assert_eq!(first, thread::current().id());
        release.send(()).expect("the thread waits");
        drop(lazy);
        assert_eq!(receiver.try_iter().count(), QUEUE_MAX + 1);
    }
}
