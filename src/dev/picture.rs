//! A picture of a terminal, as SVG: what `cargo dev demo --picture FILE` writes.

use std::fmt::Write as _;

/// The kind of a line, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What somebody typed.
    Typed,
    /// What a program printed.
    Printed,
    /// What pedl-run printed.
    Ours,
    /// The kill.
    Kill,
    /// The result.
    Result,
}

impl Kind {
    fn colour(self) -> &'static str {
        match self {
            Self::Typed => "#e6edf3",
            Self::Printed => "#9da7b3",
            Self::Ours => "#79c0ff",
            Self::Kill => "#ff7b72",
            Self::Result => "#7ee787",
        }
    }
}

/// Pixels of a character of the font, and around the text.
const COLUMN: f64 = 7.8;
const ROW: usize = 19;
const MARGIN: usize = 18;

/// The picture of these lines.
pub(crate) fn terminal(lines: &[(Kind, String)]) -> String {
    let columns = lines.iter().map(|(_, line)| line.chars().count()).max();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a number of pixels"
    )]
    let width = (columns.unwrap_or(0) as f64 * COLUMN) as usize + 2 * MARGIN;
    let height = lines.len() * ROW + 2 * MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, monospace\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for (row, (kind, line)) in lines.iter().enumerate() {
        let y = MARGIN + (row + 1) * ROW - 6;
        let _ = writeln!(
            text,
            "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{}\" xml:space=\"preserve\">{}</text>",
            kind.colour(),
            escaped(line)
        );
    }
    text + "</svg>\n"
}

fn escaped(line: &str) -> String {
    line.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Kind, terminal};

    #[test]
    fn each_line_is_one_text_of_its_colour() {
        let lines = [
            (Kind::Typed, "$ a < b".to_owned()),
            (Kind::Result, "same".to_owned()),
        ];
        let picture = terminal(&lines);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches("<text ").count(), 2);
        assert!(picture.contains(">$ a &lt; b</text>"));
        assert!(picture.contains(Kind::Result.colour()));
    }
}
