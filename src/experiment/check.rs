//! Compares a tree with the table of fields, and fills in defaults.

use serde_json::{Map, Number, Value};

use crate::fields::{Default, Field, HYPERPARAMETERS, Kind, Means};
use crate::problem::{Problem, Source, is_secret};
use crate::yaml::{Content, Entry, Node};

/// How many characters may be wrong in a name for a suggestion.
const MAX_SLIPS: usize = 3;

/// The result of a check.
pub(crate) struct Checked {
    /// The configuration with all defaults.
    pub(crate) value: Value,
    /// Fields that are set, but have no meaning on one machine, as dotted paths.
    pub(crate) unused: Vec<String>,
}

/// Checks a whole configuration.
pub(crate) fn check(
    source: Source<'_>,
    root: &Node,
    fields: &'static [Field],
) -> Result<Checked, Problem> {
    let mut check = Check {
        source,
        unused: Vec::new(),
    };
    let value = check.map(root, fields, &Path::root(), &[])?;
    Ok(Checked {
        value,
        unused: check.unused,
    })
}

struct Check<'a> {
    source: Source<'a>,
    unused: Vec<String>,
}

/// The place of a value in a configuration: `searcher.max_steps`.
struct Path(String);

impl Path {
    fn root() -> Self {
        Self(String::new())
    }

    fn join(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(name.to_owned())
        } else {
            Self(format!("{}.{name}", self.0))
        }
    }

    fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// For messages.
    fn name(&self) -> &str {
        if self.0.is_empty() {
            "the configuration"
        } else {
            &self.0
        }
    }

    fn is_secret(&self) -> bool {
        self.0.split(['.', '[']).any(is_secret)
    }
}

