//! The virtual machine of one thread: compiles and runs programs and libraries.

use std::cell::Cell;
use std::rc::Rc;

use mlua::chunk::ChunkMode;
use mlua::{BString, Error, Function as LuaFunction, Lua, Table, Value as LuaValue};

use crate::api;
use crate::calls::{self, HOST, Lent, Run};
use crate::convert::{self, Fields};
use crate::error::ScriptError;
use crate::functions::{Function, Library};
use crate::host::{Host, Stop};
use crate::random::Random;
use crate::text_buffer::TextBuffer;
use crate::value::Value;
use crate::{cmsgpack, concat, json, register, shebang, straight, struct_library};

/// The limits of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of bytes of the virtual machine, including all its programs.
    pub memory_bytes_max: usize,
    /// Maximum number of safe points that the code of a library may pass while it is loaded.
    pub load_steps_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes_max: 512 << 20,
            load_steps_max: 10_000_000,
        }
    }
}

/// One virtual machine. It belongs to the thread that made it.
pub struct Machine {
    lua: Lua,
    run: Rc<Run>,
    limits: Limits,
    entry: LuaFunction,
    entry_of_functions: LuaFunction,
    environment: LuaFunction,
    text_buffer: Rc<TextBuffer>,
    fields: Fields,
    /// Whether safe points ask whether to continue.
    is_asking: Cell<bool>,
    loader: LuaFunction,
}

/// A compiled script. It is cheap to clone, and usable only in the machine that compiled it.
#[derive(Clone)]
pub struct Program {
    function: LuaFunction,
    name: Rc<str>,
    /// Whether the script ends by itself, so its safe points need not ask.
    is_straight: bool,
    given: Given,
}

/// Which of its keys and arguments a script can see.
#[derive(Clone, Copy)]
struct Given {
    keys: bool,
    arguments: bool,
}

