//! Translates patterns of `.gitignore` for the `ignore` crate.
//!
//! The crate reads a pattern as one of `globset`, which knows a little more than git, and partly
//! differs:
//!
//! | pattern | git | `globset` | spelled |
//! |---|---|---|---|
//! | `{a,b}` | is itself | `a` or `b` | `\{a,b\}` |
//! | `[a` | matches nothing | is itself | refused |
//! | `[a\]]`, `[a-c-e]` | `\` escapes; `-` | `\` is itself; `a`..`e` | `{\a,\]}`, `{[a-c],\-,\e}` |
//! | `a//b` | matches nothing | is `a/b` with `**` beside it | refused |
//! | `***` | is `**` | is `**` and `*` | `**` |
//!
//! If git differs from its manual (`a**/b` also matches `ab`), the manual is followed.
//!
//! Source: gitignore(5); git 2.47, `wildmatch.c` and `dir.c`.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

/// Characters with a meaning in a class of `globset`, depending on their place.
const SPECIAL: [char; 5] = ['!', '-', '[', ']', '^'];

/// Translates a line.
///
/// # Errors
///
/// Why git finds no match for it.
pub(super) fn spell(line: &str) -> Result<String, String> {
    let mut spelled = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            '\\' => {
                spelled.push('\\');
                spelled.extend(rest.next());
            }
            '{' | '}' => {
                spelled.push('\\');
                spelled.push(first);
            }
            '*' => {
                let mut others = 0;
                while rest.next_if_eq(&'*').is_some() {
                    others += 1;
                }
                spelled.push_str(if others == 0 { "*" } else { "**" });
            }
            '/' if spelled.ends_with('/') => return Err("no path has `//` in it".to_owned()),
            '[' => Class::parse(&mut rest)?.spell(&mut spelled)?,
            other => spelled.push(other),
        }
    }
    Ok(spelled)
}

/// The characters between `[` and `]`.
#[derive(Default)]
struct Class {
    is_negated: bool,
    singles: Vec<char>,
    /// Without special characters at their ends.
    ranges: Vec<(char, char)>,
    /// `[:alpha:]`
    names: Vec<String>,
}

impl Class {
    /// Reads what follows a `[`, with the `]`.
    fn parse(rest: &mut Peekable<Chars<'_>>) -> Result<Self, String> {
        let unclosed = || "there is no `]` to its `[`".to_owned();
        let mut class = Self {
            is_negated: rest.next_if(|it| matches!(it, '!' | '^')).is_some(),
            ..Self::default()
        };
        // The previous character: a range may begin with it.
        let mut previous = None;
        let mut is_first = true;
        loop {
            let mut next = rest.next().ok_or_else(unclosed)?;
            if next == ']' && !is_first {
                return Ok(class);
            }
            is_first = false;
            let is_range = next == '-' && rest.peek().is_some_and(|it| *it != ']');
            if let Some(begin) = previous.take_if(|_| is_range) {
                let mut end = rest.next().ok_or_else(unclosed)?;
                if end == '\\' {
                    end = rest.next().ok_or_else(unclosed)?;
                }
                class.add_range(begin, end);
                continue;
            }
            if next == '['
                && rest.peek() == Some(&':')
                && let Some(name) = class_name(rest)
            {
                class.names.push(name);
                previous = None;
                continue;
            }
            if next == '\\' {
                next = rest.next().ok_or_else(unclosed)?;
            }
            class.singles.push(next);
            previous = Some(next);
        }
    }

    /// Adds the characters between two characters; none if they are in the wrong order.
    fn add_range(&mut self, mut begin: char, mut end: char) {
        let near = |it: char, by: i32| char::from_u32(u32::from(it).wrapping_add_signed(by));
        while begin <= end && SPECIAL.contains(&begin) {
            self.singles.push(begin);
            begin = near(begin, 1).unwrap_or(begin);
        }
        while begin <= end && SPECIAL.contains(&end) {
            self.singles.push(end);
            end = near(end, -1).unwrap_or(end);
        }
        if begin <= end {
            self.ranges.push((begin, end));
        }
    }

    fn spell(mut self, spelled: &mut String) -> Result<(), String> {
        let is_empty = self.singles.is_empty() && self.ranges.is_empty() && self.names.is_empty();
        match (self.is_negated, is_empty) {
            (true, true) => spelled.push('?'),
            (false, true) => return Err("its `[` to `]` holds no character".to_owned()),
            (true, false) => self.spell_negated(spelled),
            (false, false) => {
                let singles = self.singles.iter().map(|it| match it {
                    // No class matches a slash; the slash still anchors the pattern at the top.
                    '/' => "[/]".to_owned(),
                    it => format!("\\{it}"),
                });
                let ranges = self.ranges.iter().map(|(a, z)| format!("[{a}-{z}]"));
                let names = self.names.iter().map(|it| format!("[[:{it}:]]"));
                let all: Vec<_> = singles.chain(ranges).chain(names).collect();
                let _ = write!(spelled, "{{{}}}", all.join(","));
            }
        }
        Ok(())
    }

    /// As one class, with each special character at a place where it means itself.
    fn spell_negated(&mut self, spelled: &mut String) {
        self.singles.sort_unstable_by_key(|it| match it {
            ']' => 0,
            '[' => 2,
            '-' => 3,
            _ => 1,
        });
        // Two of `-` would be a range.
        self.singles.dedup();
        let ends_at = self.singles.iter().filter(|it| **it == ']').count();
        let (first, last) = self.singles.split_at(ends_at);
        spelled.push_str("[!");
        spelled.extend(first.iter().take(1));
        for (begin, end) in &self.ranges {
            spelled.extend([*begin, '-', *end]);
        }
        for name in &self.names {
            let _ = write!(spelled, "[:{name}:]");
        }
        spelled.extend(last);
        spelled.push(']');
    }
}

/// The name in `[:name:]`, after its `[`; reads nothing if there is none.
fn class_name(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut ahead = rest.clone();
    ahead.next();
    let name: String = ahead.by_ref().take_while(|it| *it != ']').collect();
    let name = name.strip_suffix(':')?.to_owned();
    *rest = ahead;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m6_what_globset_reads_otherwise_is_spelled_for_it() {
        for (line, spelled) in [
            ("*.log", "*.log"),
            ("a/**/b", "a/**/b"),
            ("***/b", "**/b"),
            ("{a,b}", r"\{a,b\}"),
            (r"\{a,b}", r"\{a,b\}"),
            (r"\[a]", r"\[a]"),
            ("[ab]", r"{\a,\b}"),
            ("[a-c-e]", r"{\a,\-,\e,[a-c]}"),
            (r"[a\]]", r"{\a,\]}"),
            ("[]a]", r"{\],\a}"),
            ("[!]a-]", "[!]a-]"),
            ("[^+--]", "[!+-,+-]"),
            ("[[:digit:]x]", r"{\x,[[:digit:]]}"),
            ("[!z-a]", "[!z]"),
        ] {
            assert_eq!(spell(line).as_deref(), Ok(spelled), "{line}");
        }
        for line in ["[a", "x[", r"[a\]", "[!", "[]", "[[:alpha:]", "a//b"] {
            assert!(spell(line).is_err(), "{line}");
        }
    }
}
