//! Calls from a script's function to the server: `redis.call` and similar functions.
//!
//! The [`Host`] is lent for one run and reached through a thread-local slot, so the functions are
//! made once per machine and hold no reference.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{BString, Error, Function, Lua, MultiValue, Value as LuaValue, VmState};
use scoped_tls_hkt::{ReborrowMut, scoped_thread_local};

use crate::convert;
use crate::functions::Function as Registered;
use crate::host::{Host, Reply, Stop};
use crate::json::Settings;
use crate::number_text;
use crate::random::Random;
use crate::text_buffer::{Passed, TextBuffer};
use crate::wire;

/// Number of the machine's safe points between two calls of [`Host::interrupted`]. A safe point is
/// the end of a loop iteration, a call, a return, or a step of a pattern.
const STEPS_PER_QUESTION: u32 = 1024;

/// The [`Host`] during a run.
pub(crate) struct Lent<'a>(pub(crate) &'a mut dyn Host);

impl<'a, 'b: 'a> ReborrowMut<'a> for Lent<'b> {
    type Result = Lent<'a>;

    fn reborrow_mut(&'a mut self) -> Lent<'a> {
        Lent(&mut *self.0)
    }
}

scoped_thread_local!(pub(crate) static mut HOST: for<'a> Lent<'a>);

/// The state that the functions of one machine share.
#[derive(Default)]
pub(crate) struct Run {
    /// The version of RESP that the script chose.
    pub(crate) resp: Cell<u8>,
    /// Set when the script has to end. Nothing resets it during the run.
    pub(crate) stopped: Cell<Option<Stop>>,
    /// The line of the script when it had to end.
    pub(crate) stopped_line: Cell<Option<usize>>,
    steps: Cell<u32>,
    /// Remaining steps of a library that is being loaded.
    pub(crate) load_steps: Cell<Option<u32>>,
    /// The functions that the library being loaded has registered.
    pub(crate) registered: RefCell<Option<Vec<Registered>>>,
    /// The state of `math.random`, and whether this script has set it.
    pub(crate) random: Cell<Random>,
    pub(crate) is_reseeded: Cell<bool>,
    /// The settings of `cjson`.
    pub(crate) json: Rc<Cell<Settings>>,
    /// The text of numbers among the arguments of a command.
    digits: RefCell<Vec<u8>>,
}

impl Run {
    /// Prepares a run: resets everything that the previous one left.
    pub(crate) fn begin(&self) {
        self.resp.set(2);
        self.stopped.set(None);
        self.stopped_line.set(None);
        self.steps.set(0);
        self.json.set(Settings::default());
        if self.is_reseeded.take() {
            self.random.set(Random::seeded(random_seed()));
        }
    }

    /// Ends the script. Returns the error that unwinds it.
    pub(crate) fn stop(&self, lua: &Lua, stop: Stop) -> Error {
        if self.stopped.get().is_none() {
            self.stopped.set(Some(stop));
            self.stopped_line.set(line_of(lua));
        }
        Error::runtime(stop.text)
    }

    /// Called at a safe point: asks at intervals whether to continue.
    pub(crate) fn step(&self, lua: &Lua) -> mlua::Result<VmState> {
        if let Some(stop) = self.stopped.get() {
            return Err(Error::runtime(stop.text));
        }
        let steps = self.steps.get().wrapping_add(1);
        self.steps.set(steps);
        if !steps.is_multiple_of(STEPS_PER_QUESTION) {
            return Ok(VmState::Continue);
        }
        if let Some(left) = self.load_steps.get() {
            self.load_steps.set(left.checked_sub(STEPS_PER_QUESTION));
            if left < STEPS_PER_QUESTION {
                let text = "FUNCTION LOAD timeout";
                return Err(self.stop(lua, Stop { text }));
            }
        }
        self.ask(lua).map(|()| VmState::Continue)
    }

    /// Asks the [`Host`] whether to continue.
    pub(crate) fn ask(&self, lua: &Lua) -> mlua::Result<()> {
        if !HOST.is_set() {
            return Ok(());
        }
        match HOST.with(|host| host.0.interrupted()) {
            Some(stop) => Err(self.stop(lua, stop)),
            None => Ok(()),
        }
    }
}

/// Returns the line of the innermost function that belongs to the script.
fn line_of(lua: &Lua) -> Option<usize> {
    const LEVELS_MAX: usize = 64;
    (0..LEVELS_MAX).find_map(|level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let is_script = source
                .short_src
                .as_deref()
                .is_some_and(|name| name.starts_with("user_"));
            is_script.then(|| frame.current_line()).flatten()
        })
        .flatten()
    })
}

