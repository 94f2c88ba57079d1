//! Tables of text for a terminal.

use std::fmt::Write as _;

use pedl_core::printable::printable;

/// Rows with columns as wide as their cells; numbers right-aligned. The names may come from a trial
/// of somebody else.
pub(super) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let rows = rows.iter();
    let rows = rows.map(|row| row.each_ref().map(|cell| printable(cell)));
    let rows: Vec<_> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..COLUMNS)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let is_number = |column: usize| {
        let cells = rows.iter().skip(1).map(|row| &row[column]);
        let mut cells = cells.filter(|cell| *cell != "-").peekable();
        cells.peek().is_some()
            && cells.all(|cell| cell.starts_with(|first: char| first.is_ascii_digit()))
    };
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if is_number(column) {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_need_be() {
        let rows = [["name", "size"], ["a", "10 B"], ["long name", "-"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(
            table(&rows),
            "name       size\na          10 B\nlong name     -\n"
        );
    }
}
