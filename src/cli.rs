//! The command line: one variant per command. The only place that may write to standard output.

pub mod load;
pub mod print;
pub mod serve;
pub mod stdio;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::sample::SampleKind;

/// One MCP server in front of many.
#[derive(Debug, Parser)]
#[command(name = "manifold", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where the configuration comes from.
#[derive(Clone, Debug, Default, Args)]
pub struct ConfigArgs {
    /// A configuration file (YAML, TOML or JSON); later ones override earlier ones.
    #[arg(long = "config", short = 'c', value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// One key of the configuration, such as `listen.http=127.0.0.1:9000`; overrides files and environment.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
}

impl ConfigArgs {
    /// The keys given on the command line.
    #[must_use]
    pub fn overrides(&self) -> Vec<(String, String)> {
        self.set.clone()
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.trim().to_owned(), value.to_owned()))
        .ok_or_else(|| "expected KEY=VALUE".to_owned())
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon for many hosts.
    Serve(ConfigArgs),
    /// Serve one host on standard input and output.
    Stdio {
        /// The configuration.
        #[command(flatten)]
        config: ConfigArgs,
        /// Pass everything to a running daemon instead: its URL, or unix:/path.sock.
        #[arg(long, value_name = "URL", conflicts_with = "files")]
        connect: Option<String>,
    },
    /// Run one of the built-in sample servers on standard input and output.
    SampleServer {
        /// Which one.
        kind: Sample,
    },
}

/// The sample servers.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Sample {
    /// Notes in memory.
    Notes,
    /// Time and countdowns.
    Clock,
}

impl From<Sample> for SampleKind {
    fn from(sample: Sample) -> Self {
        match sample {
            Sample::Notes => Self::Notes,
            Sample::Clock => Self::Clock,
        }
    }
}

/// Why a command ended without success.
#[derive(Debug)]
pub enum Failure {
    /// The work failed: exit code 1.
    Work(String),
    /// Bad usage or configuration: exit code 2.
    Usage(String),
}

/// Runs a command to its end.
///
/// # Errors
/// What to print on standard error, and the kind of failure.
pub async fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Serve(config) => serve::run(&config).await,
        Command::Stdio {
            config,
            connect: None,
        } => stdio::run(&config).await,
        Command::Stdio { connect: Some(_), .. } => Err(Failure::Usage("--connect is not there yet".into())),
        Command::SampleServer { kind } => {
            tokio::task::spawn_blocking(move || crate::sample::run(kind.into()))
                .await
                .map_err(|error| Failure::Work(error.to_string()))?
                .map_err(|error| Failure::Work(error.to_string()))
        }
    }
}
