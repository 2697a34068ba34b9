//! The libraries of functions that the server knows.
//!
//! All threads see the same libraries. A thread loads a library into its own machine when it first
//! calls one of its functions. A change builds a new state and replaces the old one with it, so
//! that several libraries can be added or removed atomically.
//!
//! The libraries may belong to a control group. Then libraries in a log, a stream or a file are
//! ignored because they may be older. Clients of a cluster send each change to every primary, as if
//! each had its own libraries. This node keeps the orders that it has received, so that it answers
//! each of these orders as if it had its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::history::History;
use super::run_flags::RunFlags;

/// See the module.
#[derive(Debug, Default)]
pub struct Libraries {
    place: Mutex<Place>,
}

/// The libraries, and what decides about them.
#[derive(Debug, Default)]
struct Place {
    state: Arc<State>,
    /// Whether a control group decides.
    is_of_group: bool,
    /// The libraries that clients of this node have loaded, each with whether an order at another
    /// node removed it.
    ordered: BTreeMap<Vec<u8>, bool>,
}

/// The libraries at one moment.
#[derive(Clone, Debug, Default)]
pub struct State {
    libraries: BTreeMap<Vec<u8>, Arc<LoadedLibrary>>,
    /// The library of each function, by the function's name in lower case: case makes no
    /// difference.
    functions: HashMap<Vec<u8>, Arc<LoadedLibrary>>,
}

/// A library.
#[derive(Debug)]
pub struct LoadedLibrary {
    /// A number that no other library ever has.
    pub(crate) number: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Its source.
    pub source: Box<[u8]>,
    /// The functions that it registered.
    pub functions: Vec<FunctionFacts>,
    /// The run history of its functions.
    pub history: History,
}

/// A client's order about libraries.
#[derive(Clone, Copy, Debug)]
pub enum LibraryOrder<'o> {
    /// Load this library.
    Loaded(&'o LoadedLibrary),
    /// Delete the library with this name.
    Deleted(&'o [u8]),
    /// Delete all libraries.
    Flushed,
}

/// The facts about a function.
#[derive(Clone, Debug)]
pub struct FunctionFacts {
    /// Its name.
    pub name: Vec<u8>,
    /// Its author's description.
    pub description: Option<Vec<u8>>,
    /// Its flags as they were given.
    pub flags: Vec<Vec<u8>>,
    pub(crate) run_flags: RunFlags,
}

/// Why a library is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryError {
    /// A library of this name exists.
    Library(Vec<u8>),
    /// Another library has a function of this name.
    Function(Vec<u8>),
    /// No library of this name exists.
    Unknown,
}

impl LoadedLibrary {
    pub(crate) fn new(name: Vec<u8>, source: &[u8], functions: Vec<FunctionFacts>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            name,
            source: source.into(),
            functions,
            history: History::of(source),
        }
    }

    /// Returns the flags of the function with this name, or `None` if there is none.
    pub fn flags_of(&self, function: &[u8]) -> Option<RunFlags> {
        let found = self
            .functions
            .iter()
            .find(|one| one.name.eq_ignore_ascii_case(function));
        found.map(|facts| facts.run_flags)
    }
}

impl State {
    /// Returns all libraries, by name.
    pub fn libraries(&self) -> impl Iterator<Item = &Arc<LoadedLibrary>> {
        self.libraries.values()
    }

    /// Returns the number of libraries and of functions.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.libraries.len(), self.functions.len())
    }

    /// Adds a library. If `replaces` is set, it may replace one of the same name.
    ///
    /// # Errors
    /// The name that is taken.
    pub fn add(
        &mut self,
        library: &Arc<LoadedLibrary>,
        replaces: bool,
    ) -> Result<(), LibraryError> {
        if !replaces && self.libraries.contains_key(&library.name) {
            return Err(LibraryError::Library(library.name.clone()));
        }
        for function in &library.functions {
            let other = self.functions.get(&function.name.to_ascii_lowercase());
            if other.is_some_and(|other| other.name != library.name) {
                return Err(LibraryError::Function(function.name.clone()));
            }
        }
        self.remove(&library.name);
        for function in &library.functions {
            self.functions
                .insert(function.name.to_ascii_lowercase(), Arc::clone(library));
        }
        self.libraries
            .insert(library.name.clone(), Arc::clone(library));
        Ok(())
    }

    /// Removes a library. Returns whether it existed.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.functions.retain(|_, library| library.name != name);
        self.libraries.remove(name).is_some()
    }
}

impl Libraries {
    /// Returns the library that has a function.
    pub fn of_function(&self, name: &[u8]) -> Option<Arc<LoadedLibrary>> {
        self.place()
            .state
            .functions
            .get(&name.to_ascii_lowercase())
            .cloned()
    }

    /// Returns the present libraries.
    #[must_use]
    pub fn now(&self) -> Arc<State> {
        Arc::clone(&self.place().state)
    }

    /// Applies a change, unless it fails or the libraries belong to a control group.
    ///
    /// # Errors
    /// The errors of `change`.
    pub fn change<E>(&self, change: impl FnOnce(&mut State) -> Result<(), E>) -> Result<(), E> {
        let mut place = self.place();
        if place.is_of_group {
            return Ok(());
        }
        let mut state = State::clone(&place.state);
        change(&mut state)?;
        place.state = Arc::new(state);
        Ok(())
    }

