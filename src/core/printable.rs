//! Untrusted texts on a terminal: names and numbers in a trial that somebody else has made.
//!
//! A name may hold anything: an escape sequence that recolours or rewrites the terminal, a newline
//! that begins a line which looks like one from pedl, a mark that turns the direction of writing.
//! All of these are shown as escapes, such as `\u{1b}`, and all other characters unchanged.

use std::borrow::Cow;

/// A text in one line, without characters that a terminal interprets.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_active)
}

/// Like [`printable`], for a text of several lines, which keeps its newlines and tabs.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| {
        !matches!(character, '\n' | '\t') && is_active(character)
    })
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal does not just show a character: control characters, separators of lines, and
/// marks that have no width or turn the direction of writing.
///
/// Source: Unicode 16, general categories Cc, Zl, Zp, and Cf except the soft hyphen and the
/// joiners, which ordinary texts hold.
fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        )
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_upon_is_shown_as_what_it_is() {
        let name = "a\u{1b}]0;title\u{7}\nb\u{9b}31m\u{202e}c\td";
        assert_eq!(
            printable(name),
            r"a\u{1b}]0;title\u{7}\u{a}b\u{9b}31m\u{202e}c\u{9}d"
        );
        assert_eq!(
            printable_lines(name),
            "a\\u{1b}]0;title\\u{7}\nb\\u{9b}31m\\u{202e}c\td"
        );
    }

    #[test]
    fn an_ordinary_text_is_itself() {
        for text in ["dense_1/kernel:0", "poids/été", "重み", "weights 🦀", ""] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        }
    }
}
