//! The command line: one variant per command. The only place that may write to standard output.

pub mod call;
pub mod check;
pub mod connect;
pub mod fleet;
pub mod load;
pub mod net;
pub mod print;
pub mod serve;
pub mod status;
pub mod stdio;
pub mod tools;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

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
    /// A configuration file (YAML, TOML or JSON); later ones override earlier ones. None = two sample servers.
    #[arg(long = "config", short = 'c', value_name = "FILE", env = "MANIFOLD_CONFIG")]
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
        /// Pass everything to a running daemon instead: its URL, such as http://127.0.0.1:8420/mcp, or unix:/path.sock. The
        /// configuration is not read then.
        #[arg(long, value_name = "URL")]
        connect: Option<String>,
    },
    /// Show every problem of configuration and policy; with --connect, start each server and report on it.
    Check(check::CheckArgs),
    /// List the merged catalog with the verdict for each tool.
    Tools(tools::ToolsArgs),
    /// Call one tool through the whole pipeline.
    Call(call::CallArgs),
    /// Show how the running daemon and its servers are.
    Status(status::StatusArgs),
    /// Print the JSON Schema of the configuration.
    Schema,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Run one of the built-in sample servers on standard input and output.
    SampleServer {
        /// Which one.
        kind: Sample,
    },
    /// Not offered by this version yet.
    #[command(hide = true, disable_help_flag = true)]
    Policy(Later),
    /// Not offered by this version yet.
    #[command(hide = true, disable_help_flag = true)]
    Lock(Later),
    /// Not offered by this version yet.
    #[command(hide = true, disable_help_flag = true)]
    Audit(Later),
    /// Not offered by this version yet.
    #[command(hide = true, disable_help_flag = true)]
    Import(Later),
    /// Not offered by this version yet.
    #[command(hide = true, disable_help_flag = true)]
    Install(Later),
    /// Not offered by this version yet.
    #[command(hide = true, disable_help_flag = true)]
    Uninstall(Later),
}

/// Whatever is given to a command that does not exist yet.
#[derive(Debug, Args)]
pub struct Later {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<OsString>,
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
    /// The work failed: exit code 1. An empty text means that everything has been said.
    Work(String),
    /// Bad usage or configuration: exit code 2. An empty text means that everything has been said.
    Usage(String),
}

/// Runs a command to its end.
///
/// # Errors
/// What to print on standard error, and the kind of failure.
pub async fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Serve(config) => {
            refuse_recursion()?;
            serve::run(&config).await
        }
        Command::Stdio {
            config,
            connect: None,
        } => {
            refuse_recursion()?;
            stdio::run(&config).await
        }
        Command::Stdio {
            connect: Some(url), ..
        } => connect::run(&url).await,
        Command::Check(args) => check::run(&args).await,
        Command::Tools(args) => tools::run(&args).await,
        Command::Call(args) => call::run(&args).await,
        Command::Status(args) => status::run(&args).await,
        Command::Schema => print::out(&crate::config::schema::json()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "manifold", &mut script);
            print::out(&String::from_utf8_lossy(&script))
        }
        Command::SampleServer { kind } => {
            tokio::task::spawn_blocking(move || crate::sample::run(kind.into()))
                .await
                .map_err(|error| Failure::Work(error.to_string()))?
                .map_err(|error| Failure::Work(error.to_string()))
        }
        Command::Policy(_) => later("policy", "`manifold check` shows problems of the policy section"),
        Command::Lock(_) => later("lock", "tool definitions are not pinned"),
        Command::Audit(_) => later(
            "audit",
            "the audit files are lines of JSON in the audit directory, see docs/audit.md",
        ),
        Command::Import(_) => later(
            "import",
            "a host's own file with mcpServers works as it is: `manifold check --config FILE`",
        ),
        Command::Install(_) | Command::Uninstall(_) => later(
            "install",
            "put `manifold stdio --config FILE` into the host's file yourself, README.md shows how",
        ),
    }
}

fn later(command: &str, instead: &str) -> Result<(), Failure> {
    Err(Failure::Usage(format!(
        "`manifold {command}` is not offered by this version yet; {instead}"
    )))
}

/// A configuration that starts the same manifold again would start processes without end.
fn refuse_recursion() -> Result<(), Failure> {
    if crate::downstream::transport::child::runs_inside_itself() {
        return Err(Failure::Usage(
            "this manifold was started by a manifold with the same arguments: a server in the configuration starts \
             the configuration itself. Remove that server, or give it another configuration with --config"
                .into(),
        ));
    }
    Ok(())
}