    /// Adds a library that a client of this node has loaded, under a control group. An order of the
    /// same client at another node may already have added it.
    ///
    /// # Errors
    /// The name that is taken.
    pub fn add_ordered(
        &self,
        state: &mut State,
        library: &Arc<LoadedLibrary>,
        replaces: bool,
    ) -> Result<(), LibraryError> {
        let known = state.libraries.get(&library.name);
        let is_same = known.is_some_and(|known| known.source == library.source);
        match is_same && self.place().ordered.get(&library.name) != Some(&false) {
            true => Ok(()),
            false => state.add(library, replaces),
        }
    }

    /// Removes a library in the same way.
    ///
    /// # Errors
    /// If there is no such library, and no order at another node removed one that was here.
    pub fn remove_ordered(&self, state: &mut State, name: &[u8]) -> Result<(), LibraryError> {
        let is_gone = self.place().ordered.get(name) == Some(&true);
        match state.remove(name) || is_gone {
            true => Ok(()),
            false => Err(LibraryError::Unknown),
        }
    }

    /// Records what a client of this node has ordered, after it is done.
    pub fn note_ordered(&self, order: LibraryOrder<'_>) {
        let mut place = self.place();
        match order {
            LibraryOrder::Loaded(library) => {
                place.ordered.insert(library.name.clone(), false);
            }
            LibraryOrder::Deleted(name) => {
                place.ordered.remove(name);
            }
            LibraryOrder::Flushed => place.ordered.clear(),
        }
    }

    /// Takes over the libraries of a control group, and ignores all other changes from now on.
    pub fn take_of_group(&self, state: State) {
        let mut place = self.place();
        for (name, is_gone) in &mut place.ordered {
            *is_gone |= !state.libraries.contains_key(name);
        }
        place.state = Arc::new(state);
        place.is_of_group = true;
    }

    /// Ends the control group's authority. The present libraries stay.
    pub fn leave_group(&self) {
        self.place().is_of_group = false;
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, function: &str) -> Arc<LoadedLibrary> {
        let facts = FunctionFacts {
            name: function.into(),
            description: None,
            flags: Vec::new(),
            run_flags: RunFlags::default(),
        };
        Arc::new(LoadedLibrary::new(name.into(), b"", vec![facts]))
    }

    #[test]
    fn those_of_a_control_group_are_changed_by_it_alone() {
        let libraries = Libraries::default();
        let add = |name: &'static str| {
            let added = libraries.change(|state| state.add(&library(name, name), false));
            assert_eq!(added, Ok(()));
        };
        add("a");
        let mut state = State::default();
        assert_eq!(state.add(&library("b", "f"), false), Ok(()));
        libraries.take_of_group(state);
        add("c");
        let names = || -> Vec<Vec<u8>> {
            let state = libraries.now();
            state.libraries().map(|one| one.name.clone()).collect()
        };
        assert_eq!(names(), [b"b"]);
        libraries.leave_group();
        add("c");
        assert_eq!(names(), [b"b", b"c"]);
    }

    /// As clients of a cluster do, which send an order to every primary.
    #[test]
    fn an_order_that_was_carried_out_at_another_node_is_taken_here_once() {
        let libraries = Libraries::default();
        let one = library("a", "f");
        let mut of_group = State::default();
        assert_eq!(of_group.add(&one, false), Ok(()));
        libraries.take_of_group(of_group.clone());
        let load = || {
            let mut state = State::clone(&libraries.now());
            let added = libraries.add_ordered(&mut state, &library("a", "f"), false);
            if added.is_ok() {
                libraries.note_ordered(LibraryOrder::Loaded(&one));
            }
            added
        };
        let delete = || {
            let removed = libraries.remove_ordered(&mut State::clone(&libraries.now()), b"a");
            if removed.is_ok() {
                libraries.note_ordered(LibraryOrder::Deleted(b"a"));
            }
            removed
        };
        let taken = Err(LibraryError::Library(b"a".to_vec()));
        assert_eq!((load(), load()), (Ok(()), taken));
        libraries.take_of_group(State::default());
        assert_eq!((delete(), delete()), (Ok(()), Err(LibraryError::Unknown)));
        // Orders at other nodes removed and added it: this node must receive each of them.
        libraries.take_of_group(of_group.clone());
        assert_eq!(load(), Ok(()));
        libraries.take_of_group(State::default());
        libraries.take_of_group(of_group);
        assert_eq!(load(), Ok(()));
    }

    #[test]
    fn names_are_taken_once() {
        let mut state = State::default();
        assert_eq!(state.add(&library("a", "f"), false), Ok(()));
        let taken = Err(LibraryError::Library(b"a".to_vec()));
        assert_eq!(state.add(&library("a", "g"), false), taken);
        let taken = Err(LibraryError::Function(b"f".to_vec()));
        assert_eq!(state.add(&library("b", "f"), true), taken);
        assert_eq!(state.add(&library("a", "g"), true), Ok(()));
        assert_eq!(state.add(&library("b", "f"), false), Ok(()));
        assert!(state.remove(b"a") && !state.remove(b"a"));
        assert_eq!(state.counts(), (1, 1));
    }
}
