//! The table of fields as a page of the documentation, in Markdown.

use std::fmt::Write as _;

use crate::check::describe;
use crate::fields::{Default, FIELDS, Field, HYPERPARAMETERS, Kind, Means};

/// The fields of a configuration, with types, ranges, defaults and what pedl-run does with them.
///
/// `pedl reference configuration` prints it.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(
        "A configuration is a YAML 1.2 file: `pedl-run --config FILE SCRIPT`. Names, types and defaults are those of PEDL 0.11.\n\
         An unknown field is an error that names the line and the nearest known field. `pedl doctor --schema` prints the\n\
         same table as a JSON Schema.\n\n\
         - **ignored**: a scheduler of a cluster uses the field, and pedl-run does not.\n\
         - **refused**: any value except the default stops the run, because pedl-run does not implement the field.\n\n\
         ## Fields\n\n",
    );
    table(&mut text, &rows("", FIELDS));
    text.push_str("\n## `checkpoint_storage` by `type`\n\nWithout `type`, only the fields that are common to all types. Any `type` is refused.\n\n");
    tagged(&mut text, FIELDS, "checkpoint_storage");
    text.push_str("\n## `searcher` by `name`\n\npedl-run runs `single`, and one trial at a time of `random` and `grid` (`--trial N`). It refuses the others.\n\n");
    tagged(&mut text, FIELDS, "searcher");
    text.push_str(
        "\n## Hyperparameters by `type`\n\nA map without `type` holds hyperparameters itself. Any other value is a constant.\n\n",
    );
    variants(&mut text, HYPERPARAMETERS);
    text
}

/// One line of a table: the full name, and the field.
type Row = (String, &'static Field);

/// Fields, each followed by those below it.
fn rows(prefix: &str, fields: &'static [Field]) -> Vec<Row> {
    let mut found = Vec::new();
    for field in fields {
        let name = format!("{prefix}{}", field.name);
        found.push((name.clone(), field));
        if let Some(below) = below(&field.kind) {
            let is_list = matches!(field.kind, Kind::List(_));
            let dot = if is_list { "[]." } else { "." };
            found.extend(rows(&format!("{name}{dot}"), below));
        }
    }
    found
}

/// The fields of a map, or of the maps in a list.
fn below(kind: &Kind) -> Option<&'static [Field]> {
    match kind {
        Kind::Map(fields) => Some(fields),
        Kind::List(item) | Kind::MapOr(item, _) => below(item),
        _ => None,
    }
}

fn table(text: &mut String, rows: &[Row]) {
    text.push_str("| field | type | default | meaning |\n|---|---|---|---|\n");
    for (name, field) in rows {
        let means = match field.means {
            Means::Itself | Means::RefusedWith(_) => "",
            Means::Scheduling => " (ignored)",
            Means::Refused => " (refused)",
        };
        let default = match field.default {
            Default::Required => "required".to_owned(),
            Default::Nothing => "–".to_owned(),
            Default::Is(value) => format!("`{value}`"),
        };
        let _ = writeln!(
            text,
            "| `{name}` | {} | {default} | {}{means} |",
            describe(&field.kind),
            field.help
        );
    }
}

/// The tables of a field whose other members depend on one of them.
fn tagged(text: &mut String, fields: &'static [Field], name: &str) {
    for field in fields {
        if let (true, Kind::Tagged(_, all)) = (field.name == name, &field.kind) {
            variants(text, all);
        }
    }
}

fn variants(text: &mut String, all: &'static [(&'static str, &'static [Field])]) {
    for (number, (value, fields)) in all.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        let title = if value.is_empty() {
            "without a type"
        } else {
            value
        };
        let _ = writeln!(text, "### {title}\n");
        table(text, &rows("", fields));
    }
}
