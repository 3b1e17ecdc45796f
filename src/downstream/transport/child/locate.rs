//! Finds the file to execute and says what is wrong with it, since the system's own word is "No such file".
//!
//! Blocks: it reads directories and the first bytes of the file. It never executes anything.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::SpawnError;

/// Longest first line that is looked at; the kernel itself reads 256 bytes.
const FIRST_LINE: u64 = 256;

/// Checks that the working directory can be entered.
pub(super) fn directory(cwd: Option<&Path>) -> Result<(), SpawnError> {
    let Some(cwd) = cwd else { return Ok(()) };
    let reason = match std::fs::metadata(cwd) {
        Ok(facts) if facts.is_dir() => return Ok(()),
        Ok(_) => "it is not a directory".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(SpawnError::WorkingDirectory {
        cwd: cwd.to_owned(),
        reason,
    })
}

/// The file that `command` means for a child with this `PATH` and working directory, checked as far as can be known
/// without executing it.
pub(super) fn program(command: &str, path: &OsStr, cwd: Option<&Path>) -> Result<PathBuf, SpawnError> {
    let file = if command.contains('/') {
        from_cwd(Path::new(command), cwd)
    } else {
        search(command, path, cwd)?
    };
    match std::fs::metadata(&file) {
        Err(_) => return Err(SpawnError::NoSuchFile { file }),
        Ok(facts) if !facts.is_file() => return Err(SpawnError::NotAFile { file }),
        Ok(_) if !executable(&file) => return Err(SpawnError::NotExecutable { file }),
        Ok(_) => {}
    }
    first_line(&file, path, cwd)?;
    Ok(file)
}

/// Made absolute, so that it means the same before and after the child changes its directory.
fn from_cwd(command: &Path, cwd: Option<&Path>) -> PathBuf {
    let relative = cwd.map_or_else(|| command.to_owned(), |cwd| cwd.join(command));
    std::path::absolute(&relative).unwrap_or(relative)
}

fn search(command: &str, path: &OsStr, cwd: Option<&Path>) -> Result<PathBuf, SpawnError> {
    let mut not_executable = None;
    for directory in std::env::split_paths(path).filter(|_| !command.is_empty()) {
        let file = from_cwd(&directory.join(command), cwd);
        if !file.is_file() {
            continue;
        }
        if executable(&file) {
            return Ok(file);
        }
        not_executable.get_or_insert(file);
    }
    Err(match not_executable {
        Some(file) => SpawnError::NotExecutable { file },
        None => SpawnError::NotInPath {
            command: command.to_owned(),
            path: path.to_string_lossy().into_owned(),
        },
    })
}

fn executable(file: &Path) -> bool {
    access(file, Access::EXEC_OK).is_ok()
}

/// Checks the `#!` line of a script: line end, interpreter, and what `env` is asked to find.
fn first_line(file: &Path, path: &OsStr, cwd: Option<&Path>) -> Result<(), SpawnError> {
    let mut start = Vec::new();
    // A file that we may execute and not read is none of our business.
    let read = File::open(file).and_then(|opened| opened.take(FIRST_LINE).read_to_end(&mut start));
    let Some(rest) = read.ok().and_then(|_| start.strip_prefix(b"#!")) else {
        return Ok(());
    };
    let Some(line) = rest.split(|&byte| byte == b'\n').next() else {
        return Ok(());
    };
    if line.ends_with(b"\r") {
        return Err(SpawnError::CarriageReturn {
            file: file.to_owned(),
        });
    }
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|word| !word.is_empty());
    let Some(interpreter) = words.next().map(OsStr::from_bytes) else {
        return Ok(());
    };
    let problem = |interpreter: &OsStr, missing: String| SpawnError::InterpreterMissing {
        file: file.to_owned(),
        interpreter: interpreter.to_string_lossy().into_owned(),
        missing,
    };
    let interpreter_file = from_cwd(Path::new(interpreter), cwd);
    if !interpreter_file.exists() {
        return Err(problem(interpreter, "does not exist".to_owned()));
    }
    if interpreter_file.file_name() == Some(OsStr::new("env"))
        && let Some(asked) = words.next()
        && !asked.starts_with(b"-")
        && !asked.contains(&b'=')
        && !asked.contains(&b'/')
        && let Ok(name) = std::str::from_utf8(asked)
        && search(name, path, cwd).is_err()
    {
        return Err(problem(
            OsStr::new(name),
            format!("is not in PATH `{}`", path.to_string_lossy()),
        ));
    }
    Ok(())
}
