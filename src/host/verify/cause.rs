//! The probable cause of a difference, from the place where it first appears.
//!
//! A resume restores a state; the first batch after it is computed from that state and from data.
//! So the differences after that batch, and whether its loss differs, show what was not restored:
//!
//! | after the first batch | its loss | cause |
//! |---|---|---|
//! | a random stream differs | - | the stream is at another position |
//! | a count of batches differs | - | the counter was not restored |
//! | optimizer slots differ | equal: weights and data were right | those slots were not restored |
//! | weights, and with them slots, differ | differs | other data, or other weights |

use super::compare::calls::{CallDifference, Part};
use super::compare::state::{Class, StateDifference, TensorDifference};
use pedl_core::calls::kind;

/// The number of names that are shown of a long list.
const SHOWN: usize = 3;

/// A resume, and the known states around it.
#[derive(Clone, Debug, Default)]
pub(super) struct Resume {
    /// The batch after which it continued.
    pub(super) batch: u64,
    /// The checkpoint as it was on the disk, compared with the undisturbed state.
    pub(super) stored: Option<StateDifference>,
    /// The first state that was saved after it.
    pub(super) after: Option<StateDifference>,
}

/// Where a run first differs, and the probable reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// The first batch after which something differs; `None`: nothing of the training does.
    pub(super) batch: Option<u64>,
    /// The tensors in which it first appears, the most important ones first.
    pub(super) tensors: Vec<String>,
    /// In a sentence.
    pub(super) text: String,
}

/// Names the cause.
///
/// Args:
///     `error`: what `pedl-run` said, if it stopped the run by itself.
///     `call`: the first recorded call that differs.
///     `resumes`: in their order.
///     `last`: the difference of the states after the last batch.
pub(super) fn name(
    error: Option<&str>,
    call: Option<&CallDifference>,
    resumes: &[Resume],
    last: Option<&StateDifference>,
) -> Cause {
    let batch = call.map(|call| call.batch);
    if let Some(error) = error {
        return Cause {
            batch,
            tensors: Vec::new(),
            text: format!(
                "pedl-run stopped the run by itself: {}",
                error.replace('\n', "; ").replace("  ", "")
            ),
        };
    }
    for resume in resumes {
        if let Some(stored) = resume.stored.as_ref().filter(|it| !it.is_none()) {
            let text = format!(
                "the checkpoint of batch {} does not hold what an undisturbed run had then: {}",
                resume.batch,
                shown(&stored.tensors)
            );
            return found(stored, text);
        }
        if let Some(after) = resume.after.as_ref().filter(|it| !it.is_none()) {
            let is_loss_equal = call.is_none_or(|call| call.batch > resume.batch + 1);
            let text = of_first_batch(after, is_loss_equal, call);
            let text = format!(
                "{text}; it went on from the checkpoint of batch {}",
                resume.batch
            );
            return found(after, text);
        }
    }
    if let Some(call) = call {
        return Cause {
            batch,
            tensors: last.map(names).unwrap_or_default(),
            text: of_call(call),
        };
    }
    match last {
        Some(last) => found(
            last,
            format!(
                "every recorded call is equal, and the state is not: {}",
                shown(&last.tensors)
            ),
        ),
        None => Cause {
            batch: None,
            tensors: Vec::new(),
            text: match resumes.iter().find(|it| it.after.is_none()) {
                // No later state shows what it restored.
                Some(resume) => format!(
                    "the training is the same up to the resume from the checkpoint of batch {}; what that put in was \
                     other, or what the script does besides training does not repeat itself",
                    resume.batch
                ),
                None => {
                    "the training is the same; what the script does besides it is not".to_owned()
                }
            },
        },
    }
}

fn found(difference: &StateDifference, text: String) -> Cause {
    Cause {
        batch: Some(difference.batch),
        tensors: names(difference),
        text,
    }
}

fn names(difference: &StateDifference) -> Vec<String> {
    difference
        .tensors
        .iter()
        .map(|it| it.name.clone())
        .collect()
}

fn of_first_batch(
    after: &StateDifference,
    is_loss_equal: bool,
    call: Option<&CallDifference>,
) -> String {
    let [streams, counters, slots] =
        [Class::Stream, Class::Counter, Class::Slot].map(|class| after.of(class));
    if !streams.is_empty() {
        return format!(
            "a random stream is at another position: {}",
            shown(&owned(&streams))
        );
    }
    if let Some(member) = after
        .rest
        .iter()
        .find(|member| member.starts_with("/streams"))
    {
        return format!("a random stream is at another position: `{member}` of the state");
    }
    if !counters.is_empty() {
        return format!("a counter was not restored: {}", shown(&owned(&counters)));
    }
    if is_loss_equal && !slots.is_empty() {
        let slots = owned(&slots);
        let text = "an optimizer slot was not restored";
        return format!(
            "{text} (the loss of the first batch is equal, so weights and data were right): {}",
            shown(&slots)
        );
    }
    if !is_loss_equal {
        if call.is_some_and(|call| call.part == Part::Arguments) {
            return "the first batch is of other data: its order, a sample repeated or left out, or its augmentation".to_owned();
        }
        return "the first batch has another loss, and every random stream and counter is equal: it is of other data \
                (their order, a sample repeated or left out, their augmentation), or a weight was not restored"
            .to_owned();
    }
    if after.tensors.is_empty() {
        let members: Vec<_> = after.rest.iter().take(SHOWN).cloned().collect();
        return format!("members of the state differ: {}", members.join(", "));
    }
    format!("tensors differ: {}", shown(&after.tensors))
}

