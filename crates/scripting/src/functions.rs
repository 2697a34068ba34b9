//! What loading a library gives: its functions. `register` makes them, `machine` calls them.

use mlua::Function as LuaFunction;

/// A library, loaded: its code ran and registered functions.
pub struct Library {
    /// The library's name out of its first line.
    pub name: Vec<u8>,
    /// Its functions in the order in which it registered them.
    pub functions: Vec<Function>,
}

/// A function of a library.
#[derive(Clone)]
pub struct Function {
    /// Its name, unique among all libraries.
    pub name: Vec<u8>,
    /// What its author says about it.
    pub description: Option<Vec<u8>>,
    /// `no-writes` and the like, as given.
    pub flags: Vec<Vec<u8>>,
    pub(crate) callback: LuaFunction,
}
