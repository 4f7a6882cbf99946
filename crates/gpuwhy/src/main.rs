//! The command line: parses, calls, prints.

mod commands;
mod findings;
mod host;
mod print;
mod stall;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use gpuwhy_capture::Problem;
use gpuwhy_history::HistoryError;
use gpuwhy_outputs::SettingsError;
use gpuwhy_questions::AskError;
use gpuwhy_store::{QueryError, StoreError};

/// Why is my GPU waiting? Watches unmodified programs from the kernel and keeps what it saw in one local file.
#[derive(Parser)]
#[command(name = "gpuwhy", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

/// All commands and options, to describe them.
fn command_line() -> clap::Command {
    Arguments::command()
}

fn main() -> ExitCode {
    // A closed pipe ends the program quietly, as it does every other tool.
    // SAFETY: no other thread runs yet, and the default action replaces Rust's.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("GPUWHY_LOG"))
        .init();
    match Arguments::parse().command.run() {
        Ok(code) => code,
        Err(error) => {
            print::error(&error);
            if let Some(hint) = hint(&error) {
                print::hint(&hint);
            }
            ExitCode::FAILURE
        }
    }
}

/// What the user can do about an error, from whichever part of it knows.
fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(problem) = cause.downcast_ref::<Problem>() {
            return Some(problem.hint.clone());
        }
        if let Some(error) = cause.downcast_ref::<AskError>() {
            return error.hint().map(str::to_owned);
        }
        if let Some(error) = cause.downcast_ref::<SettingsError>() {
            return error.hint().map(str::to_owned);
        }
        if let Some(error) = cause.downcast_ref::<HistoryError>() {
            return error.hint().map(str::to_owned);
        }
        let store = cause.downcast_ref::<StoreError>().and_then(StoreError::hint);
        store.or_else(|| cause.downcast_ref::<QueryError>().and_then(QueryError::hint)).map(str::to_owned)
    })
}
