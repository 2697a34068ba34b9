//! The `iolite` binary. The code is in the library.

#[cfg(feature = "jemalloc")]
mod jemalloc;

use std::io::{self, Write as _};
use std::process::ExitCode;

use persistence::check;
use server::keeping::offline::{self, Done, OfflineError};
use server::{cli, cluster_tool, runtime};

#[allow(clippy::print_stderr, reason = "start-up errors")]
fn main() -> ExitCode {
    end_at_a_panic();
    #[cfg(feature = "planted")]
    if let Err(reason) = server::planted::from_environment() {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    #[cfg(feature = "jemalloc")]
    server::allocator::install(&jemalloc::Jemalloc);
    let arguments = std::env::args_os().collect();
    match cli::read(arguments, std::env::vars_os(), &mut io::stdin()) {
        Ok(cli::Invocation::Serve(startup)) => runtime::run(*startup),
        Ok(cli::Invocation::Print { text, code }) => print(&text, code),
        Ok(cli::Invocation::Tool(tool, words)) => tool.run(words),
        Ok(cli::Invocation::Check { files, is_json }) => {
            let checked = check::files(commands::table(), &files);
            let code = u8::from(!checked.is_good);
            match is_json {
                true => print(&format!("{}\n", cli::checked_json(&checked)), code),
                false => print(&checked.text, code),
            }
        }
        Ok(cli::Invocation::Doctor { target, is_json }) => {
            let found = server::doctor::examine(&target, is_json);
            print(&found.text, found.code)
        }
        Ok(cli::Invocation::Cluster {
            target,
            wish,
            is_json,
        }) => {
            let told = cluster_tool::run(&target, &wish, is_json);
            print(&told.text, told.code)
        }
        Ok(cli::Invocation::Recover {
            dir,
            is_confirmed,
            is_json,
        }) => {
            let told = cluster_tool::run_recovery(&dir, is_confirmed, is_json);
            print(&told.text, told.code)
        }
        Ok(cli::Invocation::Import {
            startup,
            file,
            is_json,
        }) => tell(offline::import(*startup, &file), is_json),
        Ok(cli::Invocation::Export {
            startup,
            file,
            form,
            version,
            is_json,
        }) => tell(offline::export(*startup, &file, form, version), is_json),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Ends the process at a panic, after its message is written: the thread may hold something that no
/// other thread can release, and its work is half done.
fn end_at_a_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

#[allow(clippy::print_stderr, reason = "there is nobody else to tell")]
fn tell(done: Result<Done, OfflineError>, is_json: bool) -> ExitCode {
    match (done, is_json) {
        (Ok(done), true) => print(&format!("{}\n", done.json), 0),
        (Ok(done), false) => print(&format!("{}\n", done.text), 0),
        (Err(error), true) => {
            let text = cluster_tool::failed_json(&error.to_string());
            print(&format!("{text}\n"), 1)
        }
        (Err(error), false) => {
            eprintln!("iolite: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes to standard output, and ends with `code`. A reader that stops early, as `head` does, has
/// what it wanted.
fn print(text: &str, code: u8) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // Without standard error there is no place for the message.
            let _told = writeln!(io::stderr(), "standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::from(code),
    }
}