/// Implements `redis.call` and `redis.pcall` with up to four arguments that are texts. They are
/// copied, which takes less time than referring to them.
pub(crate) fn short_command(
    lua: &Lua,
    run: &Rc<Run>,
    text_buffer: &Rc<TextBuffer>,
) -> mlua::Result<Function> {
    type Short = (BString, Option<BString>, Option<BString>, Option<BString>);
    let (run, text_buffer) = (Rc::clone(run), Rc::clone(text_buffer));
    lua.create_function(move |lua, (name, one, two, three): Short| {
        let mut texts: [&[u8]; 4] = [&name, b"", b"", b""];
        let mut count = 1;
        for (place, text) in texts[1..].iter_mut().zip([&one, &two, &three]) {
            if let Some(text) = text {
                *place = text;
                count += 1;
            }
        }
        call(lua, &run, &text_buffer, &texts[..count])
    })
}

/// Implements `redis.call` and `redis.pcall` with any arguments.
pub(crate) fn command(
    lua: &Lua,
    run: &Rc<Run>,
    text_buffer: &Rc<TextBuffer>,
) -> mlua::Result<Function> {
    let (run, text_buffer) = (Rc::clone(run), Rc::clone(text_buffer));
    lua.create_function(move |lua, arguments: MultiValue| {
        let passed = run.with_arguments(&arguments, |texts| call(lua, &run, &text_buffer, texts));
        passed.unwrap_or_else(|text| convert::raised(lua, &text))
    })
}

/// Runs a command. An error of the command is its reply; other errors end the script.
fn call(lua: &Lua, run: &Run, text_buffer: &TextBuffer, texts: &[&[u8]]) -> mlua::Result<Passed> {
    if !HOST.is_set() {
        return convert::raised(lua, b"ERR redis.call is not allowed here");
    }
    HOST.with(|host| match host.0.call(texts) {
        Reply::Value(value) => convert::reply(lua, &value),
        Reply::Encoded(frame) => wire::reply(lua, text_buffer, frame),
        Reply::Stop(stop) => Err(run.stop(lua, stop)),
    })
}

/// Number of arguments that need no allocation of their own.
const FEW: usize = 8;

impl Run {
    /// Passes the arguments of a command as slices.
    ///
    /// # Errors
    /// The text of the error reply if there are no arguments, or one is neither text nor number.
    pub(crate) fn with_arguments<R>(
        &self,
        arguments: &MultiValue,
        use_them: impl FnOnce(&[&[u8]]) -> R,
    ) -> Result<R, Vec<u8>> {
        if arguments.is_empty() {
            let text = b"ERR Please specify at least one argument for this redis lib call";
            return Err(text.to_vec());
        }
        let mut digits = self.digits.take();
        digits.clear();
        let result = if arguments.len() <= FEW {
            let mut texts = [const { Argument::Digits(0, 0) }; FEW];
            let texts = &mut texts[..arguments.len()];
            fill(texts, arguments, &mut digits).map(|()| {
                let mut views: [&[u8]; FEW] = [b""; FEW];
                for (view, text) in views.iter_mut().zip(texts.iter()) {
                    *view = text.bytes(&digits);
                }
                use_them(&views[..texts.len()])
            })
        } else {
            let mut texts = Vec::new();
            texts.resize_with(arguments.len(), || Argument::Digits(0, 0));
            fill(&mut texts, arguments, &mut digits).map(|()| {
                let views: Vec<&[u8]> = texts.iter().map(|text| text.bytes(&digits)).collect();
                use_them(&views)
            })
        };
        self.digits.replace(digits);
        result
    }
}

/// An argument: the script's own bytes, or a range of the digits written for it.
enum Argument {
    Text(mlua::BorrowedBytes),
    Digits(usize, usize),
}

impl Argument {
    fn bytes<'a>(&'a self, digits: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Text(text) => text,
            Self::Digits(start, end) => digits.get(*start..*end).unwrap_or_default(),
        }
    }
}

fn fill(
    texts: &mut [Argument],
    arguments: &MultiValue,
    digits: &mut Vec<u8>,
) -> Result<(), Vec<u8>> {
    for (text, argument) in texts.iter_mut().zip(arguments) {
        *text = match argument {
            LuaValue::String(text) => Argument::Text(text.as_bytes()),
            other => {
                let Some(number) = convert::number(other) else {
                    let text = b"ERR Lua redis lib command arguments must be strings or integers";
                    return Err(text.to_vec());
                };
                let start = digits.len();
                number_text::argument(digits, number);
                Argument::Digits(start, digits.len())
            }
        };
    }
    Ok(())
}

/// Returns a seed that no script can choose.
pub(crate) fn random_seed() -> i64 {
    let mut bytes = [0; 8];
    base::random::fill_from_os(&mut bytes);
    i64::from_le_bytes(bytes)
}
