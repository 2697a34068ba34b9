//! The `iolite` binary: everything is in the library.

#[cfg(feature = "jemalloc")]
mod jemalloc;

use std::process::ExitCode;

use persistence::check;
use server::keeping::offline::{self, Done, OfflineError};
use server::{cli, cluster_tool, runtime};

#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "help, version and start-up errors"
)]
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
    match cli::read(arguments, std::env::vars_os(), &mut std::io::stdin()) {
        Ok(cli::Invocation::Serve(startup)) => runtime::run(*startup),
        Ok(cli::Invocation::Print { text, code }) => {
            print!("{text}");
            ExitCode::from(code)
        }
        Ok(cli::Invocation::Tool(tool, words)) => tool.run(words),
        Ok(cli::Invocation::Check { files, is_json }) => {
            let checked = check::files(commands::table(), &files);
            match is_json {
                true => println!("{}", cli::checked_json(&checked)),
                false => print!("{}", checked.text),
            }
            ExitCode::from(u8::from(!checked.is_good))
        }
        Ok(cli::Invocation::Doctor { target, is_json }) => {
            let found = server::doctor::examine(&target, is_json);
            print!("{}", found.text);
            ExitCode::from(found.code)
        }
        Ok(cli::Invocation::Cluster {
            target,
            wish,
            is_json,
        }) => {
            let told = cluster_tool::run(&target, &wish, is_json);
            print!("{}", told.text);
            ExitCode::from(told.code)
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

/// A thread that panicked may hold what nobody else gives back, and what it was doing is half done: the
/// process ends once that was told.
fn end_at_a_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "there is nobody else to tell"
)]
fn tell(done: Result<Done, OfflineError>, is_json: bool) -> ExitCode {
    let code = match &done {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    };
    match (done, is_json) {
        (Ok(done), true) => println!("{}", done.json),
        (Ok(done), false) => println!("{}", done.text),
        (Err(error), true) => println!("{}", cluster_tool::failed_json(&error.to_string())),
        (Err(error), false) => eprintln!("iolite: {error}"),
    }
    code
}
