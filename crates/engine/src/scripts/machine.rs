//! The virtual machine of a thread, created when its first script runs, and the programs compiled
//! in it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use scripting::{Library, Limits, Machine, Program, ScriptError, shebang};

use super::known::{Digest, Script, Scripts};
use super::libraries::{FunctionFacts, LoadedLibrary};
use super::run_flags::RunFlags;
use crate::error::CommandError;
use crate::identity::redis_version;

/// Maximum number of compiled programs. Beyond that all are dropped, and compiled again on demand.
const PROGRAMS_MAX: usize = 1024;

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// A machine with what it has compiled.
struct Place {
    machine: Machine,
    /// Memory of the machine as last reported.
    told_bytes: u64,
    programs: HashMap<Digest, Rc<Compiled>>,
    /// Scripts that ran recently, each at the position given by its name.
    recent: Vec<Option<Recent>>,
    /// Libraries by their numbers.
    libraries: HashMap<u64, Rc<Library>>,
}

/// A script that ran.
struct Recent {
    /// The entry is valid until another script is dropped.
    era: u64,
    script: Arc<Script>,
    compiled: Rc<Compiled>,
}

/// Number of positions for recent scripts.
const RECENT_PLACES: usize = 64;

/// A script, compiled on this thread.
pub struct Compiled {
    pub(super) program: Program,
    /// The flags of its first line, or `None` if it has no such line.
    pub flags: Option<RunFlags>,
}

/// Runs `body` with the machine of this thread.
///
/// # Errors
/// If there is no memory for a machine, or a script of this thread is already running.
fn with_place<R>(
    body: impl FnOnce(&mut Place) -> Result<R, ScriptError>,
) -> Result<R, ScriptError> {
    PLACE.with(|place| {
        let Ok(mut place) = place.try_borrow_mut() else {
            return Err(ScriptError::Raised(b"ERR A script runs already".to_vec()));
        };
        if place.is_none() {
            *place = Some(Place {
                machine: Machine::new(Limits::default(), redis_version())?,
                told_bytes: 0,
                programs: HashMap::new(),
                recent: Vec::new(),
                libraries: HashMap::new(),
            });
        }
        match place.as_mut() {
            Some(place) => body(place),
            None => unreachable!("made before"),
        }
    })
}

/// Runs `body` with the machine of this thread.
pub(super) fn with<R>(
    body: impl FnOnce(&mut Machine) -> Result<R, ScriptError>,
) -> Result<R, ScriptError> {
    with_place(|place| body(&mut place.machine))
}

/// Reports the memory of this thread's machine when it has changed considerably.
pub(super) fn tell_memory(scripts: &Scripts) {
    PLACE.with(|place| {
        let Ok(mut place) = place.try_borrow_mut() else {
            return;
        };
        if let Some(place) = place.as_mut() {
            let bytes = place.machine.memory_bytes() as u64;
            if bytes.abs_diff(place.told_bytes) >= TOLD_EVERY_BYTES {
                scripts.count_machine(bytes.wrapping_sub(place.told_bytes));
                place.told_bytes = bytes;
            }
        }
    });
}

/// Smallest change that is reported. What scripts leave between two collections is not.
const TOLD_EVERY_BYTES: u64 = 32 << 10;

/// A known script, and its compiled form on this thread.
pub(crate) type Known = (Arc<Script>, Rc<Compiled>);

/// Returns the script with this name, compiled on this thread, or `None` if unknown.
///
/// # Errors
/// If there is no memory for it.
pub fn find(scripts: &Scripts, digest: &Digest) -> Result<Option<Known>, CommandError> {
    let era = scripts.era();
    if let Some(recent) = recent(digest, era) {
        return Ok(Some(recent));
    }
    let Some(script) = scripts.find(digest) else {
        return Ok(None);
    };
    let compiled = compile(digest, &script.source)?;
    let recent = Recent {
        era,
        script: Arc::clone(&script),
        compiled: Rc::clone(&compiled),
    };
    let kept = with_place(|place| {
        place.recent.resize_with(RECENT_PLACES, || None);
        place.recent[place_of(digest)] = Some(recent);
        Ok(())
    });
    kept.map_err(|error| CommandError::Bytes(error.text().to_vec()))?;
    Ok(Some((script, compiled)))
}

/// Returns the script with this name if it ran here recently and no script was dropped since.
fn recent(digest: &Digest, era: u64) -> Option<Known> {
    PLACE.with(|place| {
        let place = place.try_borrow().ok()?;
        let recent = place.as_ref()?.recent.get(place_of(digest))?.as_ref()?;
        let is_it = recent.era == era && recent.script.digest == *digest;
        is_it.then(|| (Arc::clone(&recent.script), Rc::clone(&recent.compiled)))
    })
}

fn place_of(digest: &Digest) -> usize {
    let word = digest
        .iter()
        .take(4)
        .fold(0, |word, digit| word * 7 + usize::from(*digit));
    word % RECENT_PLACES
}

/// Adds a script to the known ones if it can be compiled.
///
/// # Errors
/// What is wrong with it.
pub fn add(
    scripts: &Scripts,
    digest: Digest,
    source: &[u8],
    stays: bool,
) -> Result<(Arc<Script>, Rc<Compiled>), CommandError> {
    let compiled = compile(&digest, source)?;
    Ok((scripts.add(digest, source, stays), compiled))
}

