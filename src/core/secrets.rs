//! Recognizes credentials, to leave them out of files and messages.
//!
//! A command line is part of the identity of a trial, and appears in `trial.json`, in
//! `events.jsonl` and in messages, which people share. The values of options and variables with the
//! name of a credential are left out of it (`--token X`, `--api-key=X`, `AWS_SECRET_ACCESS_KEY=X`),
//! and passwords in URLs, and tokens with a prefix by which their services recognize them. Leaving
//! out too much costs nothing, because commands are compared by a hash.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The text in place of a credential.
pub const REDACTED: &str = "[redacted]";

/// Last words of names of credentials. A word may also end with one: `PGPASSWORD`.
const LAST_WORDS: [&str; 11] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "credential",
    "credentials",
    "bearer",
    "authorization",
];

/// Words before a last word `key`.
const KEYS: [&str; 8] = [
    "api", "access", "secret", "private", "auth", "signing", "account", "license",
];

/// Prefixes of tokens, and the least number of characters after them. Source: the secret scanning
/// patterns that the services document (GitHub, GitLab, Hugging Face, `OpenAI`, Slack, AWS, Google,
/// npm, `PyPI`; `eyJ` is a JSON Web Token).
const PREFIXES: [(&str, usize); 20] = [
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("hf_", 20),
    ("sk-", 20),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("xoxa-", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("ya29.", 20),
    ("npm_", 30),
    ("pypi-", 30),
    ("dop_v1_", 30),
    ("eyJ", 30),
];

/// The words of a command without credentials.
pub fn redact_words(words: &[String]) -> Vec<String> {
    let mut redacted = Vec::with_capacity(words.len());
    let mut is_value = false;
    for word in words {
        let is_option = word.starts_with('-') && word.len() > 1;
        redacted.push(if is_value && !is_option {
            REDACTED.to_owned()
        } else {
            redact_word(word)
        });
        is_value = is_option && !word.contains('=') && is_named_like_one(word);
    }
    redacted
}

/// The whole value of `NAME=VALUE` may be a credential, including spaces.
fn redact_word(word: &str) -> String {
    match word.split_once('=') {
        Some((name, value)) if is_name(name) && is_named_like_one(name) && !value.is_empty() => {
            format!("{name}={REDACTED}")
        }
        _ => redact_text(word).into_owned(),
    }
}

/// Hyperparameters without credentials.
pub fn redact_values(values: &Map<String, Value>) -> Map<String, Value> {
    let redacted = values.iter().map(|(name, value)| {
        let redacted = match value {
            Value::String(text) if !text.is_empty() && is_named_like_one(name) => REDACTED.into(),
            Value::Object(members) => redact_values(members).into(),
            Value::Array(items) => items.iter().map(redact_item).collect::<Vec<_>>().into(),
            other => redact_item(other),
        };
        (name.clone(), redacted)
    });
    redacted.collect()
}

fn redact_item(value: &Value) -> Value {
    match value {
        Value::String(text) => redact_text(text).into_owned().into(),
        Value::Object(members) => redact_values(members).into(),
        other => other.clone(),
    }
}

/// A text without the credentials in it.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let end = span(text, start);
        if let Some(end) = end {
            found.push(end.clone());
            start = end.end.max(start + 1);
        } else {
            start += 1;
        }
    }
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::with_capacity(text.len());
    let mut done = 0;
    for span in found {
        redacted.push_str(&text[done..span.start]);
        redacted.push_str(REDACTED);
        done = span.end;
    }
    redacted.push_str(&text[done..]);
    Cow::Owned(redacted)
}

/// The credential that begins, or whose name ends, exactly at a place in a text.
fn span(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    let rest = text.get(at..)?;
    let before = text[..at].chars().next_back();
    if let Some(after) = rest.strip_prefix("://") {
        // `user:password@host`
        let authority = after.split(['/', '?', '#', ' ', '"', '\'']).next()?;
        let (user, _) = authority.rsplit_once('@')?;
        let (name, password) = user.split_once(':')?;
        let start = at + 3 + name.len() + 1;
        return (!password.is_empty()).then(|| start..start + password.len());
    }
    if rest.starts_with('=') {
        let name = text[..at].rsplit(|c: char| !is_of_name(c)).next()?;
        return is_named_like_one(name).then(|| value_at(text, at + 1))?;
    }
    if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    if let Some(after) = rest.strip_prefix("Bearer ") {
        let length = after.find(|c: char| !is_of_token(c)).unwrap_or(after.len());
        return (length >= 8).then(|| at + 7..at + 7 + length);
    }
    PREFIXES.iter().find_map(|(prefix, least)| {
        let after = rest.strip_prefix(prefix)?;
        let length = after.find(|c: char| !is_of_token(c)).unwrap_or(after.len());
        (length >= *least).then(|| at..at + prefix.len() + length)
    })
}