impl Machine {
    /// Returns a machine with everything that scripts may use. `version` is the version that
    /// scripts see: three numbers, such as 7.4.2.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(limits: Limits, version: &str) -> Result<Self, ScriptError> {
        let built = Self::build(limits, version);
        built.map_err(|error| ScriptError::Raised(error.to_string().into_bytes()))
    }

    fn build(limits: Limits, version: &str) -> mlua::Result<Self> {
        let lua = Lua::new();
        lua.set_memory_limit(limits.memory_bytes_max)?;
        let run = Rc::new(Run::default());
        let text_buffer = Rc::new(TextBuffer::new(&lua)?);
        let prelude = world(&lua, &run, &text_buffer, version)?;
        run.random.set(Random::seeded(calls::random_seed()));
        Ok(Self {
            entry: prelude.raw_get("run")?,
            entry_of_functions: prelude.raw_get("run_function")?,
            environment: prelude.raw_get("environment")?,
            loader: prelude.raw_get("load_library")?,
            fields: Fields::new(&lua)?,
            text_buffer,
            is_asking: Cell::new(false),
            lua,
            run,
            limits,
        })
    }

    /// Returns the number of bytes that the machine uses now, including programs and what scripts
    /// left.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Compiles a script. `name` is its name in errors: the SHA-1 of its source.
    ///
    /// # Errors
    /// [`ScriptError::Compile`] if the source is not a program.
    pub fn compile(&mut self, name: &str, source: &[u8]) -> Result<Program, ScriptError> {
        let (_, body) = shebang::split(source);
        let plain = concat::with_plain_operands(body);
        let code = plain.as_deref().unwrap_or(body);
        let function =
            self.function(USER_SCRIPT, [b"local KEYS,ARGV=...;", code].concat(), None)?;
        let is_straight = straight::is_straight(body);
        let sees = |name: &[u8]| !is_straight || memchr::memmem::find(body, name).is_some();
        Ok(Program {
            function,
            name: name.into(),
            is_straight,
            given: Given {
                keys: sees(b"KEYS"),
                arguments: sees(b"ARGV"),
            },
        })
    }

    fn function(
        &self,
        name: &str,
        source: Vec<u8>,
        environment: Option<Table>,
    ) -> Result<LuaFunction, ScriptError> {
        let chunk = self
            .lua
            .load(source)
            .set_name(name)
            .set_mode(ChunkMode::Text);
        let chunk = match environment {
            Some(environment) => chunk.set_environment(environment),
            None => chunk,
        };
        let chunk = chunk.set_compiler(api::compiler());
        chunk
            .into_function()
            .map_err(|error| ScriptError::Compile(syntax_text(&error)))
    }

    /// Runs a script.
    ///
    /// # Errors
    /// [`ScriptError::Raised`] with the text of the error reply, [`ScriptError::Stopped`] if `host`
    /// stopped it.
    pub fn run(
        &mut self,
        program: &Program,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Result<Value, ScriptError> {
        self.ask(!program.is_straight);
        let code = Code {
            entry: &self.entry,
            source: USER_SCRIPT,
            function: &program.function,
            given: program.given,
        };
        self.enter(&code, &program.name, (keys, args), host)
    }

    /// Runs the code of a library, whose first line gives its name, and returns the functions that
    /// it registers.
    ///
    /// # Errors
    /// [`ScriptError::Compile`] if it is not a program, [`ScriptError::Raised`] if its code fails.
    /// The text is that of the error alone: the caller adds what failed.
    pub fn load_library(&mut self, source: &[u8]) -> Result<Library, ScriptError> {
        // The stop of the previous run must not end this one.
        self.run.begin();
        let (first_line, body) = shebang::split(source);
        let name = first_line.and_then(|line| line.option(b"name").map(<[u8]>::to_vec));
        let (environment, complete) = self
            .environment
            .call::<(Table, LuaFunction)>(())
            .map_err(|error| raised(&error))?;
        let body = concat::with_plain_operands(body).unwrap_or_else(|| body.to_vec());
        let code = self.function(USER_FUNCTION, body, Some(environment.clone()))?;
        self.ask(true);
        self.run.load_steps.set(Some(self.limits.load_steps_max));
        self.run.registered.replace(Some(Vec::new()));
        let outcome = self.loader.call::<(bool, LuaValue)>(code);
        self.run.load_steps.set(None);
        let functions = self.run.registered.take().unwrap_or_default();
        if let Some(stop) = self.run.stopped.get() {
            let line = self.run.stopped_line.get().unwrap_or(1);
            return Err(registering(&format!(
                "@user_function: {line}: {}",
                stop.text
            )));
        }
        match outcome {
            Ok((true, _)) => {}
            Ok((false, error)) => {
                return Err(registering(&String::from_utf8_lossy(&error_message(
                    &error,
                ))));
            }
            Err(error) => return Err(raised(&error)),
        }
        complete.call::<()>(()).map_err(|error| raised(&error))?;
        environment.set_safeenv(true);
        Ok(Library {
            name: name.unwrap_or_default(),
            functions,
        })
    }

    /// Sets whether safe points ask whether to continue. If not, they cost next to nothing.
    fn ask(&self, asks: bool) {
        if self.is_asking.replace(asks) == asks {
            return;
        }
        if asks {
            let run = Rc::clone(&self.run);
            self.lua.set_interrupt(move |lua| run.step(lua));
        } else {
            self.lua.remove_interrupt();
        }
    }

    /// Calls a function of a library that this machine has loaded.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn call_function(
        &mut self,
        function: &Function,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Result<Value, ScriptError> {
        self.ask(true);
        let name = String::from_utf8_lossy(&function.name);
        let code = Code {
            entry: &self.entry_of_functions,
            source: USER_FUNCTION,
            function: &function.callback,
            given: Given {
                keys: true,
                arguments: true,
            },
        };
        self.enter(&code, &name, (keys, args), host)
    }

    fn enter(
        &self,
        code: &Code<'_>,
        name: &str,
        given: (&[&[u8]], &[&[u8]]),
        host: &mut dyn Host,
    ) -> Result<Value, ScriptError> {
        self.run.begin();
        self.make_room();
        let outcome = self.attempt(code, given, host);
        if let Some(stop) = self.run.stopped.get() {
            return Err(self.stopped(stop, name, code.source));
        }
        match outcome {
            Ok((true, Some(text), _)) => Ok(Value::Bulk(text.into())),
            Ok((true, None, value)) => {
                let reply = self.fields.reply(&value, self.run.resp.get());
                reply.map_err(|error| raised(&error))
            }
            Ok((false, _, error)) => Err(ScriptError::Raised(error_text(&error, name))),
            Err(error) => Err(raised(&error)),
        }
    }

    /// Collects the garbage of earlier scripts before it could make this one fail: the machine
    /// itself collects by the rate of allocation, not by the amount of garbage.
    fn make_room(&self) {
        if self.lua.used_memory() > self.limits.memory_bytes_max / 2 {
            // A failed collection leaves the memory as it was. The script may fail then.
            let _collected = self.lua.gc_collect();
        }
    }

    fn attempt(
        &self,
        code: &Code<'_>,
        (keys, args): (&[&[u8]], &[&[u8]]),
        host: &mut dyn Host,
    ) -> mlua::Result<Finished> {
        let seen = |texts: &[&[u8]], sees: bool| sees.then_some(texts.len());
        let counts = (
            seen(keys, code.given.keys),
            seen(args, code.given.arguments),
        );
        let keys = &keys[..counts.0.unwrap_or(0)];
        let args = &args[..counts.1.unwrap_or(0)];
        let mut texts = keys.iter().chain(args).map(|text| Some(*text));
        if keys.is_empty() && args.is_empty() || self.text_buffer.several(&mut texts).is_some() {
            let (keys, args) = counts;
            return HOST.set(Lent(host), || code.entry.call((code.function, keys, args)));
        }
        let (keys, args) = (self.texts(keys)?, self.texts(args)?);
        HOST.set(Lent(host), || code.entry.call((code.function, keys, args)))
    }

    fn texts(&self, texts: &[&[u8]]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
        for text in texts {
            table.raw_push(self.lua.create_string(text)?)?;
        }
        Ok(table)
    }

    fn stopped(&self, stop: Stop, name: &str, source: &str) -> ScriptError {
        let line = self.run.stopped_line.get().unwrap_or(1);
        let text = format!("ERR {} script: {name}, on {source}:{line}.", stop.text);
        ScriptError::Stopped(stop, text.into_bytes())
    }
}