impl Check<'_> {
    fn node(&mut self, node: &Node, kind: &'static Kind, path: &Path) -> Result<Value, Problem> {
        let content = &node.content;
        match kind {
            Kind::Any => Ok(as_is(node)),
            Kind::AnyMap if matches!(content, Content::Map(_)) => Ok(as_is(node)),
            Kind::Text | Kind::AbsolutePath | Kind::Word(_) => self.text(node, kind, path),
            Kind::Argument => match content {
                Content::Text(text) => Ok(Value::from(text.as_str())),
                Content::Integer(_) | Content::Number(_) => {
                    Ok(Value::from(as_is(node).to_string()))
                }
                _ => Err(self.wrong(node, kind, path)),
            },
            Kind::Flag => match content {
                Content::Flag(flag) => Ok(Value::Bool(*flag)),
                _ => Err(self.wrong(node, kind, path)),
            },
            Kind::Integer(min, max) => match whole(content) {
                Some(number) if (*min..=*max).contains(&number) => Ok(number.into()),
                _ => Err(self.wrong(node, kind, path)),
            },
            Kind::Number(min, max) => match number(content) {
                Some(number) if (*min..=*max).contains(&number) => Ok(json_number(number)),
                _ => Err(self.wrong(node, kind, path)),
            },
            Kind::PositiveNumber => match number(content) {
                Some(number) if number > 0.0 => Ok(json_number(number)),
                _ => Err(self.wrong(node, kind, path)),
            },
            Kind::List(item) => match content {
                Content::List(items) => items
                    .iter()
                    .enumerate()
                    .map(|(index, node)| self.node(node, item, &path.item(index)))
                    .collect(),
                _ => Err(self.wrong(node, kind, path)),
            },
            Kind::Map(fields) => self.map(node, fields, path, &[]),
            Kind::Tagged(tag, variants) => self.tagged(node, tag, variants, path),
            Kind::MapOr(map, other) => match content {
                Content::Map(_) => self.node(node, map, path),
                _ => self.node(node, other, path),
            },
            Kind::Hyperparameters => self.hyperparameters(node, path),
            Kind::AnyMap => Err(self.wrong(node, kind, path)),
        }
    }

    fn text(&self, node: &Node, kind: &'static Kind, path: &Path) -> Result<Value, Problem> {
        let Content::Text(text) = &node.content else {
            return Err(self.wrong(node, kind, path));
        };
        let fits = match kind {
            Kind::AbsolutePath => text.starts_with('/'),
            Kind::Word(words) => words.contains(&text.as_str()),
            _ => !text.is_empty(),
        };
        if fits {
            return Ok(Value::String(text.clone()));
        }
        let problem = self.wrong(node, kind, path);
        Err(match kind {
            Kind::Word(words) => suggest(problem, text, words.iter().copied()),
            _ => problem,
        })
    }

    /// A map with known fields. `also` are names that were checked already.
    fn map(
        &mut self,
        node: &Node,
        fields: &'static [Field],
        path: &Path,
        also: &[&str],
    ) -> Result<Value, Problem> {
        let entries = match &node.content {
            Content::Map(entries) => entries.as_slice(),
            Content::Null => &[],
            _ => return Err(self.wrong(node, &Kind::AnyMap, path)),
        };
        let mut complete = Map::new();
        for entry in entries {
            if also.contains(&entry.key.as_str()) {
                continue;
            }
            let Some(field) = fields.iter().find(|field| field.name == entry.key) else {
                return Err(self.unknown(entry, fields, path, also));
            };
            if let Some(value) = self.field(entry, field, &path.join(field.name))? {
                complete.insert(entry.key.clone(), value);
            }
        }
        for field in fields {
            if complete.contains_key(field.name) {
                continue;
            }
            let path = path.join(field.name);
            match field.default {
                Default::Required => {
                    let what = format!("`{}` is missing", path.name());
                    let problem = self.source.problem(node.at, what);
                    return Err(problem.expected(format_args!(
                        "{}: {}",
                        describe(&field.kind),
                        field.help
                    )));
                }
                Default::Nothing => {}
                Default::Is(_) => {
                    complete.insert(field.name.to_owned(), self.default(field, &path)?);
                }
            }
        }
        Ok(Value::Object(complete))
    }

    /// The default of a field, with the defaults of its members.
    fn default(&mut self, field: &'static Field, path: &Path) -> Result<Value, Problem> {
        let Some(value) = default_of(field) else {
            return Ok(Value::Null);
        };
        match (&field.kind, &value) {
            (Kind::Map(fields) | Kind::Tagged(_, [("", fields), ..]), Value::Object(_)) => {
                let nothing = Node {
                    at: crate::yaml::START,
                    content: Content::Null,
                };
                self.map(&nothing, fields, path, &[])
            }
            _ => Ok(value),
        }
    }

    /// The value of a field that is present; `None` if it is null and may be absent.
    fn field(
        &mut self,
        entry: &Entry,
        field: &'static Field,
        path: &Path,
    ) -> Result<Option<Value>, Problem> {
        let is_nothing = matches!(entry.value.content, Content::Null);
        if is_nothing && !matches!(field.default, Default::Required) {
            return Ok(None);
        }
        let value = self.node(&entry.value, &field.kind, path)?;
        let is_default = default_of(field).as_ref() == Some(&value);
        match field.means {
            Means::Refused if !is_default => return Err(self.refused(entry, field, path)),
            Means::RefusedWith(member) if value.get(member).is_some() => {
                return Err(self.refused_with(entry, member, path));
            }
            Means::Scheduling if !is_default => self.unused.push(path.0.clone()),
            _ => {}
        }
        Ok(Some(value))
    }

    fn tagged(
        &mut self,
        node: &Node,
        tag: &'static str,
        variants: &'static [(&'static str, &'static [Field])],
        path: &Path,
    ) -> Result<Value, Problem> {
        let Content::Map(entries) = &node.content else {
            return Err(self.wrong(node, &Kind::AnyMap, path));
        };
        let names = || {
            let names = variants.iter().map(|(name, _)| *name);
            names.filter(|name| !name.is_empty())
        };
        let path_of_tag = path.join(tag);
        let Some(entry) = entries.iter().find(|entry| entry.key == tag) else {
            if let Some((_, fields)) = variants.iter().find(|(name, _)| name.is_empty()) {
                return self.map(node, fields, path, &[]);
            }
            let problem = self
                .source
                .problem(node.at, format!("`{}` is missing", path_of_tag.name()));
            return Err(problem.expected(one_of(names())));
        };
        let found = match &entry.value.content {
            Content::Text(text) if !text.is_empty() => {
                variants.iter().find(|(name, _)| name == text)
            }
            _ => None,
        };
        let Some((name, fields)) = found else {
            let problem = self
                .received(&entry.value, &path_of_tag)
                .expected(one_of(names()));
            return Err(match &entry.value.content {
                Content::Text(text) => suggest(problem, text, names()),
                _ => problem,
            });
        };
        let mut value = self.map(node, fields, path, &[tag])?;
        value[tag] = Value::from(*name);
        Ok(value)
    }

    /// Hyperparameters by name, as in the file: constants stay constants.
    fn hyperparameters(&mut self, node: &Node, path: &Path) -> Result<Value, Problem> {
        let Content::Map(entries) = &node.content else {
            return Err(self.wrong(node, &Kind::Hyperparameters, path));
        };
        let mut complete = Map::new();
        for entry in entries {
            let path = path.join(&entry.key);
            let value = match &entry.value.content {
                Content::Map(items) if items.iter().any(|item| item.key == "type") => {
                    let value = self.tagged(&entry.value, "type", HYPERPARAMETERS, &path)?;
                    self.in_order(&entry.value, &value, &path)?;
                    value
                }
                Content::Map(items) => {
                    self.no_misspelt_type(&entry.value, items, &path)?;
                    self.hyperparameters(&entry.value, &path)?
                }
                _ => as_is(&entry.value),
            };
            complete.insert(entry.key.clone(), value);
        }
        Ok(Value::Object(complete))
    }

    /// A map without `type` holds hyperparameters, whose names must differ from the fields of a
    /// hyperparameter.
    fn no_misspelt_type(&self, node: &Node, items: &[Entry], path: &Path) -> Result<(), Problem> {
        let is_field = |key: &str| {
            let mut kinds = HYPERPARAMETERS.iter();
            kinds.any(|(_, fields)| fields.iter().any(|field| field.name == key))
        };
        match items.iter().find(|item| is_field(&item.key)) {
            None => Ok(()),
            Some(item) => {
                let what = format!("`{}` has `{}` and no `type`", path.name(), item.key);
                let kinds = one_of(HYPERPARAMETERS.iter().map(|(name, _)| *name));
                Err(self
                    .source
                    .problem(node.at, what)
                    .expected(format_args!("a `type`: {kinds}")))
            }
        }
    }

    /// Checks that the ranges of single fields cannot express.
    fn in_order(&self, node: &Node, value: &Value, path: &Path) -> Result<(), Problem> {
        let (min, max) = (value["minval"].as_f64(), value["maxval"].as_f64());
        if let (Some(min), Some(max)) = (min, max)
            && min >= max
        {
            let what = format!(
                "`{}` has a `minval` of {min} and a `maxval` of {max}",
                path.name()
            );
            return Err(self
                .source
                .problem(node.at, what)
                .expected("`minval` below `maxval`"));
        }
        let base = value["base"].as_f64();
        let ends = [min, max].map(|end| match (base, end) {
            (Some(base), Some(end)) => base.powf(end),
            (_, end) => end.unwrap_or(0.0),
        });
        if !(ends[1] - ends[0]).is_finite() {
            let what = format!("`{}` has a range too wide for 64 bits", path.name());
            return Err(self
                .source
                .problem(node.at, what)
                .expected("finite values at both ends"));
        }
        if value["vals"].as_array().is_some_and(Vec::is_empty) {
            let what = format!("`{}` has no values", path.name());
            return Err(self
                .source
                .problem(node.at, what)
                .expected("at least one in `vals`"));
        }
        Ok(())
    }

    // -- problems ------------------------------------------------------------------------------

    /// Says what was received, but never the value of a secret.
    fn received(&self, node: &Node, path: &Path) -> Problem {
        let name = path.name();
        let what = match &node.content {
            content if path.is_secret() => format!("`{name}` is {}", content.kind()),
            Content::Text(text) if text.parse().is_ok_and(f64::is_finite) => {
                // Without the quotes it would be a number, and the line alone does not show it.
                let problem = self
                    .source
                    .problem(node.at, format!("`{name}` is the text `{text}`"));
                return problem.hint("leave the quotes out where a number is meant");
            }
            Content::Text(text) => format!("`{name}` is `{text}`"),
            Content::Flag(flag) => format!("`{name}` is `{flag}`"),
            Content::Integer(number) => format!("`{name}` is `{number}`"),
            Content::Number(number) => format!("`{name}` is `{number}`"),
            content => format!("`{name}` is {}", content.kind()),
        };
        self.source.problem(node.at, what)
    }

    fn wrong(&self, node: &Node, kind: &Kind, path: &Path) -> Problem {
        self.received(node, path).expected(describe(kind))
    }

    fn unknown(
        &self,
        entry: &Entry,
        fields: &'static [Field],
        path: &Path,
        also: &[&str],
    ) -> Problem {
        let names = also
            .iter()
            .copied()
            .chain(fields.iter().map(|field| field.name));
        let what = format!("`{}` is not a field of {}", entry.key, quoted(path));
        let problem = self.source.problem(entry.at, what).expected(one_of(names));
        suggest(problem, &entry.key, fields.iter().map(|field| field.name))
    }

    fn refused_with(&self, entry: &Entry, member: &str, path: &Path) -> Problem {
        let what = format!(
            "`{}` is not something this version carries out with `{member}`",
            path.name()
        );
        let problem = self.source.problem(entry.at, what);
        problem.expected(format_args!("the field left out, or without `{member}`"))
    }

    fn refused(&self, entry: &Entry, field: &Field, path: &Path) -> Problem {
        let what = format!(
            "`{}` is not something this version carries out",
            path.name()
        );
        let problem = self.source.problem(entry.at, what);
        match default_of(field) {
            Some(value) => problem.expected(format_args!("`{value}`, or the field left out")),
            None => problem.expected("the field left out"),
        }
    }
}

