//! Mistakes that tests plant, to see that they find them. A room lists its own and has [`planted!`](crate::planted) say
//! which one is on. A process of its own, as tests of whole servers start it, may be told to plant one on all of its threads.

/// Gives the module it stands in `is_on`, which code asks whether a mistake is to be made, and `plant`, which tests
/// call. `$bug` is the list of mistakes: an enumeration that can be copied and compared. What is planted is planted on
/// one thread; `plant_everywhere` plants on all, for good.
///
/// The room has a feature `planted`. Without it, and outside of the room's own tests, the answer is a constant and
/// nothing can be planted.
#[macro_export]
macro_rules! planted {
    ($bug:ty) => {
        /// Whether this one is planted on this thread.
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

        /// Plants one on all threads of this process, for good. The first one counts.
        #[cfg(any(test, feature = "planted"))]
        pub fn plant_everywhere(bug: $bug) {
            let _the_first_counts = PLANTED_EVERYWHERE.set(bug);
        }

        /// Plants one on this thread, or takes it away.
        #[cfg(any(test, feature = "planted"))]
        pub fn plant(bug: Option<$bug>) {
            PLANTED.set(bug);
        }

        /// Whether this one is planted on this thread.
        #[cfg(any(test, feature = "planted"))]
        pub(crate) fn is_on(bug: $bug) -> bool {
            PLANTED.get() == Some(bug) || PLANTED_EVERYWHERE.get() == Some(&bug)
        }
    };
}
