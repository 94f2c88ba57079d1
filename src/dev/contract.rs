//! `cargo dev contract`: the rules of model definitions, and the tests that check each.
//!
//! The rules are in `tests/contract.toml`. A test checks the rules whose numbers its name begins
//! with: `test_c1_k4_a_trial_has_its_steps` checks C1 and K4. `docs/reference/rules.md` is the
//! table; `RENEW_DOCS=1 cargo test -p pedl-dev` writes it. `--mutate` breaks a rule in a copy of
//! the tree, to see its test fail (`mutations.rs`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Options;
use crate::failure::{At as _, Failure, Result};
use crate::mutations::{Mutants, Mutation, Verdict};
use crate::repository::Repository;

/// The folders with tests, below the repository.
const PLACES: [&str; 2] = ["tests", "src"];

/// A rule: the letter of its section, and its number in it.
type Rule = (char, u32);

#[derive(Deserialize)]
struct File {
    rules: BTreeMap<String, String>,
    mutations: BTreeMap<String, Mutation>,
}

/// Prints the table; returns whether each rule has a test.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["mutate"])?.no_rest()?;
    let repository = Repository::find();
    let wanted: Vec<_> = options.all("mutate").map(str::to_owned).collect();
    if !wanted.is_empty() {
        return mutate(repository, &wanted);
    }
    let rules = rules(&repository)?;
    let tests = tests(repository.root())?;
    let (table, missing) = table(&rules, &tests);
    print!("{table}");
    println!("\n{} rules, {} without a test", rules.len(), missing.len());
    if let Some(unknown) = tests
        .keys()
        .find(|rule| !rules.iter().any(|(known, _)| known == *rule))
    {
        let names = tests[unknown].join(", ");
        return Err(Failure::new(format!(
            "{names}: there is no rule {}{}",
            unknown.0, unknown.1
        )));
    }
    Ok(missing.is_empty())
}

/// Breaks rules; returns whether the tests of all failed.
fn mutate(repository: Repository, wanted: &[String]) -> Result<bool> {
    let file = read(&repository)?;
    let is_wanted = |name: &str| wanted.iter().any(|one| one == name || one == "all");
    let unlisted = wanted
        .iter()
        .chain(file.rules.keys().filter(|name| is_wanted(name)))
        .find(|one| *one != "all" && !file.mutations.contains_key(*one));
    if let Some(unlisted) = unlisted {
        return Err(Failure::usage(format!(
            "no mutation is listed for the rule `{unlisted}`"
        )));
    }
    let chosen: Vec<_> = file
        .mutations
        .iter()
        .map(|(name, mutation)| (name.as_str(), mutation))
        .filter(|(name, _)| is_wanted(name))
        .collect();
    let verdicts = Mutants::new(repository)?.run(&chosen)?;
    let count = |verdict| verdicts.values().filter(|one| **one == verdict).count();
    println!(
        "\n{} rules broken: {} killed, {} survived, {} not run",
        verdicts.len(),
        count(Verdict::Killed),
        count(Verdict::Survived),
        count(Verdict::NotRun)
    );
    Ok(count(Verdict::Killed) == chosen.len())
}

/// The rules in the order of the file's sections.
fn rules(repository: &Repository) -> Result<Vec<(Rule, String)>> {
    let file = read(repository)?;
    let mut rules = Vec::new();
    for (name, text) in file.rules {
        let rule = rule_of(&name.to_lowercase()).ok_or_else(|| {
            Failure::new(format!(
                "tests/contract.toml: `{name}` is no number of a rule"
            ))
        })?;
        rules.push((rule, text));
    }
    rules.sort_by_key(|(rule, _)| ("MPCKTED".find(rule.0), rule.1));
    Ok(rules)
}

fn read(repository: &Repository) -> Result<File> {
    let path = repository.root().join("tests/contract.toml");
    let text = fs::read_to_string(&path).at("read", &path)?;
    toml::from_str(&text).map_err(|error| Failure::new(format!("tests/contract.toml: {error}")))
}

/// `k12` as a rule.
fn rule_of(word: &str) -> Option<Rule> {
    let mut letters = word.chars();
    let letter = letters
        .next()
        .filter(|letter| "mpckted".contains(*letter))?;
    let number = letters.as_str().parse().ok()?;
    Some((letter.to_ascii_uppercase(), number))
}

/// The rules that a test's name begins with.
fn rules_in(name: &str) -> Vec<Rule> {
    let name = name.strip_prefix("test_").unwrap_or(name);
    name.split('_').map_while(rule_of).collect()
}

