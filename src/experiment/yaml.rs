//! Reads YAML 1.2 into a tree in which every key and value has its position.
//!
//! Plain scalars have the types of the core schema of YAML 1.2.2 (10.3.2): `1e-4` is a number,
//! `010` is ten, `yes` and `on` are text. (PyYAML follows 1.1, in which they are text, eight and
//! true.) Anchors, aliases and merge keys (`<<`) work; their expansion is limited, so that no file
//! can fill the memory.

use std::collections::HashMap;

use granit_parser::{Event, Marker, Options, Parser, ScalarStyle, ScanError, Span, Tag};

use crate::problem::{Position, Problem, Source};

/// Bytes of the largest file that is read: a thousand times the largest configuration seen.
const MAX_BYTES: usize = 1 << 20;
/// Keys and values of the largest tree, aliases expanded; long texts count as several.
const MAX_NODES: usize = 100_000;
/// Bytes of text that count as one more value.
const BYTES_OF_NODE: usize = 64;
/// How deep lists and maps may be nested; also a limit to recursion.
const MAX_DEPTH: usize = 64;

/// The beginning of a file.
pub(crate) const START: Position = Position {
    line: 1,
    column: 1,
    width: 1,
};

/// A value and its position.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Null,
    Flag(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One entry of a map. Keys are text; a number is spelled as in JSON.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: Position,
    pub(crate) value: Node,
}

impl Content {
    /// The type of the content, as text.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Flag(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// Reads the single document of a file.
pub(crate) fn read(source: Source<'_>) -> Result<Node, Problem> {
    if source.text.len() > MAX_BYTES {
        let bytes = source.text.len();
        return Err(Problem {
            what: format!("`{}` is too large to be a configuration", source.name),
            details: vec![format!(
                "found: {bytes} bytes; expected: at most {MAX_BYTES}"
            )],
            hint: None,
        });
    }
    let mut options = Options::default();
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let parser = Parser::new_from_str_with_options(source.text, options);
    let mut builder = Builder {
        source,
        anchors: HashMap::new(),
        nodes: 0,
        open: Vec::new(),
        root: None,
    };
    for event in parser {
        let (event, span) = event.map_err(|error| not_yaml(source, &error))?;
        builder.event(event, span)?;
    }
    Ok(builder.root.unwrap_or(Node {
        at: START,
        content: Content::Null,
    }))
}

fn not_yaml(source: Source<'_>, error: &ScanError) -> Problem {
    source.problem(
        position(*error.marker(), None),
        format!("`{}` is not YAML: {}", source.name, error.info()),
    )
}

/// A position; the width is that of a span on one line.
fn position(start: Marker, end: Option<Marker>) -> Position {
    let width = match end {
        Some(end) if end.line() == start.line() => end.col().saturating_sub(start.col()),
        _ => 1,
    };
    Position {
        line: start.line().max(1),
        column: start.col() + 1,
        width: width.max(1),
    }
}

/// A list or a map that is not complete yet.
struct Open {
    at: Position,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        /// The key whose value comes next.
        key: Option<(String, Position)>,
        /// Maps of `<<`, whose entries are added at the end.
        merged: Vec<Node>,
    },
}

struct Builder<'a> {
    source: Source<'a>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    open: Vec<Open>,
    root: Option<Node>,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let at = position(span.start, Some(span.end));
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let content = self.scalar(at, &text, style, tag.as_deref())?;
                self.complete(Node { at, content }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin(at, anchor, tag.as_deref(), Items::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                let items = Items::Map {
                    entries: Vec::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.begin(at, anchor, tag.as_deref(), items)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    let size = size(&node.content);
                    let is_too_deep = self.open.len() + depth(&node.content) > MAX_DEPTH;
                    let content = node.content.clone();
                    self.count(if is_too_deep { MAX_NODES } else { size }, at)?;
                    self.complete(Node { at, content }, 0)
                }
                None => Err(self.source.problem(at, "an alias of what contains it")),
            },
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(self.source.problem(at, "a second document begins"))
            }
            _ => Ok(()),
        }
    }

    fn begin(
        &mut self,
        at: Position,
        anchor: usize,
        tag: Option<&Tag>,
        items: Items,
    ) -> Result<(), Problem> {
        if let Some(tag) = tag {
            return Err(self.tagged(at, tag));
        }
        if let Some(Open {
            items: Items::Map { key: None, .. },
            ..
        }) = self.open.last()
        {
            return Err(self.source.problem(at, "a key that is a list or a map"));
        }
        let at = Position { width: 1, ..at };
        self.open.push(Open { at, anchor, items });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Problem> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let content = match open.items {
            Items::List(items) => Content::List(items),
            Items::Map {
                entries, merged, ..
            } => Content::Map(merge(entries, merged)),
        };
        self.complete(
            Node {
                at: open.at,
                content,
            },
            open.anchor,
        )
    }

    /// Adds a node to the open list or map.
    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        let is_text = matches!(node.content, Content::Text(_));
        self.count(if is_text { size(&node.content) } else { 1 }, node.at)?;
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let source = self.source;
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.root = Some(node),
            Some(Items::List(items)) => items.push(node),
            Some(Items::Map {
                entries,
                key,
                merged,
            }) => match key.take() {
                None => {
                    let name = key_of(source, &node)?;
                    if entries.iter().any(|entry| entry.key == name) {
                        let what = format!("`{name}` is there twice");
                        return Err(source.problem(node.at, what));
                    }
                    *key = Some((name, node.at));
                }
                Some((name, at)) if name == "<<" => match node.content {
                    Content::Map(_) => merged.push(node),
                    Content::List(nodes)
                        if nodes
                            .iter()
                            .all(|node| matches!(node.content, Content::Map(_))) =>
                    {
                        merged.extend(nodes);
                    }
                    _ => return Err(source.problem(at, "`<<` merges maps only")),
                },
                Some((key, at)) => entries.push(Entry {
                    key,
                    at,
                    value: node,
                }),
            },
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, at: Position) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES || self.open.len() > MAX_DEPTH {
            let what = format!("more than {MAX_NODES} values, or {MAX_DEPTH} levels");
            let problem = self.source.problem(at, what);
            return Err(problem.expected(
                "a configuration; what an alias stands for counts each time it is used",
            ));
        }
        Ok(())
    }

    fn scalar(
        &self,
        at: Position,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
    ) -> Result<Content, Problem> {
        if let Some(tag) = tag {
            if tag.is_yaml_core_schema_tag("str") {
                return Ok(Content::Text(text.to_owned()));
            }
            return Err(self.tagged(at, tag));
        }
        if style != ScalarStyle::Plain {
            return Ok(Content::Text(text.to_owned()));
        }
        plain(text).map_err(|expected| {
            let what = "a value that cannot be kept as it is";
            self.source.problem(at, what).expected(expected)
        })
    }

    fn tagged(&self, at: Position, tag: &Tag) -> Problem {
        self.source
            .problem(at, format!("the tag `{tag}` has no meaning here"))
            .expected("plain YAML")
    }
}

