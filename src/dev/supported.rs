//! `cargo dev supported`: which versions are intercepted, and with which each is tested.
//!
//! Prints the table of `docs/reference/supported-versions.md`, from what the hooks read
//! (`py_hooks/registry.py`) and from the stacks of `tests/matrix.toml`. Some stacks have only the
//! trainings of `cargo dev matrix`, and some are tested on demand. A test compares the page with
//! it.

use std::ffi::OsString;
use std::fmt::Write as _;

use crate::Options;
use crate::failure::{At as _, Failure, Result};
use crate::matrix::{Matrix, Stack};
use crate::repository::Repository;

/// The word for the last version of a generation that is still open.
const OPEN: &str = "on";

/// A row of the registry.
#[derive(Debug, Eq, PartialEq)]
struct Generation {
    library: String,
    first: String,
    last: String,
}

/// Prints the table.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    Options::parse(arguments, &[])?.no_rest()?;
    print!("{}", table(&Repository::find())?);
    Ok(true)
}

fn table(repository: &Repository) -> Result<String> {
    let path = repository.root().join("py_hooks/registry.py");
    let text = std::fs::read_to_string(&path).at("read", &path)?;
    let generations = generations(&text)?;
    let stacks = Matrix::read(repository)?.stacks;
    let mut table = String::from(
        "| library | versions intercepted | tested: stack, Python, versions |\n|---|---|---|\n",
    );
    for generation in &generations {
        let tested: Vec<String> = stacks
            .iter()
            .filter(|stack| generation.is_tested_by(stack))
            .map(|stack| {
                let python = stack.python.first().map_or("", String::as_str);
                let how = match (&stack.only_trains, &stack.optional) {
                    (Some(_), _) => " (trainings)",
                    (None, Some(_)) => " (on demand)",
                    (None, None) => "",
                };
                format!("`{}`, {python}, {}{how}", stack.name, stack.summary())
            })
            .collect();
        let versions = if generation.last == OPEN {
            format!("{} on", generation.first)
        } else if generation.last == generation.first {
            generation.first.clone()
        } else {
            format!("{} to {}", generation.first, generation.last)
        };
        let library = &generation.library;
        let _ = writeln!(table, "| {library} | {versions} | {} |", tested.join("; "));
    }
    Ok(table)
}

/// The rows of the registry: each line between its parentheses is a tuple of four texts.
fn generations(registry: &str) -> Result<Vec<Generation>> {
    let rows = registry
        .lines()
        .skip_while(|line| *line != "GENERATIONS = (")
        .skip(1)
        .take_while(|line| *line != ")");
    let rows: Vec<Generation> = rows
        .map(|line| {
            row(line).ok_or_else(|| {
                let what = "is no row of `(library, first, last, module)`";
                Failure::new(format!("py_hooks/registry.py: `{}` {what}", line.trim()))
            })
        })
        .collect::<Result<_>>()?;
    if rows.is_empty() {
        return Err(Failure::new("py_hooks/registry.py has no GENERATIONS"));
    }
    Ok(rows)
}

fn row(line: &str) -> Option<Generation> {
    let texts = line.trim().strip_prefix("(\"")?.strip_suffix("\"),")?;
    let texts: Vec<&str> = texts.split("\", \"").collect();
    let [library, first, last, _module] = texts[..] else {
        return None;
    };
    Some(Generation {
        library: library.to_owned(),
        first: first.to_owned(),
        last: last.to_owned(),
    })
}

impl Generation {
    /// Whether a stack pins the library to a version of this generation. A part of a distribution
    /// (`tensorflow.keras`) is tested if the stack names it as the Keras of its scripts.
    fn is_tested_by(&self, stack: &Stack) -> bool {
        let (distribution, is_part) = match self.library.split_once('.') {
            Some((distribution, _)) => (distribution, true),
            None => (self.library.as_str(), false),
        };
        if is_part && stack.environment.get("KERAS_PACKAGE") != Some(&self.library) {
            return false;
        }
        stack.requirements.iter().any(|requirement| {
            let Some((name, version)) = requirement.split_once("==") else {
                return false;
            };
            let version = numbers(version);
            name.trim_end_matches("-cpu") == distribution
                && numbers(&self.first) <= version
                && (self.last == OPEN || version <= numbers(&self.last))
        })
    }
}

fn numbers(version: &str) -> Vec<u64> {
    version
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Generation, generations, table};
    use crate::repository::Repository;

    #[test]
    fn the_page_has_the_table() {
        let repository = Repository::find();
        let page = repository
            .root()
            .join("docs/reference/supported-versions.md");
        let page = std::fs::read_to_string(page).expect("it is there");
        let table = table(&repository).expect("both files can be read");
        assert!(
            page.contains(&format!("\n\n{table}\n")),
            "docs/reference/supported-versions.md does not hold what `cargo dev supported` prints:\n{table}"
        );
    }

    #[test]
    fn rows_are_told_from_everything_else() {
        let text = "\"\"\"A row (\"keras\").\"\"\"\nGENERATIONS = (\n    (\"keras\", \"2.2.5\", \"on\", \"keras.v2\"),\n)\n";
        let row = Generation {
            library: "keras".to_owned(),
            first: "2.2.5".to_owned(),
            last: "on".to_owned(),
        };
        assert_eq!(generations(text).expect("it has one"), [row]);
        for text in [
            "GENERATIONS = ()",
            "GENERATIONS = (\n)",
            "GENERATIONS = (\n    ('keras', '2', 'on', 'keras.v2'),\n)",
        ] {
            assert!(generations(text).is_err(), "{text}");
        }
    }
}