fn of_call(call: &CallDifference) -> String {
    match call.part {
        Part::Call | Part::Missing | Part::Extra => {
            "the script went another way: look for the clock, `os.urandom`, the order of a set, or a file that an \
             earlier start had left"
                .to_owned()
        }
        Part::Draws => "the script drew another number of random numbers before this call".to_owned(),
        Part::Arguments => {
            "it was given other data: their order, a sample repeated or left out, or their augmentation".to_owned()
        }
        Part::Value if call.kind == kind::TRAIN => {
            "the batch was computed from other data, weights or random numbers; no state from just after the resume \
             was there to tell which"
                .to_owned()
        }
        Part::Value => "it returned something else".to_owned(),
    }
}

fn owned(tensors: &[&TensorDifference]) -> Vec<TensorDifference> {
    tensors.iter().map(|&it| it.clone()).collect()
}

/// The first few names of tensors.
pub(super) fn shown(tensors: &[TensorDifference]) -> String {
    let one = |it: &TensorDifference| match &it.values {
        Some(values) => format!("`{}` ({values})", it.name),
        None => format!("`{}`", it.name),
    };
    let mut text = tensors
        .iter()
        .take(SHOWN)
        .map(one)
        .collect::<Vec<_>>()
        .join(", ");
    if tensors.len() > SHOWN {
        text = format!("{text} and {} more", tensors.len() - SHOWN);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::super::compare::state::tests::state;
    use super::*;

    const NAMES: [&str; 5] = [
        "dense/kernel",
        "adam/iteration",
        "adam/dense_kernel_momentum",
        "dropout/seed_generator_state",
        "loss/total",
    ];

    /// The difference of the states after a batch, if the named tensors differ.
    fn differing(batch: u64, names: &[&str]) -> StateDifference {
        let one = NAMES.map(|name| (name, 1.0));
        let other = NAMES.map(|name| (name, if names.contains(&name) { 2.0 } else { 1.0 }));
        StateDifference::new(
            &state(batch, &one, json!({})),
            &state(batch, &other, json!({})),
            &BTreeSet::new(),
        )
    }

    fn call(batch: u64, part: Part) -> CallDifference {
        CallDifference {
            number: batch + 1,
            batch,
            kind: kind::TRAIN,
            part,
            what: "`train model 0` at train.py:9".to_owned(),
            expected: "0.5".to_owned(),
            found: "0.6".to_owned(),
        }
    }

    fn after(names: &[&str], call: &CallDifference) -> Cause {
        let resume = Resume {
            batch: 20,
            stored: Some(differing(20, &[])),
            after: Some(differing(21, names)),
        };
        let equal = Resume {
            batch: 10,
            stored: Some(differing(10, &[])),
            after: Some(differing(11, &[])),
        };
        name(
            None,
            Some(call),
            &[equal, resume],
            Some(&differing(40, &NAMES)),
        )
    }

    #[test]
    fn what_was_not_restored_is_named() {
        let next = call(22, Part::Value);
        for (names, word, first) in [
            (
                &["dense/kernel", "adam/dense_kernel_momentum"][..],
                "optimizer slot",
                "adam/dense_kernel_momentum",
            ),
            (
                &["dense/kernel", "adam/iteration"],
                "counter",
                "adam/iteration",
            ),
            (
                &[
                    "dense/kernel",
                    "adam/dense_kernel_momentum",
                    "dropout/seed_generator_state",
                    "loss/total",
                ],
                "random stream",
                "dropout/seed_generator_state",
            ),
        ] {
            let cause = after(names, &next);
            assert_eq!(cause.batch, Some(21));
            assert_eq!(cause.tensors[0], first);
            assert!(
                cause.text.contains(word) && cause.text.contains(first),
                "{}",
                cause.text
            );
            assert!(
                cause.text.contains("checkpoint of batch 20"),
                "{}",
                cause.text
            );
        }
    }

    #[test]
    fn other_data_show_in_the_loss_of_the_first_batch() {
        let changed = ["dense/kernel", "adam/dense_kernel_momentum", "loss/total"];
        let cause = after(&changed, &call(21, Part::Value));
        assert!(
            cause.text.contains("other data") && cause.text.contains("repeated"),
            "{}",
            cause.text
        );
        let cause = after(&changed, &call(21, Part::Arguments));
        assert!(
            cause.text.starts_with("the first batch is of other data"),
            "{}",
            cause.text
        );
    }

    #[test]
    fn a_wrong_checkpoint_is_told_from_a_wrong_restore() {
        let resume = Resume {
            batch: 20,
            stored: Some(differing(20, &["dense/kernel"])),
            after: None,
        };
        let cause = name(None, Some(&call(21, Part::Value)), &[resume], None);
        assert_eq!(
            (cause.batch, cause.tensors),
            (Some(20), vec!["dense/kernel".to_owned()])
        );
        assert!(cause.text.contains("does not hold"), "{}", cause.text);
    }

    #[test]
    fn without_states_the_call_tells_what_it_can() {
        assert!(
            name(None, Some(&call(7, Part::Draws)), &[], None)
                .text
                .contains("random numbers")
        );
        assert!(
            name(None, Some(&call(7, Part::Call)), &[], None)
                .text
                .contains("another way")
        );
        assert_eq!(name(None, None, &[], None).batch, None);
        let stopped = name(
            Some("it differs\n  now: 2"),
            Some(&call(7, Part::Value)),
            &[],
            None,
        );
        assert_eq!(
            stopped.text,
            "pedl-run stopped the run by itself: it differs; now: 2"
        );
    }
}