/// The type of a plain scalar, by the core schema. Otherwise, what is expected instead.
fn plain(text: &str) -> Result<Content, &'static str> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Content::Null),
        "true" | "True" | "TRUE" => return Ok(Content::Flag(true)),
        "false" | "False" | "FALSE" => return Ok(Content::Flag(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" = unsigned {
        return Err("a finite number, or text in quotes");
    }
    let too_large = "an integer of at most 64 bits, or text in quotes";
    let digits = |digits: &str, radix| {
        let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
        is_number.then_some(())
    };
    for (prefix, radix) in [("0o", 8), ("0x", 16)] {
        if let Some(number) = text
            .strip_prefix(prefix)
            .filter(|text| digits(text, radix).is_some())
        {
            let number = i64::from_str_radix(number, radix).map_err(|_| too_large)?;
            return Ok(Content::Integer(number));
        }
    }
    if digits(unsigned, 10).is_some() {
        let number = text.parse().map_err(|_| too_large)?;
        return Ok(Content::Integer(number));
    }
    if is_float(unsigned) {
        let number: f64 = text.parse().map_err(|_| "a number")?;
        return if number.is_finite() {
            Ok(Content::Number(number))
        } else {
            Err("a number of at most 64 bits, or text in quotes")
        };
    }
    Ok(Content::Text(text.to_owned()))
}

/// `( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`
fn is_float(unsigned: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (
            mantissa,
            Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)),
        ),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    is_number(whole)
        && is_number(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && is_number(exponent))
}

fn key_of(source: Source<'_>, node: &Node) -> Result<String, Problem> {
    match &node.content {
        Content::Text(text) => Ok(text.clone()),
        Content::Integer(number) => Ok(number.to_string()),
        Content::Number(number) => Ok(number.to_string()),
        Content::Flag(flag) => Ok(flag.to_string()),
        other => {
            let what = format!("a key that is {}", other.kind());
            Err(source
                .problem(node.at, what)
                .expected("text, in quotes if need be"))
        }
    }
}

/// The entries of a map, and those entries of merged maps that it lacks.
fn merge(mut entries: Vec<Entry>, merged: Vec<Node>) -> Vec<Entry> {
    for node in merged {
        if let Content::Map(more) = node.content {
            for entry in more {
                if !entries.iter().any(|own| own.key == entry.key) {
                    entries.push(entry);
                }
            }
        }
    }
    entries
}

/// The number of values in a tree.
fn size(content: &Content) -> usize {
    match content {
        Content::List(items) => 1 + items.iter().map(|node| size(&node.content)).sum::<usize>(),
        Content::Map(entries) => {
            1 + entries
                .iter()
                .map(|entry| 1 + size(&entry.value.content))
                .sum::<usize>()
        }
        Content::Text(text) => 1 + text.len() / BYTES_OF_NODE,
        _ => 1,
    }
}

/// The number of levels of lists and maps in a tree.
fn depth(content: &Content) -> usize {
    match content {
        Content::List(items) => {
            1 + items
                .iter()
                .map(|node| depth(&node.content))
                .max()
                .unwrap_or(0)
        }
        Content::Map(entries) => {
            let depths = entries.iter().map(|entry| depth(&entry.value.content));
            1 + depths.max().unwrap_or(0)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
