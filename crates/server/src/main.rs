//! The `iolite` binary: everything is in the library.

use std::process::ExitCode;

use server::persistence::check;
use server::persistence::offline::{self, OfflineError};
use server::{cli, runtime};

#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "help, version and start-up errors"
)]
fn main() -> ExitCode {
    let arguments = std::env::args_os().collect();
    match cli::read(arguments, std::env::vars_os(), &mut std::io::stdin()) {
        Ok(cli::Invocation::Serve(startup)) => runtime::run(*startup),
        Ok(cli::Invocation::Print { text, code }) => {
            print!("{text}");
            ExitCode::from(code)
        }
        Ok(cli::Invocation::Bench(words)) => tool::run(words),
        Ok(cli::Invocation::Check(files)) => {
            let checked = check::files(&files);
            print!("{}", checked.text);
            ExitCode::from(u8::from(!checked.is_good))
        }
        Ok(cli::Invocation::Import { startup, file }) => tell(offline::import(*startup, &file)),
        Ok(cli::Invocation::Export {
            startup,
            file,
            form,
            version,
        }) => tell(offline::export(*startup, &file, form, version)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "there is nobody else to tell"
)]
fn tell(done: Result<String, OfflineError>) -> ExitCode {
    match done {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("iolite: {error}");
            ExitCode::FAILURE
        }
    }
}
