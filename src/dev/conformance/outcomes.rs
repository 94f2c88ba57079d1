//! The outcomes of the tests of one file, in one way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The outcomes of the tests of one file, in one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcomes {
    /// The version, or the name of the stack.
    pub(super) python: String,
    pub(super) way: String,
    pub(super) file: String,
    /// By the name of the test: its outcome, and why.
    pub(super) tests: BTreeMap<String, (String, String)>,
    /// How the process ended, if it did not reach the end of the file.
    pub(super) broke_off: Option<String>,
    pub(super) seconds: u64,
}

/// The tests with different outcomes.
pub(super) fn different<'a>(expected: &'a Outcomes, found: &'a Outcomes) -> Vec<&'a str> {
    let mut names: Vec<&str> = expected
        .tests
        .keys()
        .chain(found.tests.keys())
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    let outcome = |of: &'a Outcomes, name: &str| of.tests.get(name).map(|one| one.0.as_str());
    names.retain(|name| outcome(expected, name) != outcome(found, name));
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Outcomes, different};

    fn outcomes(tests: &[(&str, &str)]) -> Outcomes {
        let tests = tests
            .iter()
            .map(|(test, outcome)| ((*test).to_owned(), ((*outcome).to_owned(), String::new())));
        Outcomes {
            python: "3.13.0".to_owned(),
            way: "embed".to_owned(),
            file: "test_x".to_owned(),
            tests: tests.collect::<BTreeMap<_, _>>(),
            broke_off: None,
            seconds: 0,
        }
    }

    #[test]
    fn what_failed_what_was_not_run_and_what_is_new_differs() {
        let expected = outcomes(&[("a", "ok"), ("b", "ok"), ("c", "failure")]);
        let found = outcomes(&[("a", "failure"), ("c", "failure"), ("d", "ok")]);
        assert_eq!(different(&expected, &found), ["a", "b", "d"]);
        assert!(different(&expected, &expected).is_empty());
    }
}