fn compile(digest: &Digest, source: &[u8]) -> Result<Rc<Compiled>, CommandError> {
    let compiled = with_place(|place| {
        if let Some(known) = place.programs.get(digest) {
            return Ok(Ok(Rc::clone(known)));
        }
        let flags = match flags_of(source) {
            Ok(flags) => flags,
            Err(error) => return Ok(Err(error)),
        };
        let name = String::from_utf8_lossy(digest);
        let program = place.machine.compile(&name, source)?;
        let compiled = Rc::new(Compiled { program, flags });
        if place.programs.len() >= PROGRAMS_MAX {
            place.programs.clear();
        }
        place.programs.insert(*digest, Rc::clone(&compiled));
        Ok(Ok(compiled))
    });
    compiled.unwrap_or_else(|error| {
        let mut text = match &error {
            ScriptError::Compile(_) => b"ERR Error compiling script (new function): ".to_vec(),
            _ => Vec::new(),
        };
        text.extend_from_slice(error.text());
        Err(CommandError::Bytes(text))
    })
}

/// Returns a library in the state after its code ran. It is not among the known ones yet.
///
/// # Errors
/// What is wrong with it.
pub fn load_library(source: &[u8]) -> Result<LoadedLibrary, CommandError> {
    let name = name_of_library(source)?;
    let library = load_here(source)?;
    if library.functions.is_empty() {
        return Err(CommandError::fixed("ERR No functions registered"));
    }
    let mut functions = Vec::with_capacity(library.functions.len());
    for function in &library.functions {
        let mut run_flags = RunFlags::default();
        for flag in &function.flags {
            run_flags.add(flag);
        }
        functions.push(FunctionFacts {
            name: function.name.clone(),
            description: function.description.clone(),
            flags: function.flags.clone(),
            run_flags,
        });
    }
    Ok(LoadedLibrary::new(name, source, functions))
}

/// Returns a known library, loaded on this thread.
pub fn loaded(library: &LoadedLibrary) -> Result<Rc<Library>, CommandError> {
    let known = with_place(|place| Ok(place.libraries.get(&library.number).cloned()));
    if let Ok(Some(known)) = known {
        return Ok(known);
    }
    let loaded = Rc::new(load_here(&library.source)?);
    let kept = with_place(|place| {
        if place.libraries.len() >= PROGRAMS_MAX {
            place.libraries.clear();
        }
        place.libraries.insert(library.number, Rc::clone(&loaded));
        Ok(())
    });
    kept.map_err(|error| CommandError::Bytes(error.text().to_vec()))?;
    Ok(loaded)
}

fn load_here(source: &[u8]) -> Result<Library, CommandError> {
    with_place(|place| place.machine.load_library(source)).map_err(|error| {
        let complaint: &[u8] = match &error {
            ScriptError::Compile(_) => b"ERR Error compiling function: ",
            _ => b"ERR Error registering functions: ",
        };
        about(complaint, error.text())
    })
}

/// Returns the name in the first line of a library.
fn name_of_library(source: &[u8]) -> Result<Vec<u8>, CommandError> {
    let (Some(first_line), _) = shebang::split(source) else {
        return Err(CommandError::fixed("ERR Missing library metadata"));
    };
    if !source.contains(&b'\n') || first_line.is_malformed {
        return Err(CommandError::fixed("ERR Invalid library metadata"));
    }
    if !first_line.engine.eq_ignore_ascii_case(b"lua") {
        let text = [
            b"ERR Engine '",
            first_line.engine.as_slice(),
            b"' not found",
        ]
        .concat();
        return Err(CommandError::Bytes(text));
    }
    let stray = first_line.options.iter().find(|(name, _)| name != b"name");
    if let Some((name, value)) = stray {
        let word = [name, b"=".as_slice(), value].concat();
        return Err(about(b"ERR Invalid metadata value given: ", &word));
    }
    if let Some(word) = first_line.others.first() {
        return Err(about(b"ERR Invalid metadata value given: ", word));
    }
    let name = match first_line.options.as_slice() {
        [] => Err(CommandError::fixed("ERR Library name was not given")),
        [(_, name)] => Ok(name),
        _ => Err(CommandError::fixed(
            "ERR Invalid metadata value, name argument was given multiple times",
        )),
    }?;
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if name.is_empty() || !name.iter().all(is_good) {
        return Err(CommandError::fixed(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at \
             least one character long",
        ));
    }
    Ok(name.clone())
}

/// Returns the flags in the first line of a script.
pub(super) fn flags_of(source: &[u8]) -> Result<Option<RunFlags>, CommandError> {
    let (first_line, _) = shebang::split(source);
    let Some(first_line) = first_line else {
        return Ok(None);
    };
    if !source.contains(&b'\n') {
        return Err(CommandError::fixed("ERR Invalid script shebang"));
    }
    if first_line.is_malformed {
        return Err(CommandError::fixed("ERR Invalid engine in script shebang"));
    }
    if first_line.engine != b"lua" {
        return Err(about(
            b"ERR Unexpected engine in script shebang: #!",
            &first_line.engine,
        ));
    }
    if let Some(word) = first_line.others.first() {
        return Err(about(b"ERR Unknown lua shebang option: ", word));
    }
    let mut flags = RunFlags::default();
    for (name, value) in &first_line.options {
        if name != b"flags" {
            let word = [name, b"=".as_slice(), value].concat();
            return Err(about(b"ERR Unknown lua shebang option: ", &word));
        }
        for flag in value.split(|byte| *byte == b',') {
            if !value.is_empty() && !flags.add(flag) {
                return Err(about(b"ERR Unexpected flag in script shebang: ", flag));
            }
        }
    }
    Ok(Some(flags))
}

fn about(complaint: &[u8], word: &[u8]) -> CommandError {
    CommandError::Bytes([complaint, word].concat())
}
