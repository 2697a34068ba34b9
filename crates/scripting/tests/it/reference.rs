//! Runs the same scripts here and on a reference server, if one is installed, and compares the
//! replies byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use base::random::Prng;
use scripting::{ScriptError, Value};

use crate::host::run;

/// One script per line. Lines that begin with `--` are comments.
const SCRIPTS: &str = include_str!("reference.txt");

#[test]
fn scripts_give_the_same_replies() {
    let Some(mut server) = Reference::start("scripts") else {
        eprintln!("no reference server: nothing compared");
        return;
    };
    let mut differences = Vec::new();
    for script in SCRIPTS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("--"))
    {
        let wanted = without_digest(&server.eval(script));
        let got = without_digest(&written(run(script)));
        if wanted != got {
            differences.push(format!("{script}\n  wanted {wanted}\n  got    {got}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Draws expressions at random, with `..` and what binds tighter, looser or around it.
/// `CONCATENATIONS` sets their number, `CONCATENATIONS_SEED` the seed.
#[test]
fn random_concatenations_give_the_same_texts() {
    let Some(mut server) = Reference::start("random") else {
        eprintln!("no reference server: nothing compared");
        return;
    };
    let number =
        |name, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let seed = number("CONCATENATIONS_SEED", 20);
    let mut random = Prng::seeded(seed);
    for _ in 0..number("CONCATENATIONS", 60) {
        let script = format!(
            "local t={{0.1,'k',3}} local f=function(...) return ... end return {}",
            joined(&mut random, 3)
        );
        let wanted = without_digest(&server.eval(&script));
        let got = without_digest(&written(run(&script)));
        assert_eq!(got, wanted, "CONCATENATIONS_SEED={seed} {script}");
    }
}

/// Returns a chain of operands with blanks, comments or nothing between them.
fn joined(random: &mut Prng, depth: u64) -> String {
    let mut text = operand(random, depth);
    for _ in 0..=random.below(3) {
        let join = one_of(random, &[" .. ", "..", " --[[ .. ]] .. ", " ..\t"]);
        text = format!("{text} {join} {}", operand(random, depth));
    }
    text
}

fn one_of<'t>(random: &mut Prng, texts: &[&'t str]) -> &'t str {
    let at = usize::try_from(random.below(texts.len() as u64));
    texts[at.unwrap_or(0)]
}

fn operand(random: &mut Prng, depth: u64) -> String {
    let literals = [
        "0.1", "1e15", "'a'", "7", "2^0.5", "t[1]", "t[2]", "-t[3]", "t[1]*3", "1/3", "#t",
        "\"b..\"", "[[c]]",
    ];
    if depth == 0 {
        return one_of(random, &literals).to_owned();
    }
    let inner = joined(random, depth - 1);
    match random.below(6) {
        0 => format!("({inner})"),
        1 => format!("f({inner}, 1)"),
        2 => format!("f{{{inner}}}[1]"),
        3 => format!("#({inner})"),
        4 => format!("(function() local s = {inner} return s end)()"),
        _ => one_of(random, &literals).to_owned(),
    }
}

fn written(outcome: Result<Value, ScriptError>) -> String {
    let mut out = String::new();
    match outcome {
        Ok(value) => write(&mut out, &value),
        Err(error) => out = format!("-{}\n", String::from_utf8_lossy(error.text())),
    }
    out
}

/// Writes a value in the form in which the reader below shows a frame: lines, with texts escaped.
fn write(out: &mut String, value: &Value) {
    match value {
        Value::Nil => out.push_str("$-1\n"),
        Value::Integer(number) => out.push_str(&format!(":{number}\n")),
        Value::Bulk(text) => out.push_str(&format!("\"{}\"\n", text.escape_ascii())),
        Value::Status(text) => out.push_str(&format!("+{}\n", String::from_utf8_lossy(text))),
        Value::Error(text) => out.push_str(&format!("-{}\n", String::from_utf8_lossy(text))),
        Value::Array(items) => {
            out.push_str(&format!("*{}\n", items.len()));
            items.iter().for_each(|item| write(out, item));
        }
        other => out.push_str(&format!("{other:?}\n")),
    }
}

/// Removes the name of the script, which differs because the test chooses it here.
fn without_digest(reply: &str) -> String {
    match reply.split_once(" script: ") {
        Some((text, rest)) => format!(
            "{text} script{}",
            rest.trim_start_matches(|c: char| c.is_ascii_hexdigit())
        ),
        None => reply.to_owned(),
    }
}

struct Reference {
    child: Child,
    directory: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Reference {
    /// Starts a server. `name` distinguishes the servers of one process.
    fn start(name: &str) -> Option<Self> {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("iolite-scripting-{process}-{name}"));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("socket");
        let child = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "no",
                "--unixsocket",
            ])
            .arg(&socket)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        for _ in 0..600 {
            if let Ok(stream) = UnixStream::connect(&socket) {
                let stream = BufReader::new(stream);
                return Some(Self {
                    child,
                    directory,
                    stream,
                });
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("the reference server does not answer");
    }

    fn eval(&mut self, script: &str) -> String {
        let request = format!(
            "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n",
            script.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut out = String::new();
        self.read(&mut out);
        out
    }

    fn read(&mut self, out: &mut String) {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).unwrap();
        let line = String::from_utf8_lossy(&line)
            .trim_end_matches(['\r', '\n'])
            .to_owned();
        let count = || line[1..].parse::<i64>().unwrap();
        match line.as_bytes()[0] {
            b'$' if count() >= 0 => {
                let mut text = vec![0; usize::try_from(count()).unwrap() + 2];
                self.stream.read_exact(&mut text).unwrap();
                out.push_str(&format!("\"{}\"\n", text[..text.len() - 2].escape_ascii()));
            }
            b'*' if count() >= 0 => {
                out.push_str(&format!("{line}\n"));
                (0..count()).for_each(|_| self.read(out));
            }
            _ => out.push_str(&format!("{line}\n")),
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _waited = self.child.wait();
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}
