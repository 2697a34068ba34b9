//! The result of loading a library: its functions. `register` makes them, `machine` calls them.

use mlua::Function as LuaFunction;

/// A loaded library: its code has run and registered functions.
pub struct Library {
    /// The library's name from its first line.
    pub name: Vec<u8>,
    /// The functions, in the order in which the library registered them.
    pub functions: Vec<Function>,
}

/// A function of a library.
#[derive(Clone)]
pub struct Function {
    /// The function's name, unique among all libraries.
    pub name: Vec<u8>,
    /// The author's description.
    pub description: Option<Vec<u8>>,
    /// `no-writes` and the like, as given.
    pub flags: Vec<Vec<u8>>,
    pub(crate) callback: LuaFunction,
}