/// The value that begins at a place: the text in quotes, or up to the next separator of values.
fn value_at(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    let rest = &text[at..];
    let (at, length) = if let quote @ ('"' | '\'') = rest.chars().next()? {
        (at + 1, rest[1..].find(quote)?)
    } else {
        let ends = ['&', ';', ',', '"', '\'', '`', ')', '}', ']'];
        let end = rest.find(|c: char| c.is_whitespace() || ends.contains(&c));
        (at, end.unwrap_or(rest.len()))
    };
    let is_done = text[at..].starts_with(REDACTED.trim_end_matches(']'));
    (length > 0 && !is_done).then(|| at..at + length)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_of_name)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/')
}

/// Whether a name is that of a credential: `--api-key`, `HF_TOKEN`, `dbPassword`.
fn is_named_like_one(name: &str) -> bool {
    let words = words_of(name);
    let Some((last, before)) = words.split_last() else {
        return false;
    };
    if last == "key" {
        return before.last().is_some_and(|word| KEYS.contains(&&word[..]));
    }
    LAST_WORDS.iter().any(|word| last.ends_with(word))
}

fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let begins = !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && was_lower);
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(c.to_ascii_lowercase());
        }
        was_lower = c.is_ascii_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_left_out_of_a_command() {
        for (words, expected) in [
            ("train.py --token abc -v", "train.py --token [redacted] -v"),
            ("train.py --hf-token=abc=", "train.py --hf-token=[redacted]"),
            ("train.py --password", "train.py --password"),
            ("train.py --token --epochs 3", "train.py --token --epochs 3"),
            (
                "train.py AWS_SECRET_ACCESS_KEY=x/y+z",
                "train.py AWS_SECRET_ACCESS_KEY=[redacted]",
            ),
            (
                "t.py PGPASSWORD=x apiKey=y",
                "t.py PGPASSWORD=[redacted] apiKey=[redacted]",
            ),
            (
                "t.py https://me:pa:ss@host/x?api_key=q&n=1",
                "t.py https://me:[redacted]@host/x?api_key=[redacted]&n=1",
            ),
            (
                "t.py ghp_abcdefghijklmnopqrstuvwxyz0123456789",
                "t.py [redacted]",
            ),
            ("t.py url(AKIAABCDEFGHIJKLMNOP)", "t.py url([redacted])"),
        ] {
            let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(redact_words(&words).join(" "), expected);
        }
        let code = ["-c", "login(token='a b', key=1); f(\"Bearer abcdefghij\")"].map(str::to_owned);
        assert_eq!(
            redact_words(&code)[1],
            "login(token='[redacted]', key=1); f(\"Bearer [redacted]\")"
        );
    }

    #[test]
    fn what_is_none_stays() {
        for text in [
            "train.py --max-tokens 512 --token-dim=64 --tokenizer bpe --key 7 --sort-key=name --secret-santa no",
            "http://host:8080/path --lr=0.1 sk-learn hf_small monkey=1 https://user@host a@b:c",
            "token = given, password: none",
        ] {
            let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(redact_words(&words), words);
            assert!(matches!(redact_text(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn a_text_that_was_redacted_stays_as_it_is() {
        let once =
            redact_text("--token=abc https://a:b@c/ PASSWORD='x' sécret=ü token=ü").into_owned();
        assert_eq!(
            once,
            "--token=[redacted] https://a:[redacted]@c/ PASSWORD='[redacted]' sécret=ü token=[redacted]"
        );
        assert_eq!(redact_text(&once), once);
    }

    #[test]
    fn hyperparameters_are_looked_through() {
        let values = serde_json::json!({
            "api_key": "abc", "lr": 0.1, "pad_token": 3, "secret": "", "data": {"password": "x", "url": "s3://a:b@c"},
            "list": ["token=abc", {"token": "x"}, 1],
        });
        let Value::Object(values) = values else {
            panic!("an object")
        };
        let expected = serde_json::json!({
            "api_key": REDACTED, "lr": 0.1, "pad_token": 3, "secret": "",
            "data": {"password": REDACTED, "url": "s3://a:[redacted]@c"},
            "list": ["token=[redacted]", {"token": REDACTED}, 1],
        });
        assert_eq!(Value::Object(redact_values(&values)), expected);
    }
}
