//! Scripts and functions: what the server knows about them, and how they run.
//!
//! ```text
//!   EVAL, FCALL ─► cache (shared: source, flags, history) ─► machine (one per thread, compiled there)
//!                                                                 │ redis.call
//!   run: which keys are locked, and where ◄── caller: one command inside of the script ◄┘
//! ```
//!
//! A script is atomic for all other clients. It locks the keys that it declares. If it reaches
//! further keys before its first change, it restarts with those locked too. After its first change,
//! it locks further keys as it reaches them.
//!
//! A script that may take long never runs on a worker's thread beyond its first change: a script
//! with loops is offloaded before that, until it has proved quick. So a script that never ends
//! delays only the clients that want its keys.

mod caller;
mod history;
pub(crate) mod known;
mod libraries;
mod machine;
mod run;
mod run_flags;
mod running;
mod values;

use std::sync::Arc;

use protocol::Request;

pub use known::{Digest, Script, Scripts, digest_named, digest_of};
pub use libraries::{FunctionFacts, Libraries, LibraryError, LibraryOrder, LoadedLibrary, State};
pub use machine::{Compiled, add, find, load_library, loaded};
pub use run::{Call, Code, run};
pub use run_flags::RunFlags;
pub use running::{Killing, RunKind, Running};

use crate::error::CommandError;
use crate::spec::{CommandSpec, Runs};

/// Whether a request runs a script or function that declares that it changes nothing.
pub(crate) fn only_reads(scripts: &Scripts, spec: &CommandSpec, request: Request<'_>) -> bool {
    let said = request.arg(1).unwrap_or_default();
    let flags = match spec.runs {
        Some(Runs::Script) => machine::flags_of(said).ok().flatten(),
        Some(Runs::Digest) => {
            let known = scripts.named(said);
            known.and_then(|script| machine::flags_of(&script.source).ok().flatten())
        }
        Some(Runs::Function) => {
            let library = scripts.libraries.of_function(said);
            library.and_then(|library| library.flags_of(said))
        }
        None => None,
    };
    flags.is_some_and(|flags| flags.no_writes)
}

/// Replaces the known libraries of functions by those with these sources, which were persisted
/// somewhere.
///
/// # Errors
/// What is wrong with a library; none is installed then.
pub fn install(scripts: &Scripts, sources: &[Vec<u8>]) -> Result<(), CommandError> {
    let load = |source: &Vec<u8>| load_library(source).map(Arc::new);
    let libraries: Vec<_> = sources.iter().map(load).collect::<Result<_, _>>()?;
    let installed = scripts.libraries.change(|state| {
        *state = State::default();
        let mut libraries = libraries.iter();
        libraries.try_for_each(|library| state.add(library, false))
    });
    installed.map_err(|_| CommandError::fixed("ERR two libraries have the same names"))
}

/// Adds libraries of functions with these sources. If `replaces` is set, a library replaces another
/// of the same name.
///
/// # Errors
/// What is wrong with a library, or that its names are taken; none is added then.
pub fn add_libraries(
    scripts: &Scripts,
    sources: &[Vec<u8>],
    replaces: bool,
) -> Result<(), CommandError> {
    let load = |source: &Vec<u8>| load_library(source).map(Arc::new);
    let libraries: Vec<_> = sources.iter().map(load).collect::<Result<_, _>>()?;
    let added = scripts.libraries.change(|state| {
        let mut libraries = libraries.iter();
        libraries.try_for_each(|library| state.add(library, replaces))
    });
    added.map_err(|_| CommandError::fixed("ERR a library or a function of this name is there"))
}
