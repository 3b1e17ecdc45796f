//! Problems with a configuration: collected all at once, drawn with excerpts of the files.
//!
//! Whoever reads or checks configuration adds to [`Problems`]; the command line and the reload print it. A message
//! never contains what a secret resolved to. This module prints nothing itself and decides nothing.

use std::fmt;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::locate::line_column;

/// Where in the sources something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// Index of the source.
    pub(crate) source: usize,
    /// First byte, and one past the last. Empty for sources that have no text to show.
    pub(crate) start: usize,
    /// One past the last byte.
    pub(crate) end: usize,
}

impl Mark {
    pub(crate) fn range(self) -> Range<usize> {
        self.start..self.end.max(self.start)
    }
}

/// Something that was read: a file with its text, or a variable or flag by name only (its value may be a secret).
#[derive(Clone, PartialEq)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: Option<String>,
}

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, or the name of a variable or flag.
    pub file: String,
    /// Line, from 1; 0 for variables and flags.
    pub line: usize,
    /// Column in characters, from 1; 0 for variables and flags.
    pub column: usize,
}

/// One thing that is wrong or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, in one sentence, without the position.
    pub message: String,
    /// The key path it is about, such as `servers.tickets.url`; empty if it is about a whole file.
    pub path: String,
    /// What to do, if that is not plain from the message.
    pub help: Option<String>,
    pub(crate) label: String,
    pub(crate) mark: Option<Mark>,
    pub(crate) related: Vec<(Mark, String)>,
}

impl Problem {
    pub(crate) fn new(path: impl fmt::Display, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            path: path.to_string(),
            help: None,
            label: String::new(),
            mark: None,
            related: Vec::new(),
        }
    }

    pub(crate) fn at(mut self, mark: Option<Mark>) -> Self {
        self.mark = mark;
        self
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn related(mut self, mark: Option<Mark>, label: impl Into<String>) -> Self {
        if let Some(mark) = mark {
            self.related.push((mark, label.into()));
        }
        self
    }
}

/// Problems with the texts they are about. `Display` draws them all; with none it is empty.
#[derive(Clone, PartialEq, Default)]
pub struct Problems {
    problems: Vec<Problem>,
    sources: Vec<Source>,
    warnings: bool,
}

impl Problems {
    pub(crate) fn new(sources: &[Source], problems: Vec<Problem>) -> Self {
        Self {
            problems,
            sources: sources.to_vec(),
            warnings: false,
        }
    }

    pub(crate) fn warnings(sources: &[Source], problems: Vec<Problem>) -> Self {
        Self {
            problems,
            sources: sources.to_vec(),
            warnings: true,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// The problems, in the order of the files.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    /// Where a problem of this collection stands.
    #[must_use]
    pub fn location(&self, problem: &Problem) -> Option<Location> {
        let mark = problem.mark?;
        let source = self.sources.get(mark.source)?;
        let (line, column) = source
            .text
            .as_deref()
            .map_or((0, 0), |text| line_column(text, mark.start));
        Some(Location {
            file: source.name.clone(),
            line,
            column,
        })
    }

    /// Draws all problems; `colour` only for a terminal.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let renderer = renderer.decor_style(DecorStyle::Ascii).term_width(120);
        let mut out = String::new();
        for problem in &self.problems {
            let drawn = self.draw(problem, &renderer);
            out.push_str(drawn.trim_end());
            out.push_str("\n\n");
        }
        let ending = out.trim_end().len();
        out.truncate(ending);
        if !out.is_empty() {
            out.push('\n');
        }
        out
    }

    fn draw(&self, problem: &Problem, renderer: &Renderer) -> String {
        let level = if self.warnings {
            Level::WARNING
        } else {
            Level::ERROR
        };
        let source = problem.mark.and_then(|mark| self.sources.get(mark.source));
        let mut title = if problem.path.is_empty() || problem.message.contains(&problem.path) {
            problem.message.clone()
        } else {
            format!("{}: {}", problem.path, problem.message)
        };
        if let Some(source) = source.filter(|source| source.text.is_none()) {
            title = format!("{title} ({})", source.name);
        }
        let mut group = Group::with_title(level.primary_title(title));
        if let (Some(source), Some(mark)) = (source, problem.mark)
            && let Some(text) = source.text.as_deref()
        {
            let mut snippet = Snippet::source(text).path(source.name.clone()).annotation(
                AnnotationKind::Primary
                    .span(shown(text, mark))
                    .label(problem.label.clone()),
            );
            let here = problem
                .related
                .iter()
                .filter(|(other, _)| other.source == mark.source);
            for (other, label) in here {
                snippet = snippet.annotation(
                    AnnotationKind::Context
                        .span(shown(text, *other))
                        .label(label.clone()),
                );
            }
            group = group.element(snippet);
            for (other, label) in problem
                .related
                .iter()
                .filter(|(other, _)| other.source != mark.source)
            {
                let Some(source) = self.sources.get(other.source) else {
                    continue;
                };
                let Some(text) = source.text.as_deref() else {
                    continue;
                };
                group = group.element(
                    Snippet::source(text).path(source.name.clone()).annotation(
                        AnnotationKind::Context
                            .span(shown(text, *other))
                            .label(label.clone()),
                    ),
                );
            }
        }
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(help.clone()));
        }
        renderer.render(&[group])
    }
}

/// The part of a mark that is underlined: its first line, on character boundaries, never empty inside a text.
fn shown(text: &str, mark: Mark) -> Range<usize> {
    let floor = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = floor(mark.start);
    let end = floor(mark.range().end);
    let part = text.get(start..end).unwrap_or_default();
    let first_line = part.split(['\n', '\r']).next().unwrap_or_default().trim_end();
    start..start + first_line.len()
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

// The sources may hold literal secrets; only the problems are shown.
impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problems.fmt(f)
    }
}

impl std::error::Error for Problems {}