fn quoted(path: &Path) -> String {
    if path.0.is_empty() {
        path.name().to_owned()
    } else {
        format!("`{}`", path.0)
    }
}

/// The default of a field as a value.
pub(crate) fn default_of(field: &Field) -> Option<Value> {
    match field.default {
        Default::Is(text) => Some(serde_json::from_str(text).expect("the table holds JSON")),
        Default::Required | Default::Nothing => None,
    }
}

/// The values that a kind of field accepts, as text.
pub(crate) fn describe(kind: &Kind) -> String {
    match kind {
        Kind::Any => "a value".to_owned(),
        Kind::AnyMap | Kind::Map(_) | Kind::Tagged(..) => "a map".to_owned(),
        Kind::Text => "text, not empty".to_owned(),
        Kind::Argument => "text or a number".to_owned(),
        Kind::AbsolutePath => "an absolute path".to_owned(),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Integer(min, max) => format!(
            "an integer{}",
            range(min, max, *min == i64::MIN, *max == i64::MAX)
        ),
        Kind::PositiveNumber => "a number above 0".to_owned(),
        Kind::Number(min, max) => format!(
            "a number{}",
            range(min, max, *min <= f64::MIN, *max >= f64::MAX)
        ),
        Kind::Word(words) => one_of(words.iter().copied()),
        Kind::List(item) => format!("a list, each item {}", describe(item)),
        Kind::MapOr(map, other) => format!("{}, or {}", describe(other), describe(map)),
        Kind::Hyperparameters => "a map of hyperparameters by name".to_owned(),
    }
}