/// The tests of each rule.
fn tests(root: &Path) -> Result<BTreeMap<Rule, Vec<String>>> {
    let mut found: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut waiting: Vec<_> = PLACES.iter().map(|place| root.join(place)).collect();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).at("read", &path)?;
            waiting.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
            continue;
        }
        let ends = path.extension().and_then(|end| end.to_str());
        let word = match ends {
            Some("py") => "def ",
            Some("rs") => "fn ",
            _ => continue,
        };
        let text = fs::read_to_string(&path).at("read", &path)?;
        for name in text.lines().filter_map(|line| name_in(line, word)) {
            for rule in rules_in(name) {
                found.entry(rule).or_default().push(name.to_owned());
            }
        }
    }
    for names in found.values_mut() {
        names.sort_unstable();
    }
    Ok(found)
}

/// The name of a function that a line defines.
fn name_in<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let rest = line.trim_start().strip_prefix(word)?;
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    Some(&rest[..rest.find(|letter| !is_of_name(letter))?])
}

/// The table, and the rules that no test checks.
fn table(rules: &[(Rule, String)], tests: &BTreeMap<Rule, Vec<String>>) -> (String, Vec<Rule>) {
    let mut table = String::from("| rule | what holds | tests |\n|---|---|---|\n");
    let mut missing = Vec::new();
    for (rule, text) in rules {
        let names = tests.get(rule).map_or_else(
            || {
                missing.push(*rule);
                "none".to_owned()
            },
            |names| {
                names
                    .iter()
                    .map(|name| format!("`{name}`"))
                    .collect::<Vec<_>>()
                    .join(", ")
            },
        );
        let _ = writeln!(table, "| {}{} | {text} | {names} |", rule.0, rule.1);
    }
    (table, missing)
}

/// The page of the documentation.
#[cfg(test)]
fn page(rules: &[(Rule, String)], tests: &BTreeMap<Rule, Vec<String>>) -> String {
    format!(
        "# Rules of model definitions\n\n<!-- Made from tests/contract.toml; a test compares the two. -->\n\n\
         What a model definition may rely on. A test whose name begins with the number of a rule checks it, and\n\
         `cargo dev contract --mutate all` breaks each rule by one line, to see its test fail.\n\n\
         M: model definitions. P: scripts. C: callbacks of steps. K: Keras. T: TensorFlow. E: estimators. D: downloads and PyTorch.\n\n{}",
        table(rules, tests).0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_made_from_the_rules() {
        let repository = Repository::find();
        let rules = rules(&repository).expect("the file is right");
        let page = page(&rules, &tests(repository.root()).expect("they can be read"));
        let path = repository.root().join("docs/reference/rules.md");
        if std::env::var_os("RENEW_DOCS").is_some() {
            fs::write(&path, &page).expect("it can be written");
        }
        let held = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            held == page,
            "{} is not made from the rules",
            path.display()
        );
    }

    #[test]
    fn the_rules_are_all_there() {
        let rules = rules(&Repository::find()).expect("the file is right");
        let count = |letter| rules.iter().filter(|(rule, _)| rule.0 == letter).count();
        let counts: Vec<_> = "MPCKTED".chars().map(count).collect();
        assert_eq!(counts, [18, 9, 12, 22, 23, 8, 12]);
        assert_eq!(rules[0].0, ('M', 1));
        assert_eq!(rules[103].0, ('D', 12));
    }

    #[test]
    fn each_rule_has_a_line_that_breaks_it_and_a_test_of_its_own() {
        let repository = Repository::find();
        let File { rules, mutations } = read(&repository).expect("the file is right");
        assert!(rules.keys().eq(mutations.keys()));
        let text = |path: &Path| {
            let path = repository.root().join(path);
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        for (rule, mutation) in mutations {
            let count = text(&mutation.file).matches(&mutation.from).count();
            assert_eq!(count, 1, "{rule}: `{}` is not there once", mutation.from);
            // The beginning of its name may be followed by the choice of its parameters.
            let name = mutation.test.split(' ').next().unwrap_or_default();
            let of_rule = rule_of(&rule.to_lowercase()).expect("a rule");
            let checks_it = text(&mutation.of)
                .lines()
                .filter_map(|line| name_in(line, "def ").or_else(|| name_in(line, "fn ")))
                .filter(|found| found.contains(name))
                .any(|found| rules_in(found).contains(&of_rule));
            assert!(
                checks_it,
                "{rule}: no test `{name}` of it in {}",
                mutation.of.display()
            );
        }
    }

    #[test]
    fn a_name_says_which_rules_a_test_checks() {
        assert_eq!(rules_in("test_c1_k4_a_trial"), [('C', 1), ('K', 4)]);
        assert_eq!(rules_in("m11_an_entrypoint"), [('M', 11)]);
        assert_eq!(rules_in("test_a_k4"), []);
        assert_eq!(
            name_in("    def test_k4_x(trial):", "def "),
            Some("test_k4_x")
        );
        assert_eq!(name_in("# def x(", "def "), None);
    }
}
