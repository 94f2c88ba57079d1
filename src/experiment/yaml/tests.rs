use serde_json::{Value, json};

use super::{Content, Node, read};
use crate::problem::Source;

fn value(text: &str) -> Value {
    of(&read(Source {
        name: "t.yaml",
        text,
    })
    .expect("YAML"))
}

fn of(node: &Node) -> Value {
    match &node.content {
        Content::Null => Value::Null,
        Content::Flag(flag) => json!(flag),
        Content::Integer(number) => json!(number),
        Content::Number(number) => json!(number),
        Content::Text(text) => json!(text),
        Content::List(items) => items.iter().map(of).collect(),
        Content::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.clone(), of(&entry.value)))
            .collect(),
    }
}

fn problem(text: &str) -> String {
    read(Source {
        name: "t.yaml",
        text,
    })
    .expect_err("no YAML of ours")
    .to_string()
}

/// Configurations are YAML 1.2; PyYAML, which follows 1.1, gives `'1e-4'`, True
/// and 8.
#[test]
fn plain_scalars_are_those_of_yaml_1_2() {
    let cases = [
        ("1e-4", json!(1e-4)),
        ("yes", json!("yes")),
        ("on", json!("on")),
        ("010", json!(10)),
        ("1e-6", json!(1e-6)),
        (".5", json!(0.5)),
        ("1.", json!(1.0)),
        ("-1.5E+3", json!(-1500.0)),
        ("+7", json!(7)),
        ("0x1F", json!(31)),
        ("0o17", json!(15)),
        ("True", json!(true)),
        ("None", json!("None")),
        ("~", Value::Null),
        ("1_000", json!("1_000")),
        ("1:30", json!("1:30")),
        ("2020-01-01", json!("2020-01-01")),
        (".", json!(".")),
        ("e3", json!("e3")),
        ("1e", json!("1e")),
        ("'10'", json!("10")),
        ("\"yes\"", json!("yes")),
        ("!!str 12", json!("12")),
    ];
    for (text, expected) in cases {
        assert_eq!(value(&format!("a: {text}\n"))["a"], expected, "{text}");
    }
}

#[test]
fn maps_lists_aliases_and_merges() {
    let text = "base: &base {a: 1, b: [x, y]}\nmore:\n  <<: *base\n  a: 2\nagain: *base\n";
    let expected = json!({
        "base": {"a": 1, "b": ["x", "y"]},
        "more": {"a": 2, "b": ["x", "y"]},
        "again": {"a": 1, "b": ["x", "y"]},
    });
    assert_eq!(value(text), expected);
    assert_eq!(value(""), Value::Null);
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let first = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    let text = (1..12).fold(first, |text, level| {
        let alias = format!("*a{},", level - 1).repeat(9);
        format!("{text}a{level}: &a{level} [{alias}]\n")
    });
    assert!(
        problem(&text).starts_with("more than 100000 values"),
        "{}",
        problem(&text)
    );
    let long = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(100_000),
        "*a,".repeat(2_000)
    );
    assert!(problem(&long).starts_with("more than 100000 values"));
    let chained = (1..20).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
        format!("{text}a{level}: &a{level} [[[[[[*a{}]]]]]]\n", level - 1)
    });
    assert!(problem(&chained).starts_with("more than 100000 values, or 64 levels"));
    assert_eq!(
        value("a: {0: 1.5, true: 2}\n")["a"],
        json!({"0": 1.5, "true": 2})
    );
    let deep = "[".repeat(100_000);
    assert!(problem(&deep).contains("not YAML"), "{}", problem(&deep));
}

#[test]
fn what_is_no_configuration_is_told_with_its_place() {
    let cases = [
        (
            "a: 1\na: 2\n",
            "`a` is there twice\n  in t.yaml, line 2, column 1:",
        ),
        ("a: [1, 2\n", "`t.yaml` is not YAML"),
        (
            "a: .inf\n",
            "a value that cannot be kept as it is\n  in t.yaml, line 1, column 4:",
        ),
        ("a: 99999999999999999999\n", "a value that cannot be kept"),
        ("~: a\n", "a key that is nothing"),
        ("[1]: a\n", "a key that is a list or a map"),
        ("a: !!python/object:os.system x\n", "the tag `"),
        ("a: 1\n---\nb: 1\n", "a second document begins"),
        ("a: &a [*a]\n", "an alias of what contains it"),
        ("a: {<<: 3}\n", "`<<` merges maps only"),
        ("a: b: c\n", "`t.yaml` is not YAML"),
    ];
    for (text, expected) in cases {
        let found = problem(text);
        assert!(found.starts_with(expected), "{text:?}: {found}");
    }
}