fn range<T: std::fmt::Display>(
    min: &T,
    max: &T,
    is_open_below: bool,
    is_open_above: bool,
) -> String {
    match (is_open_below, is_open_above) {
        (true, true) => String::new(),
        (false, true) => format!(", at least {min}"),
        (true, false) => format!(", at most {max}"),
        (false, false) => format!(" from {min} to {max}"),
    }
}

fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Adds the name that was probably intended.
fn suggest<'a>(problem: Problem, found: &str, names: impl Iterator<Item = &'a str>) -> Problem {
    let nearest = names
        .map(|name| (strsim::osa_distance(found, name), name))
        .min()
        .filter(|(slips, name)| *slips <= MAX_SLIPS && *slips < name.len());
    match nearest {
        Some((_, name)) => problem.hint(format!("write `{name}`")),
        None => problem,
    }
}

/// The value as an integer; `4.0` counts as one.
fn whole(content: &Content) -> Option<i64> {
    match content {
        Content::Integer(number) => Some(*number),
        Content::Number(number) if number.fract() == 0.0 && number.abs() < 2f64.powi(53) => {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "it is whole, and small enough"
            )]
            let number = *number as i64;
            Some(number)
        }
        _ => None,
    }
}

fn number(content: &Content) -> Option<f64> {
    match content {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a number was asked for, so it is one"
        )]
        Content::Integer(number) => Some(*number as f64),
        Content::Number(number) => Some(*number),
        _ => None,
    }
}

fn json_number(number: f64) -> Value {
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

/// A tree as JSON, unchanged.
fn as_is(node: &Node) -> Value {
    match &node.content {
        Content::Null => Value::Null,
        Content::Flag(flag) => Value::Bool(*flag),
        Content::Integer(number) => Value::from(*number),
        Content::Number(number) => json_number(*number),
        Content::Text(text) => Value::String(text.clone()),
        Content::List(items) => items.iter().map(as_is).collect(),
        Content::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.clone(), as_is(&entry.value)))
            .collect(),
    }
}
