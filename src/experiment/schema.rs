//! The table of fields as a JSON Schema, for editors.

use serde_json::{Map, Value, json};

use crate::check::default_of;
use crate::fields::{Default, FIELDS, Field, HYPERPARAMETERS, Kind};

/// A JSON Schema (draft 2020-12) of configurations: `pedl doctor --schema` prints it.
#[must_use]
pub fn schema() -> Value {
    let mut schema = map(FIELDS, None);
    let about = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "experiment configuration of pedl",
        "$defs": {
            "hyperparameters": {
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/hyperparameter"},
            },
            "hyperparameter": {
                "if": {"type": "object"},
                "then": {
                    "if": {"required": ["type"]},
                    "then": tagged("type", HYPERPARAMETERS),
                    "else": {"$ref": "#/$defs/hyperparameters"},
                },
            },
        },
    });
    for (key, value) in about.as_object().into_iter().flatten() {
        schema[key] = value.clone();
    }
    schema
}

/// A map with known fields, and perhaps with a field whose value determines them.
fn map(fields: &[Field], tag: Option<(&str, &str)>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    if let Some((tag, value)) = tag {
        properties.insert(tag.to_owned(), json!({"const": value}));
        required.push(Value::from(tag));
    }
    for field in fields {
        let mut property = kind(&field.kind);
        property["description"] = Value::from(field.help);
        match field.default {
            Default::Required => required.push(Value::from(field.name)),
            Default::Nothing | Default::Is(_) => {
                // Null means the same as an absent field.
                property = json!({"anyOf": [property, {"type": "null"}]});
                property["description"] = Value::from(field.help);
                if let Some(default) = default_of(field) {
                    property["default"] = default;
                }
            }
        }
        properties.insert(field.name.to_owned(), property);
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn tagged(tag: &str, variants: &[(&str, &[Field])]) -> Value {
    let variants: Vec<_> = variants
        .iter()
        .map(|(value, fields)| match *value {
            "" => map(fields, None),
            value => map(fields, Some((tag, value))),
        })
        .collect();
    json!({"oneOf": variants})
}

fn kind(of: &Kind) -> Value {
    match of {
        Kind::Any => json!({}),
        Kind::AnyMap => json!({"type": "object"}),
        Kind::Text => json!({"type": "string", "minLength": 1}),
        Kind::Argument => json!({"type": ["string", "number"]}),
        Kind::AbsolutePath => json!({"type": "string", "pattern": "^/"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Integer(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::PositiveNumber => json!({"type": "number", "exclusiveMinimum": 0}),
        Kind::Number(min, max) => json!({"type": "number", "minimum": min, "maximum": max}),
        Kind::Word(words) => json!({"enum": words}),
        Kind::List(item) => json!({"type": "array", "items": kind(item)}),
        Kind::Map(fields) => map(fields, None),
        Kind::Tagged(tag, variants) => tagged(tag, variants),
        Kind::MapOr(one, other) => json!({"anyOf": [kind(one), kind(other)]}),
        Kind::Hyperparameters => json!({"$ref": "#/$defs/hyperparameters"}),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::schema;

    #[test]
    fn the_schema_takes_and_refuses_what_the_reader_does() {
        let validator = jsonschema::draft202012::new(&schema()).expect("a schema");
        let cases = [
            (
                json!({"searcher": {"name": "single", "metric": "loss", "max_steps": 1}}),
                true,
            ),
            (
                json!({"searcher": {"name": "single", "metric": "loss"}}),
                false,
            ),
            (
                json!({"searcher": {"name": "single", "metric": "loss", "max_steps": 0}}),
                false,
            ),
            (
                json!({"searcher": {"name": "grid", "metric": "loss", "max_steps": 1, "max_trials": 2}}),
                false,
            ),
            (json!({}), false),
            (
                json!({
                    "searcher": {"name": "single", "metric": "loss", "max_steps": 1},
                    "checkpoint_storage": {"save_trial_best": 3},
                }),
                true,
            ),
            (
                json!({
                    "searcher": {"name": "single", "metric": "loss", "max_steps": 1},
                    "checkpoint_storage": {"save_trial_best": -1},
                }),
                false,
            ),
            (
                json!({
                    "searcher": {"name": "random", "metric": "loss", "max_steps": 1, "max_trials": 2},
                    "hyperparameters": {
                        "a": 1,
                        "b": [1, 2],
                        "c": {"type": "int", "minval": 1, "maxval": 2},
                        "d": {"e": {"type": "categorical", "vals": [1]}},
                    },
                    "entrypoint": {"script": "a.py"},
                    "min_validation_period": null,
                }),
                true,
            ),
            (
                json!({
                    "searcher": {"name": "random", "metric": "loss", "max_steps": 1, "max_trials": 2},
                    "hyperparameters": {"c": {"type": "int", "minval": 1.5, "maxval": 2}},
                }),
                false,
            ),
            (
                json!({
                    "searcher": {"name": "random", "metric": "loss", "max_steps": 1, "max_trials": 2},
                    "hyperparameters": {"c": {"d": {"type": "integer"}}},
                }),
                false,
            ),
        ];
        for (configuration, expected) in cases {
            let text = configuration.to_string();
            assert_eq!(
                validator.is_valid(&configuration),
                expected,
                "schema: {text}"
            );
            let read = crate::Experiment::read("case", &text);
            assert_eq!(read.is_ok(), expected, "reader: {text}: {read:?}");
        }
    }
}