/// The code to run, and the function of the prelude that runs it.
struct Code<'m> {
    entry: &'m LuaFunction,
    /// The name of the source in errors.
    source: &'static str,
    function: &'m LuaFunction,
    given: Given,
}

/// The names in errors of a script's source and of a library's source.
const USER_SCRIPT: &str = "@user_script";
const USER_FUNCTION: &str = "@user_function";

/// The prelude's result of a run: whether it succeeded, and its result, with texts separate.
type Finished = (bool, Option<BString>, LuaValue);

/// Makes the environment of scripts. Returns the functions of the prelude that the machine calls.
fn world(
    lua: &Lua,
    run: &Rc<Run>,
    text_buffer: &Rc<TextBuffer>,
    version: &str,
) -> mlua::Result<Table> {
    let machine = lua.create_table()?;
    machine.raw_set("shared", text_buffer.buffer())?;
    machine.raw_set("call", calls::command(lua, run, text_buffer)?)?;
    machine.raw_set("call_short", calls::short_command(lua, run, text_buffer)?)?;
    api::fill(lua, &machine, run)?;
    machine.raw_set("register_function", register::function(lua, run, "redis.")?)?;
    machine.raw_set(
        "register_for_server",
        register::function(lua, run, "server.")?,
    )?;
    machine.raw_set("version", version)?;
    machine.raw_set("version_number", number_of(version))?;
    machine.raw_set(
        "null",
        LuaValue::LightUserData(mlua::LightUserData(std::ptr::null_mut())),
    )?;
    machine.raw_set("struct", struct_library::table(lua)?)?;
    machine.raw_set("cmsgpack", cmsgpack::table(lua)?)?;
    machine.raw_set("json", json::table(lua, &run.json)?)?;
    let new_json = lua.create_function(|lua, ()| json::table(lua, &Rc::default()))?;
    machine.raw_set("new_json", new_json)?;
    let prelude: Table = lua
        .load(include_str!("prelude.luau"))
        .set_name("=prelude")
        .call(machine)?;
    let globals = lua.globals();
    globals.set_readonly(true);
    globals.set_safeenv(true);
    Ok(prelude)
}

/// Returns a version as a number with eight bits for each of its parts.
fn number_of(version: &str) -> u32 {
    let parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    parts.fold(0, |number: u32, part: u32| (number << 8) | (part & 0xFF))
}

/// Returns the text of an error that reached the top, from what the prelude made of it.
fn error_text(error: &LuaValue, name: &str) -> Vec<u8> {
    let mut text = error_message(error);
    if let LuaValue::Table(error) = error
        && let Ok(LuaValue::String(source)) = error.raw_get("source")
        && let Ok(LuaValue::Integer(line)) = error.raw_get("line")
    {
        let place = format!(" script: {name}, on @{}:{line}.", source.display());
        text.extend_from_slice(place.as_bytes());
    }
    convert::one_line(&text)
}

fn error_message(error: &LuaValue) -> Vec<u8> {
    match error {
        LuaValue::Table(error) => match error.raw_get("err") {
            Ok(LuaValue::String(text)) => text.as_bytes().to_vec(),
            _ => b"ERR unknown error".to_vec(),
        },
        other => format!("ERR {}", other.to_string().unwrap_or_default()).into_bytes(),
    }
}

fn registering(text: &str) -> ScriptError {
    ScriptError::Raised(convert::one_line(text.as_bytes()))
}

fn raised(error: &Error) -> ScriptError {
    ScriptError::Raised(
        format!("ERR {error}")
            .replace(['\r', '\n'], " ")
            .into_bytes(),
    )
}

fn syntax_text(error: &Error) -> Vec<u8> {
    match error {
        Error::SyntaxError { message, .. } => message.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    }
}
