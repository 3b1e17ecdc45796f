//! How results are shown: tables, colours only on a terminal, JSON on request.

use std::io::IsTerminal;

/// Whether standard error is a terminal that wants colours.
#[must_use]
pub fn colour_on_stderr() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
