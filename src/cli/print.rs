//! How results are shown: tables, colours only on a terminal and without `NO_COLOR`, JSON on request.
//!
//! The commands call it; it is the one way to standard output besides the protocol itself.

use std::io::{ErrorKind, IsTerminal, Write as _};

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use super::Failure;

/// Wide enough that nothing wraps when the output goes into a file or another program.
const NO_TERMINAL_WIDTH: u16 = 4_000;

fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether standard error is a terminal that wants colours.
#[must_use]
pub fn colour_on_stderr() -> bool {
    std::io::stderr().is_terminal() && colours_wanted()
}

/// Whether standard output is a terminal that wants colours.
#[must_use]
pub fn colour_on_stdout() -> bool {
    std::io::stdout().is_terminal() && colours_wanted()
}

/// Writes to standard output. A reader that has gone away (`| head`) is no failure.
///
/// # Errors
/// If it cannot be written.
pub fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Work(format!(
            "standard output cannot be written: {error}"
        ))),
        _ => Ok(()),
    }
}

/// A line on standard error, for people.
pub fn note(text: &str) {
    anstream::eprintln!("{text}");
}

/// A value as JSON on standard output.
///
/// # Errors
/// If it cannot be written.
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::Work(format!("the result cannot be written as JSON: {error}")))?;
    text.push('\n');
    out(&text)
}

/// How a cell looks on a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// As it is.
    Plain,
    /// All is well.
    Good,
    /// In between.
    Unsure,
    /// Something is wrong.
    Bad,
}

/// A table in the making.
#[derive(Debug)]
pub struct Rows {
    table: Table,
    colour: bool,
}

impl Rows {
    /// A table with these column heads.
    #[must_use]
    pub fn new(heads: &[&str]) -> Self {
        let colour = colour_on_stdout();
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic);
        if !std::io::stdout().is_terminal() {
            table.set_width(NO_TERMINAL_WIDTH);
            table.force_no_tty();
        }
        if colour {
            table.set_header(
                heads
                    .iter()
                    .map(|head| Cell::new(head).add_attribute(Attribute::Bold)),
            );
        } else {
            table.set_header(heads.iter().map(|head| Cell::new(head.to_uppercase())));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self { table, colour }
    }

    /// One more row.
    pub fn add(&mut self, cells: impl IntoIterator<Item = (String, Tone)>) {
        let colour = self.colour;
        self.table.add_row(cells.into_iter().map(|(text, tone)| {
            let cell = Cell::new(text);
            match tone {
                Tone::Good if colour => cell.fg(Color::Green),
                Tone::Unsure if colour => cell.fg(Color::Yellow),
                Tone::Bad if colour => cell.fg(Color::Red),
                _ => cell,
            }
        }));
    }

    /// The text, with a newline at the end and without blanks at line ends.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in self.table.to_string().lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// `1 tool`, `2 tools`.
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}
