//! THE table of events: which events exist, when they are written, and what they hold.
//!
//! `pedl reference events` and the documentation are made from it. A reader ignores events and
//! members that it does not know, because hooks may add some.

/// One kind of events.
#[derive(Debug)]
pub struct EventKind {
    /// The text of its member `event`.
    pub name: &'static str,
    /// When it is written.
    pub when: &'static str,
    /// Its further members, each with its meaning and unit.
    pub members: &'static [(&'static str, &'static str)],
}

const EPOCH: (&str, &str) = (
    "epoch",
    "number of the epoch, from 0; null in a loop that has no epochs",
);
const WORKLOAD: (&str, &str) = (
    "workload",
    "`RUN_STEP`, `COMPUTE_VALIDATION_METRICS` or `CHECKPOINT_MODEL`",
);
const STEP: (&str, &str) = ("step", "number of steps that are complete");
const BATCH: (&str, &str) = ("batch", "number of training batches so far");
const SIGNAL: (&str, &str) = ("signal", "name of the signal, as in `SIGTERM`");
const NEWEST: (&str, &str) = (
    "checkpoint",
    "batch of the newest checkpoint; null without one",
);

/// All of them, in the order in which a trial may write them.
pub static KINDS: &[EventKind] = &[
    EventKind {
        name: "trial_begun",
        when: "A start of the script made its first intercepted call.",
        members: &[
            ("trial_id", "number of the trial"),
            ("experiment_id", "number of the experiment"),
            (
                "attempt",
                "how often the supervisor had started the script before, from 0",
            ),
            ("command", "the command line, credentials redacted"),
            ("hyperparameters", "name → value"),
            ("python", "version of Python"),
            ("versions", "library → version"),
            ("cpu", "model of the processor"),
        ],
    },
    EventKind {
        name: "exactness",
        when: "The run determined whether it can be resumed exactly: at the first intercepted call, and again for each further cause.",
        members: &[
            ("exact", "true or false"),
            ("causes", "texts; empty if `exact` is true"),
            BATCH,
        ],
    },
    EventKind {
        name: "resumed",
        when: "A replay reached its checkpoint.",
        members: &[
            BATCH,
            STEP,
            ("calls", "number of calls that were answered from the log"),
            ("checkpoint", "name of the checkpoint"),
        ],
    },
    EventKind {
        name: "step",
        when: "A step ended.",
        members: &[
            WORKLOAD,
            ("step", "number of the step, from 1"),
            ("batches", "first and last batch, from 1"),
            EPOCH,
            (
                "metrics",
                "name → mean over the batches of the step; if the step trained several models, names begin with `model N `, N from 0",
            ),
            (
                "at_end",
                "names of metrics that are no mean over the step but the value of the framework at its end (AUC, precision); absent if there are none",
            ),
            ("batches_per_second", "rate; null if it is unknown"),
            ("seconds", "duration of the step"),
            (
                "data_wait_seconds",
                "the part of `seconds` in which training waited for a batch or built one; null if the batches come from no data set with items",
            ),
        ],
    },
    EventKind {
        name: "validation",
        when: "The model was validated, and a configuration or `--steps` determines the length of training.",
        members: &[
            WORKLOAD,
            BATCH,
            STEP,
            EPOCH,
            ("metrics", "name → value"),
            (
                "best_batch",
                "batch of the best validation so far; null without a configuration",
            ),
        ],
    },
    EventKind {
        name: "evaluation",
        when: "A loop over TensorFlow sessions read, between two training calls, what training changed.",
        members: &[
            BATCH,
            ("runs", "number of `Session.run` calls"),
            ("metrics", "name of the tensor → mean over the runs"),
        ],
    },
    EventKind {
        name: "checkpoint",
        when: "A checkpoint was committed.",
        members: &[
            WORKLOAD,
            BATCH,
            STEP,
            EPOCH,
            ("name", "name of the checkpoint"),
            ("bytes", "size on disk that it added"),
            ("seconds", "duration of the write"),
        ],
    },
    EventKind {
        name: "checkpoint_failed",
        when: "A checkpoint could not be written. Training continues, unless it was the fifth failure in a row.",
        members: &[
            BATCH,
            ("error", "text"),
            ("failures", "number of failures in a row"),
        ],
    },
    EventKind {
        name: "checkpoint_damaged",
        when: "A checkpoint is damaged and was set aside.",
        members: &[("error", "text")],
    },
    EventKind {
        name: "preempted",
        when: "A signal asked for the end of the run, and takes effect now.",
        members: &[
            SIGNAL,
            BATCH,
            NEWEST,
            (
                "is_new",
                "whether that checkpoint was taken for this signal",
            ),
        ],
    },
    EventKind {
        name: "trained_on",
        when: "The script handled such a signal and continued to train. No further checkpoints are taken.",
        members: &[SIGNAL, BATCH, NEWEST],
    },
    EventKind {
        name: "outlived",
        when: "The script ended by itself before such a signal took effect.",
        members: &[SIGNAL],
    },
    EventKind {
        name: "restart",
        when: "The supervisor started the training process again.",
        members: &[
            ("signal", "name of the signal that ended it, or"),
            ("exit_code", "its exit code"),
            ("attempt", "number of restarts so far, from 1"),
        ],
    },
    EventKind {
        name: "worker_ended",
        when: "A worker process of a data set died or exceeded `--worker-timeout`. Another worker replaced it.",
        members: &[
            ("pid", "process id"),
            ("how", "text"),
            (
                "item",
                "index of the item that it was building; null if it was building none",
            ),
        ],
    },
    EventKind {
        name: "events_lost",
        when: "Only in a stream (`--events-fd`): its reader was too slow.",
        members: &[("count", "number of events that were left out")],
    },
    EventKind {
        name: "trial_ended",
        when: "The trial is over.",
        members: &[
            ("exit_code", "of the script, or"),
            ("signal", "name of the signal that ended it"),
        ],
    },
];
