//! THE table of fields of a configuration: to add a field, add a row.
//!
//! A row says what a field may hold, its default, its purpose, and what this program does with it.
//! Checks, defaults and the JSON Schema all come from here. The order is that of the documentation
//! of PEDL.
//!
//! Source: names, types, ranges and defaults are those of PEDL 0.11 (Determined 4bff89a70b,
//! docs/reference/experiment-config.txt and master/pkg/model).

/// One field of a map.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
    pub(crate) means: Means,
    /// Its purpose: half a sentence, with unit.
    pub(crate) help: &'static str,
}

/// The values that a field accepts.
pub(crate) enum Kind {
    /// Anything, passed through.
    Any,
    /// A map of anything.
    AnyMap,
    /// Text, not empty.
    Text,
    /// A word of a command line: text, or a number as it is spelled in JSON.
    Argument,
    /// Text that is an absolute path.
    AbsolutePath,
    Flag,
    /// An integer in a closed range.
    Integer(i64, i64),
    /// A number in a closed range.
    Number(f64, f64),
    /// A number above 0.
    PositiveNumber,
    /// One of some words.
    Word(&'static [&'static str]),
    List(&'static Kind),
    Map(&'static [Field]),
    /// A map whose other fields depend on one of them: the name of that field, and the other fields
    /// by its value. An empty value is for maps without that field.
    Tagged(&'static str, &'static [(&'static str, &'static [Field])]),
    /// Either of two: the first for a map, the second for anything else.
    MapOr(&'static Kind, &'static Kind),
    /// Hyperparameters by name.
    Hyperparameters,
}

/// The default of a field that is absent.
pub(crate) enum Default {
    /// The field must be present.
    Required,
    /// None: the field stays absent, and null means the same.
    Nothing,
    /// A value, as JSON.
    Is(&'static str),
}

/// What this program does with a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// It applies the field.
    Itself,
    /// It ignores the field, and nothing is lost: it is advice to the scheduler of a cluster.
    Scheduling,
    /// Not supported yet: any value except the default is refused.
    Refused,
    /// It applies the field, but refuses a map that has this member.
    RefusedWith(&'static str),
}

use Default::{Is, Nothing, Required};
use Means::{Itself, Refused, RefusedWith, Scheduling};

const ANY_INTEGER: Kind = Kind::Integer(i64::MIN, i64::MAX);
const POSITIVE: Kind = Kind::Integer(1, i64::MAX);
const COUNT: Kind = Kind::Integer(0, i64::MAX);
const ANY_NUMBER: Kind = Kind::Number(f64::MIN, f64::MAX);
const TEXT_LIST: Kind = Kind::List(&Kind::Text);

/// A row without line breaks.
const fn row(
    name: &'static str,
    kind: Kind,
    default: Default,
    means: Means,
    help: &'static str,
) -> Field {
    Field {
        name,
        kind,
        default,
        means,
        help,
    }
}

/// The largest seed.
pub(crate) const MAX_SEED: i64 = (1 << 31) - 1;

/// The fields at the top of a configuration.
#[rustfmt::skip]
pub(crate) static FIELDS: &[Field] = &[
    row("description", Kind::Text, Nothing, Itself, "a name for people; need not be unique"),
    row("labels", TEXT_LIST, Is("[]"), Itself, "words to find the experiment by"),
    row("data", Kind::AnyMap, Is("{}"), Itself, "whatever the model code reads from it"),
    row("entrypoint", Kind::MapOr(&Kind::Map(SCRIPT), &Kind::Text), Nothing, Itself, "the script, or `module:TrialClass`"),
    row("entrypoints", Kind::Map(ENTRYPOINTS), Nothing, Itself, "the parts of a model definition, in PEDL 0.11"),
    row("batches_per_step", POSITIVE, Is("100"), Itself, "batches in one step of training"),
    row("min_validation_period", POSITIVE, Nothing, Itself, "validate at least every so many steps"),
    row("min_checkpoint_period", POSITIVE, Nothing, Itself, "take a checkpoint at least every so many steps"),
    row("checkpoint_policy", Kind::Word(&["best", "all", "none"]), Is("\"best\""), Itself, "after which validations a checkpoint is taken"),
    row("max_restarts", COUNT, Is("5"), Itself, "how often a trial that fails is started again"),
    row("reproducibility", Kind::Map(REPRODUCIBILITY), Is("{}"), Itself, "seeds"),
    row("debug", Kind::Flag, Is("false"), Scheduling, "more messages of the cluster"),
    row("hyperparameters", Kind::Hyperparameters, Is("{}"), Itself, "what `pedl.get_hyperparameter` knows, by name"),
    row("resources", Kind::Map(RESOURCES), Is("{}"), Itself, "what a trial runs on"),
    row("optimizations", Kind::Map(OPTIMIZATIONS), Is("{}"), Itself, "of training on several GPUs"),
    row("bind_mounts", Kind::List(&Kind::Map(BIND_MOUNT)), Is("[]"), Refused, "directories of the host in the container"),
    row("environment", Kind::Map(ENVIRONMENT), Is("{}"), Itself, "where the script runs"),
    row("checkpoint_storage", Kind::Tagged("type", STORAGES), Is("{}"), RefusedWith("type"), "how many checkpoints are kept, and where"),
    row("searcher", Kind::Tagged("name", SEARCHERS), Required, Itself, "which trials there are, and how long they train"),
    row("tensorboard_storage", Kind::Any, Nothing, Scheduling, "where event files are kept"),
    row("internal", Kind::Any, Nothing, Scheduling, "not for users"),
    row("security", Kind::Any, Nothing, Scheduling, "not for users"),
];

#[rustfmt::skip]
static SCRIPT: &[Field] = &[
    row("script", Kind::Text, Required, Itself, "path of the script, below the model definition"),
    row("args", Kind::List(&Kind::Argument), Is("[]"), Itself, "arguments of the script"),
    row("callbacks", TEXT_LIST, Is("[]"), Itself, "what is called around its steps, each `module:object`"),
];

#[rustfmt::skip]
static ENTRYPOINTS: &[Field] = &[
    row("trial_class", Kind::Text, Required, Itself, "`module:TrialClass`"),
    row("data_loaders_function", Kind::Text, Nothing, Itself, "`module:make_data_loaders`"),
    row("download_data_function", Kind::Text, Nothing, Itself, "`module:download_data`"),
];

#[rustfmt::skip]
static REPRODUCIBILITY: &[Field] = &[
    row("experiment_seed", Kind::Integer(0, MAX_SEED), Nothing, Itself, "seed of the search and of all trials; by default the Unix time"),
];

#[rustfmt::skip]
static RESOURCES: &[Field] = &[
    row("slots_per_trial", POSITIVE, Is("1"), Refused, "GPUs of one trial"),
    row("max_slots", POSITIVE, Nothing, Scheduling, "GPUs of all trials at a time"),
    row("weight", Kind::PositiveNumber, Is("1.0"), Scheduling, "share of the cluster"),
    row("agent_label", Kind::Any, Is("\"\""), Scheduling, "which machines may be used"),
    row("native_parallel", Kind::Flag, Is("false"), Refused, "the script distributes by itself"),
    row("shm_size", COUNT, Is("4294967296"), Scheduling, "bytes of /dev/shm; not needed here"),
];

#[rustfmt::skip]
static OPTIMIZATIONS: &[Field] = &[
    row("aggregation_frequency", POSITIVE, Is("1"), Refused, "batches of one update"),
    row("average_aggregated_gradients", Kind::Flag, Is("true"), Refused, "average them, not add"),
    row("gradient_compression", Kind::Flag, Is("false"), Refused, "send gradients as float16"),
    row("mixed_precision", Kind::Word(&["O0", "O1", "O2", "O3"]), Is("\"O0\""), Refused, "level of NVIDIA Apex"),
    row("tensor_fusion_threshold", COUNT, Is("64"), Scheduling, "MB of gradients that are sent together"),
    row("tensor_fusion_cycle_time", COUNT, Is("5"), Scheduling, "ms between them"),
    row("auto_tune_tensor_fusion", Kind::Flag, Is("false"), Scheduling, "find both by trial"),
];

#[rustfmt::skip]
static BIND_MOUNT: &[Field] = &[
    row("host_path", Kind::AbsolutePath, Required, Itself, "of the machine"),
    row("container_path", Kind::Text, Required, Itself, "in the container"),
    row("read_only", Kind::Flag, Is("false"), Itself, "not to be written"),
    row("propagation", Kind::Text, Is("\"rprivate\""), Itself, "of mounts below it"),
];

#[rustfmt::skip]
static ENVIRONMENT: &[Field] = &[
    row("image", Kind::MapOr(&Kind::Map(BY_DEVICE), &Kind::Text), Nothing, Refused, "of the container"),
    row("force_pull_image", Kind::Flag, Is("false"), Scheduling, "fetch it again"),
    row("registry_auth", Kind::AnyMap, Nothing, Scheduling, "login for it"),
    row("environment_variables", Kind::MapOr(&Kind::Map(VARIABLES_BY_DEVICE), &TEXT_LIST), Is("[]"), Itself, "NAME=VALUE, set in order; may refer to earlier ones"),
    row("runtime_packages", TEXT_LIST, Is("[]"), Refused, "Debian packages to install first"),
    row("runtime_commands", TEXT_LIST, Is("[]"), Refused, "commands to run first"),
];

#[rustfmt::skip]
static BY_DEVICE: &[Field] = &[
    row("cpu", Kind::Text, Nothing, Itself, "without a GPU"),
    row("gpu", Kind::Text, Nothing, Itself, "with one"),
];

#[rustfmt::skip]
static VARIABLES_BY_DEVICE: &[Field] = &[
    row("cpu", TEXT_LIST, Is("[]"), Itself, "without a GPU"),
    row("gpu", TEXT_LIST, Is("[]"), Itself, "with one"),
];

/// How many checkpoints are kept at the end, in all kinds of storage.
macro_rules! storage {
    ($($row:expr),* $(,)?) => {
        &[
            $($row,)*
            row("save_experiment_best", COUNT, Is("0"), Itself, "checkpoints kept of the whole experiment"),
            row("save_trial_best", COUNT, Is("1"), Itself, "best checkpoints kept of each trial"),
            row("save_trial_latest", COUNT, Is("1"), Itself, "latest checkpoints kept of each trial"),
        ]
    };
}

#[rustfmt::skip]
static STORAGES: &[(&str, &[Field])] = &[
    ("", storage![]),
    ("shared_fs", storage![
        row("host_path", Kind::AbsolutePath, Required, Itself, "directory of the machine"),
        row("container_path", Kind::Text, Is("\"/determined_shared_fs\""), Itself, "where it is mounted"),
        row("storage_path", Kind::Text, Nothing, Itself, "directory below it"),
        row("propagation", Kind::Text, Is("\"rprivate\""), Itself, "of mounts below it"),
    ]),
    ("s3", storage![
        row("bucket", Kind::Text, Required, Itself, "name of the bucket"),
        row("access_key", Kind::Text, Nothing, Itself, "of AWS"),
        row("secret_key", Kind::Text, Nothing, Itself, "of AWS"),
        row("endpoint_url", Kind::Text, Nothing, Itself, "of another service"),
    ]),
    ("gcs", storage![
        row("bucket", Kind::Text, Required, Itself, "name of the bucket"),
    ]),
    ("hdfs", storage![
        row("hdfs_url", Kind::Text, Required, Itself, "addresses, with `;` between them"),
        row("hdfs_path", Kind::Text, Required, Itself, "directory"),
        row("user", Kind::Text, Nothing, Itself, "whose it is"),
    ]),
];

/// Fields that all searchers have.
macro_rules! searcher {
    ($($row:expr),* $(,)?) => {
        &[
            row("metric", Kind::Text, Required, Itself, "the validation metric that is searched by"),
            row("smaller_is_better", Kind::Flag, Is("true"), Itself, "whether it is to be small"),
            $($row,)*
            row("source_trial_id", COUNT, Nothing, Refused, "the trial whose weights all trials begin with"),
            row("source_checkpoint_uuid", Kind::Text, Nothing, Refused, "the checkpoint that they begin with"),
        ]
    };
}

/// More rungs than any budget of steps allows.
const MAX_RUNGS: Kind = Kind::Integer(1, 32);
const MODE: Kind = Kind::Word(&["conservative", "standard", "aggressive"]);

#[rustfmt::skip]
static SEARCHERS: &[(&str, &[Field])] = &[
    ("single", searcher![
        row("max_steps", POSITIVE, Required, Itself, "steps of the trial"),
    ]),
    ("random", searcher![
        row("max_steps", POSITIVE, Required, Itself, "steps of each trial"),
        row("max_trials", POSITIVE, Required, Itself, "how many trials"),
    ]),
    ("grid", searcher![
        row("max_steps", POSITIVE, Required, Itself, "steps of each trial"),
    ]),
    ("adaptive", searcher![
        row("target_trial_steps", POSITIVE, Required, Itself, "steps of the longest trial"),
        row("step_budget", Kind::Integer(1, 50_000), Required, Itself, "steps of all trials together"),
        row("mode", MODE, Is("\"standard\""), Itself, "how early trials are stopped"),
        row("divisor", Kind::Number(1.0, f64::MAX), Is("4.0"), Itself, "the inverse of the part of the trials that continues"),
        row("max_rungs", MAX_RUNGS, Is("5"), Itself, "how often trials are compared at most"),
        row("train_stragglers", Kind::Flag, Is("true"), Itself, "continue trials that are late"),
    ]),
    ("adaptive_simple", searcher![
        row("max_steps", POSITIVE, Required, Itself, "steps of the longest trial"),
        row("max_trials", Kind::Integer(1, 2_000), Required, Itself, "how many trials"),
        row("mode", MODE, Is("\"standard\""), Itself, "how early trials are stopped"),
        row("divisor", Kind::Number(1.0, f64::MAX), Is("4.0"), Itself, "the inverse of the part of the trials that continues"),
        row("max_rungs", MAX_RUNGS, Is("5"), Itself, "how often trials are compared at most"),
    ]),
    ("pbt", searcher![
        row("population_size", POSITIVE, Required, Itself, "trials at a time"),
        row("num_rounds", POSITIVE, Required, Itself, "how often they are compared"),
        row("steps_per_round", POSITIVE, Required, Itself, "steps between"),
        row("replace_function", Kind::Map(REPLACE), Required, Itself, "which trials are replaced"),
        row("explore_function", Kind::Map(EXPLORE), Required, Itself, "how hyperparameters change"),
    ]),
];

#[rustfmt::skip]
static REPLACE: &[Field] = &[
    row("truncate_fraction", Kind::Number(0.0, 0.5), Required, Itself, "the part of the trials that is replaced"),
];

#[rustfmt::skip]
static EXPLORE: &[Field] = &[
    row("resample_probability", Kind::Number(0.0, 1.0), Required, Itself, "that a value is drawn anew"),
    row("perturb_factor", Kind::Number(0.0, 1.0), Required, Itself, "by how much it changes else"),
];

/// The kinds of hyperparameters, by their `type`. A map without `type` holds hyperparameters
/// itself; everything else is a constant.
#[rustfmt::skip]
pub(crate) static HYPERPARAMETERS: &[(&str, &[Field])] = &[
    ("const", &[
        row("val", Kind::Any, Required, Itself, "the value"),
    ]),
    ("int", &[
        row("minval", ANY_INTEGER, Required, Itself, "the smallest value"),
        row("maxval", ANY_INTEGER, Required, Itself, "above the largest value; in a grid the largest"),
        row("count", POSITIVE, Nothing, Itself, "values in a grid"),
    ]),
    ("double", &[
        row("minval", ANY_NUMBER, Required, Itself, "the smallest value"),
        row("maxval", ANY_NUMBER, Required, Itself, "the largest value"),
        row("count", POSITIVE, Nothing, Itself, "values in a grid"),
    ]),
    ("log", &[
        row("base", Kind::PositiveNumber, Required, Itself, "the value is a power of it"),
        row("minval", ANY_NUMBER, Required, Itself, "the smallest exponent"),
        row("maxval", ANY_NUMBER, Required, Itself, "the largest exponent"),
        row("count", POSITIVE, Nothing, Itself, "values in a grid"),
    ]),
    ("categorical", &[
        row("vals", Kind::List(&Kind::Any), Required, Itself, "the values"),
    ]),
];
