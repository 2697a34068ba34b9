//! Mistakes that tests plant to verify that they detect them. A room lists its own mistakes;
//! [`planted!`](macro@crate::planted) tells which one is on. A separate process, such as a server started
//! by a test, can plant one on all of its threads.

/// Adds `is_on`, which code asks whether to make a mistake, and `plant`, which tests call, to the
/// enclosing module. `$bug` is the list of mistakes: an enumeration that can be copied and
/// compared. `plant` affects one thread; `plant_everywhere` affects all threads, permanently.
///
/// The room has a feature `planted`. Without it, and outside of the room's own tests, `is_on` is a
/// constant and nothing can be planted.
#[macro_export]
macro_rules! planted {
    ($bug:ty) => {
        /// Whether this mistake is planted on this thread.
        #[cfg(not(any(test, feature = "planted")))]
        #[inline]
        pub(crate) const fn is_on(_: $bug) -> bool {
            false
        }

        #[cfg(any(test, feature = "planted"))]
        ::std::thread_local! {
            static PLANTED: ::std::cell::Cell<Option<$bug>> = const { ::std::cell::Cell::new(None) };
        }

        #[cfg(any(test, feature = "planted"))]
        static PLANTED_EVERYWHERE: ::std::sync::OnceLock<$bug> = ::std::sync::OnceLock::new();

        /// Plants a mistake on all threads of this process, permanently. Only the first call
        /// counts.
        #[cfg(any(test, feature = "planted"))]
        pub fn plant_everywhere(bug: $bug) {
            let _the_first_counts = PLANTED_EVERYWHERE.set(bug);
        }

        /// Plants a mistake on this thread, or removes it.
        #[cfg(any(test, feature = "planted"))]
        pub fn plant(bug: Option<$bug>) {
            PLANTED.set(bug);
        }

        /// Whether this mistake is planted on this thread.
        #[cfg(any(test, feature = "planted"))]
        pub(crate) fn is_on(bug: $bug) -> bool {
            PLANTED.get() == Some(bug) || PLANTED_EVERYWHERE.get() == Some(&bug)
        }
    };
}
