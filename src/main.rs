//! The binary: parse the arguments, build the runtime, run the command, turn its end into an exit code.

use std::process::ExitCode;

use clap::Parser;
use manifold::cli::{Cli, Failure, run};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // `--help` and `--version` exit 0, bad usage exits 2, both by clap itself.
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            anstream::eprintln!("manifold: cannot start the runtime: {error}");
            return ExitCode::from(1);
        }
    };
    let outcome = runtime.block_on(run(cli));
    // Reading standard input blocks a thread that cannot be interrupted: do not wait for it.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Work(text)) => failed(&text, 1),
        Err(Failure::Usage(text)) => failed(&text, 2),
    }
}

fn failed(text: &str, code: u8) -> ExitCode {
    if !text.is_empty() {
        anstream::eprintln!("manifold: {text}");
    }
    ExitCode::from(code)
}
