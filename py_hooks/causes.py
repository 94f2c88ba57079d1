"""THE table of causes: why a run cannot be resumed exactly, and what to do about it.

    calls.exactness.refuse(causes.DATABASE(path="scores.sqlite"))

A row is what a run says, why that is so, the cure, and whether checkpoints are taken all the same. They are if what is recorded
stays true: two runs of plain Python differ too, or something outside of the weights happens twice. For every other cause no
checkpoint is taken from there on. With `--exact` either ends the run with 77, and the cure is its hint.

`docs/reference/causes.md` is made from this table (`page`); a test compares the two, and lets no other text be a cause.
"""
from __future__ import annotations

# `(title, rows)` in the order of the page.
_SECTIONS: list[tuple[str, list[Cause]]] = []


def _section(title: str) -> None:
    """What follows belongs to it."""
    _SECTIONS.append((title, []))


class Told(str):
    """A cause with its values.

    Attributes:
        cause: its row.
    """

    cause: Cause | None = None


class Cause:
    """A row.

    Args:
        text: what a run says, with the names of values in braces.
        why: the reason, a sentence.
        cure: what a user can do, an imperative.
        takes_checkpoints: whether checkpoints are taken all the same.
    """

    def __init__(self, text: str, why: str, cure: str, takes_checkpoints: bool = False) -> None:
        self.text = text
        self.why = why
        self.cure = cure
        self.takes_checkpoints = takes_checkpoints
        _SECTIONS[-1][1].append(self)

    def __call__(self, **values: object) -> Told:
        """The cause with its values."""
        told = Told(self.text.format(**values))
        told.cause = self
        return told


def takes_checkpoints(told: Told) -> bool:
    """Whether checkpoints are taken all the same."""
    return told.cause.takes_checkpoints


_ANYWAY = True
_PASSES_DIFFER = "Two passes over the pipeline differ, in plain Python, too."
_GIVE_THREAD = "let the main thread do it, for example in a callback"

_section("The process and its versions")

HASH_SEED = Cause(
    "with `-E` or `-I` Python ignores the trial's hash seed, and sets are in another order at each start",
    "pedl-run sets PYTHONHASHSEED for a trial; these options ignore it.",
    "leave out `-E` and `-I`",
)
OTHER_VERSIONS = Cause(
    "{change}",
    "Another version of a framework, of Python, or another processor may compute other bits.",
    "continue with the versions and on the kind of machine that the trial began with",
    _ANYWAY,
)
NO_HOOKS_SESSIONS = Cause(
    "sessions are not intercepted (`--no-hooks tensorflow`)",
    "The variables of a model are in a session that pedl-run does not see.",
    "leave out `--no-hooks tensorflow`",
)
NO_HOOKS_VARIABLES = Cause(
    "variables are not intercepted (`--no-hooks tensorflow`)",
    "The variables of a model are TensorFlow's, and pedl-run does not see them.",
    "leave out `--no-hooks tensorflow`",
)
LOG_LIMIT = Cause(
    "the log of calls is over its limit (`--log-limit`){largest}",
    "A replay needs all of the log, and the limit protects the disk.",
    "raise `--log-limit`, or read large values of a model less often",
)
OTHER_RANK = Cause(
    "another rank takes no checkpoints",
    "A resume needs a checkpoint of all ranks at one batch.",
    "see the cause that the other rank says",
)

_section("Threads and processes")

READ_IN_A_THREAD = Cause(
    "a thread of the script reads variables that training changes",
    "What a thread does is not recorded, and in a replay it would read other values.",
    _GIVE_THREAD,
)
THREAD_TRAINS_MODEL = Cause(
    "a model is trained in a thread of the script's own",
    "The order of threads is not recorded.",
    "train in the main thread",
)
THREAD_TRAINS = Cause(
    "a thread of the script trains",
    "The order of threads is not recorded.",
    "train in the main thread",
)
THREAD_RUNS_COMMANDS = Cause(
    "a thread of the script runs commands (`{program}`)",
    "The order of threads is not recorded, so a replay may run the command again.",
    _GIVE_THREAD,
    _ANYWAY,
)
THREAD_WRITES_EVENTS = Cause(
    "a thread of the script opens event files",
    "A replay cannot tell which events a thread has written.",
    _GIVE_THREAD,
)
CHILD_CHANGES_FILES = Cause(
    "a child process of the script has changed `{path}`, which a replay does again",
    "What forked processes do is in no journal.",
    "change files in the script itself, or by a command that it waits for",
)
STARTS_PROCESS = Cause(
    "the script starts a process by `{method}`, which a replay does again",
    "What such a process does is not seen.",
    "start it before training, or run a command and wait for it",
)

_section("Commands")

COMMAND_TALKS = Cause(
    "`{program}`, which the script started, runs while a checkpoint is taken, and talks to the script",
    "What was said through its pipes cannot be said again.",
    "wait for the command before the next batch",
)
COMMAND_RUNS = Cause(
    "`{program}`, which the script started, runs while a checkpoint is taken; a resume starts it again",
    "What it has done until the kill happens twice.",
    "wait for the command before the next batch",
    _ANYWAY,
)
COMMAND_OUTLIVED = Cause(
    "a process that `{program}` started outlives it, and writes into its pipe",
    "The output of the command has no end that could be recorded.",
    "let the command wait for what it starts, or send the output to a file",
    _ANYWAY,
)
COMMAND_BY_ASYNCIO = Cause(
    "the script runs a command by `asyncio`",
    "The order in which coroutines get its output is not recorded.",
    "run it by `subprocess.run`",
)
COMMAND_NOT_WAITED_FOR = Cause(
    "the script starts `{program}` by `os`, and does not wait for it there",
    "Its end is not seen.",
    "run it by `subprocess.run`",
)
COMMAND_LARGE = Cause(
    "the command `{program}` {leaves}, more than is kept",
    "Output and changed files of a command are kept for a replay: 64 MiB of each, 1 GiB of all.",
    "send its output to a file that the script does not write",
)
COMMAND_FOLDERS = Cause(
    "the command `{program}` makes or removes more than {count} folders",
    "A replay does to folders what a command did to them, and so many are not kept.",
    "run it before training",
    _ANYWAY,
)
COMMAND_FOREIGN = Cause(
    "a command is said to have changed `{path}`, which is no file of the script",
    "The trial was changed or comes from somebody else; the file is left as it is.",
    "continue the original trial",
    _ANYWAY,
)

_section("Files")

DATABASE = Cause(
    "the script opens the database `{path}`, into which a replay writes again",
    "Rows of a database that existed before cannot be taken back.",
    "create the database in the script",
    _ANYWAY,
)
OVERWRITES_LARGE = Cause(
    "the script overwrites `{path}`, which was there before and holds more than {mebibytes} MiB",
    "The content is needed again in a replay, and more than that is not kept.",
    "write a new file, then rename it",
    _ANYWAY,
)
REMOVES = Cause(
    "the script removes `{path}`, which was there before ({why})",
    "A replay needs the file again, and it cannot be kept.",
    "keep the trial directory on the same file system (`--trial-dir`), or remove the file after training",
)
MOVES_MANY = Cause(
    "the script moves `{path}`, which was there before and holds more than {count} files",
    "A replay needs the folder again, and so many files are not kept.",
    "move the folder before or after training",
)
MANY_FILES = Cause(
    "the script made {count} files, or more, before it trained",
    "So many are not noted before a trial exists.",
    "make them in another script",
)
FOREIGN_FILE = Cause(
    "`{path}` lies outside of the directory that the trial was started in, and this trial is a copy, or comes from somebody "
    "else: the file is left as it is",
    "A trial of somebody else must not change your files.",
    "continue the original trial",
    _ANYWAY,
)
CHANGED_SINCE = Cause(
    "`{path}` was changed by something else after the process had ended, and is left as it was",
    "pedl-run does not overwrite what others have written.",
    "do not change files of a trial between two starts",
    _ANYWAY,
)
READS_LARGE = Cause(
    "the script reads `{path}`, which was made or changed after the trial began, and has more than the {kibibytes} KiB that are "
    "kept",
    "A replay needs what the first run has read.",
    "read smaller files, or have the file there before training",
)
READS_MUCH = Cause(
    "the script reads more of files that others make than is kept",
    "A replay needs what the first run has read.",
    "read less of such files",
)
LEARNS_MUCH = Cause(
    "the script learns more of files that others make than is kept",
    "A replay needs the answers of the first run.",
    "look at such files less often",
)
TIMED_LOG = Cause(
    "`logging` names log files by the clock, and a replay writes others",
    "`TimedRotatingFileHandler` asks the real clock.",
    "use `RotatingFileHandler`",
    _ANYWAY,
)
KERNEL_NUMBERS = Cause(
    "the script reads random numbers of the kernel, which are others in a replay: {what}",
    "They are read past Python's `open`.",
    "read them by `os.urandom`",
)
UNKEPT_DRAWS = Cause(
    "what the script draws from the operating system cannot be kept: {error}",
    "The key of the trial cannot be written.",
    "make room in the trial directory",
    _ANYWAY,
)
SHARDS = Cause(
    "weights are saved in several files (`max_shard_size`)",
    "Checkpoints hold saved files by their names, and these are not known.",
    "leave out `max_shard_size`",
)
TENSORFLOW_FORMAT = Cause(
    "weights are saved in, or loaded from, TensorFlow's own format, which is several files",
    "Checkpoints hold saved files by their names, and these are not known.",
    "save to a file that ends in `.h5`",
)
CHECKPOINT_OF_TENSORFLOW = Cause(
    "`tf.train.Checkpoint` saves or restores once training has begun",
    "It writes and reads in C++, past the record.",
    "save by the framework (`model.save`, `save_weights`)",
)
COMPUTED_NAMES = Cause(
    "a run writes files whose names are computed (`{tensor}`)",
    "Checkpoints hold saved files by their names, and these are not known.",
    "give the name as a constant",
)
EVENTS_ELSEWHERE = Cause(
    "event files in `{directory}`, which is no local folder",
    "Event files are cut at a resume, which needs a local file.",
    "write them to a local folder",
)
EVENTS_IN_GRAPH = Cause(
    "an op in a graph opens event files",
    "It writes in C++, past the record.",
    "write summaries from Python",
)

_section("Devices")

DEVICE = Cause(
    "training on {device}, where exact resume was not tried",
    "Devices other than processors may compute other bits in each run.",
    "train on the CPU",
)
TORCH_DEVICE = Cause(
    "training on a GPU, where exact resume was not tried",
    "A GPU may compute other bits in each run.",
    "train on the CPU",
    _ANYWAY,
)
DISTRIBUTED = Cause(
    "training distributed over devices (`{strategy}`)",
    "The order in which devices add up gradients is not recorded.",
    "train on one device",
)

_section("Models and training")

NOT_INTERCEPTED = Cause(
    "{what} is not intercepted in this version",
    "pedl-run does not see such training.",
    "train by `fit`, `train_on_batch` or `Session.run`",
)
OUTSIDE_OF_FIT = Cause(
    "an optimizer is applied outside of `fit`, where nothing is intercepted",
    "Loops around `GradientTape` are not recorded.",
    "train by `fit` with a `train_step`",
)
OUTSIDE_IN_FUNCTION = Cause(
    "an optimizer is applied in a `tf.function` of the script's own, which may be called again unseen",
    "Loops around `GradientTape` are not recorded.",
    "train by `fit` with a `train_step`",
)
STEPS_PER_EXECUTION = Cause(
    "`steps_per_execution` above 1",
    "In this version a call trains several batches unseen.",
    "leave out `steps_per_execution`",
)
NESTED_TRAINING = Cause(
    "a model is trained inside the training of another one",
    "A recorded call cannot be within another one.",
    "train the models one after the other",
)
RUNS_EAGERLY = Cause(
    "a model that runs eagerly (`run_eagerly=True`)",
    "Its Python runs for every batch, and is not recorded.",
    "leave out `run_eagerly`",
)
OWN_MAKER = Cause(
    "a model with a `{name}` of its own",
    "What it returns is not seen.",
    "override `train_step` instead",
)
OWN_STEP_ON_TORCH = Cause(
    "a `{name}` of the script's own on torch, whose Python runs for every batch",
    "What that Python changes is in no checkpoint.",
    "use another backend, or a `PyTorchTrial`",
)
BUFFERS = Cause(
    "buffers of torch modules in a model, which are no variables of Keras",
    "Checkpoints hold variables of Keras.",
    "use layers of Keras, or a `PyTorchTrial`",
)
PARAMETERS = Cause(
    "the parameters of a model are handed out by torch (`parameters()`, `state_dict()`)",
    "Whoever has them can change them unseen.",
    "use `model.weights`, or a `PyTorchTrial`",
)
GENERATOR_IN_LAYER = Cause(
    "a layer makes a generator of random numbers while it computes",
    "A replay does not make it.",
    "make the generator in `__init__`",
)
STRINGS = Cause(
    "a TensorFlow variable of strings",
    "Checkpoints hold numbers.",
    "keep strings in Python",
)
MADE_WHILE_LOADED = Cause(
    "the variable `{name}`, which was made while weights were loaded",
    "A replay does not load, so it does not make it.",
    "build the model before its weights are loaded",
)
HIDDEN_STATE = Cause(
    "the TensorFlow op `{kind}` in {place} draws from a state that cannot be read",
    "The state is in the op's kernel.",
    "use an op with a seed (`tf.random.uniform`, `tf.nn.dropout`)",
)
CALLS_PYTHON = Cause(
    "a model that calls Python (`tf.py_function`, `tf.numpy_function`)",
    "A replay does not call it.",
    "compute it with ops",
)
RUN_CALLS_PYTHON = Cause(
    "a training run calls Python, by the op `{kind}`",
    "A replay does not call it.",
    "compute it with ops",
)
MOVES_SOMETHING = Cause(
    "a model that moves something on that is no variable (`{kind}`)",
    "A replay does not move it.",
    "give the model its data by `fit`",
)
TAKES_DATA = Cause(
    "a model that takes data from a queue or an iterator, or calls Python in its graph",
    "A replay does not compute, so it takes nothing.",
    "give the model its data by `fit`",
)
CALLBACK_CALLS = Cause(
    "a callback of steps calls the framework",
    "Its call would be recorded within a step.",
    "do that in a callback of Keras, or after the `fit`",
)
UNRECORDABLE = Cause(
    "a call returned `{kind}`, which cannot be recorded",
    "The log holds numbers, texts, arrays, lists and dicts.",
    "return such values",
)
HANDLED = Cause(
    "the script handled an exception (`{kind}`) of a call that was to be recorded",
    "A replay cannot raise it again.",
    "see why the call fails",
)
STATE_OF_TRIAL = Cause(
    "the state of the {what} has a `{kind}`, at `{path}`",
    "Checkpoints hold numbers, texts, arrays and tensors.",
    "keep such values in `state_dict`",
)
CHANGED_IN_TRIAL = Cause(
    "`{path}`, a `{kind}`, is changed while the trial trains",
    "Checkpoints hold numbers, texts, arrays and tensors.",
    "keep such values in tensors or buffers",
)

_section("Sessions of TensorFlow")

SEVERAL_AT_ONCE = Cause(
    "a session runs several operations at once (`inter_op_parallelism_threads`); `--exact` imposes 1",
    "Sums depend on the order of operations; two runs of plain Python differ, too.",
    "use `--exact`, or set `inter_op_parallelism_threads=1`",
    _ANYWAY,
)
NO_ORDER = Cause(
    "ops of one run have no order: {pairs}; {imposes}",
    "They use one variable, and one of them writes it; two runs of plain Python differ, too.",
    "use `--exact`, or add `tf.control_dependencies`",
    _ANYWAY,
)
ORDER_UNKNOWN = Cause(
    "it was not found out whether ops of one run use a variable in no order ({error})",
    "The graph has something that pedl-run does not know.",
    "report it",
    _ANYWAY,
)
LOOP_AT_ONCE = Cause(
    "random numbers are drawn in a `while_loop` that runs several passes at once (`parallel_iterations`); `--exact` imposes 1",
    "Passes draw in the order in which they come; two runs of plain Python differ, too.",
    "use `--exact`, or set `parallel_iterations=1`",
    _ANYWAY,
)
QUEUES = Cause(
    "a training run takes its data from queues, which threads fill",
    "Threads fill queues in another order each time.",
    "use `tf.data`",
    _ANYWAY,
)
PARTIAL_RUN = Cause(
    "`partial_run` reads variables that training changes",
    "A replay would read other values.",
    "use `Session.run`",
)
READS_AND_TAKES = Cause(
    "a run reads variables that training changes, and takes data from a queue or calls Python",
    "A replay can neither compute it nor leave it out.",
    "fetch the two in two runs",
)
RANDOM_IN_FUNCTION = Cause(
    "a random op inside a TensorFlow function, where its state cannot be read",
    "The state is in the op's kernel.",
    "draw outside of the function",
)

_section("Data")

DATA = Cause(
    "{kind} (`{name}`)",
    "In this version pedl-run cannot bring such data back to where they were.",
    "use arrays or a `Sequence` (`PyDataset`)",
)
TENSORS_FROM = Cause(
    "tensors of TensorFlow that come from the op `{kind}`",
    "Only iterators can be run again.",
    "use `tf.data`",
)
TENSORS_WRITE = Cause(
    "tensors of TensorFlow that are computed with a variable that they write",
    "The variable would be written twice.",
    "use `tf.data`",
)
TENSORS_BY_HAND = Cause(
    "a batch by hand of tensors that TensorFlow is still to compute",
    "A replay would not take the next element.",
    "use `fit`, or evaluate the tensors first",
)
ITEM_TWICE = Cause(
    "the data set `{kind}` does not build an item twice in the same way",
    "A resume builds items again.",
    "draw from generators that the data set holds, and keep no counters in it",
)
ITEM_THREADS = Cause(
    "the data set `{kind}` draws random numbers in threads of its own while it builds an item",
    "The order of threads is not recorded.",
    "draw in `__getitem__` itself, and hand the numbers to the threads",
)
ITEM_CHANGES = Cause(
    "the data set `{kind}` changes {what} while its items are built",
    "Workers build items ahead, nobody knows how far.",
    "change it in `on_epoch_end`",
)
ITEM_MAY_CHANGE = Cause(
    "it cannot be told whether the data set `{kind}` changes {what} while its items are built: it has more there than is "
    "compared, or what shows no difference",
    "Workers build items ahead, nobody knows how far.",
    "change it in `on_epoch_end`",
)
PIPELINE_ORDER = Cause(
    "a tf.data pipeline that keeps no order (`{option}`)",
    _PASSES_DIFFER,
    "leave out that option",
    _ANYWAY,
)
PIPELINE_PARALLEL_MAP = Cause(
    "a parallel tf.data map with a state (`num_parallel_calls`); `--exact` makes it sequential",
    _PASSES_DIFFER,
    "use `--exact`, or leave out `num_parallel_calls`",
    _ANYWAY,
)
PIPELINE_MAP_AND_BATCH = Cause(
    "`tf.data.experimental.map_and_batch` with a state; `map` and then `batch` can be repeated",
    _PASSES_DIFFER,
    "use `map` and then `batch`",
    _ANYWAY,
)
PIPELINE_PARALLEL_INTERLEAVE = Cause(
    "`tf.data.experimental.parallel_interleave` with random numbers; `interleave` can be repeated",
    _PASSES_DIFFER,
    "use `interleave`",
    _ANYWAY,
)
PIPELINE_REPEAT = Cause(
    "a tf.data pipeline with random numbers that is repeated (`repeat`), in this version of TensorFlow",
    "Whether random ops begin anew in the second round is a race in TensorFlow 2.2 to 2.5.",
    "use TensorFlow 2.6 or later, or `fit` with several epochs",
    _ANYWAY,
)
PIPELINE_NESTED = Cause(
    "a tf.data pipeline with random numbers in a data set within a data set (`flat_map`, `interleave`), in this version of "
    "TensorFlow",
    "Whether random ops begin anew for each inner data set is a race in TensorFlow 2.2 to 2.5.",
    "use TensorFlow 2.6 or later",
    _ANYWAY,
)
PIPELINE_CACHE = Cause(
    "a tf.data cache in files whose name is a tensor of the graph",
    "The files are not known.",
    "give the name as a text",
)
PIPELINE_FOLDER = Cause(
    "a tf.data pipeline that writes into a folder that is there already (`snapshot`, `save`)",
    "TensorFlow writes it in C++, past the record.",
    "write into a new folder",
)
PIPELINE_WRITES = Cause(
    "a tf.data pipeline that writes a variable",
    "A resume runs the pipeline again.",
    "keep the state in the pipeline (`Dataset.scan`)",
)
PIPELINE_PYTHON = Cause(
    "a Python function that TensorFlow calls draws random numbers",
    "TensorFlow calls it in any thread, ahead of time.",
    "draw with `tf.random.stateless_uniform` from a counter",
)
PIPELINE_NO_SEED = Cause(
    "the op `{kind}` in a tf.data pipeline, without a seed",
    "Its stream is drawn from the operating system.",
    "give the op a seed, or call `tf.random.set_seed`",
)
PIPELINE_FUNCTION = Cause(
    "a tf.data pipeline that draws random numbers in a `tf.function` that was called before outside of it",
    "Pipelines run ahead, so nobody knows where the stream of the function is.",
    "use another function in the pipeline",
)
DATAFLOW = Cause(
    "the DataFlow `{name}` has processes or threads of its own, which give batches in no order: "
    "a resumed trial continues with other batches",
    "Processes and threads deliver in another order each time.",
    "use a DataFlow without processes and threads",
    _ANYWAY,
)


def page() -> str:
    """The page of the documentation."""
    text = (
        "# Causes\n\n<!-- Made from `py_hooks/causes.py`; a test compares the two. -->\n\n"
        "A *cause* is a reason why a run cannot be resumed exactly. The run says `exact resume: no:` and the cause, and the\n"
        "event `exactness` has it. With `--exact` the run ends with 77 instead.\n\n"
        "If *checkpoints* is \"yes\", they are taken all the same, and a resume continues from what was learned. Otherwise no\n"
        "checkpoint is taken from there on.\n"
    )
    for title, rows in _SECTIONS:
        text += f"\n## {title}\n\n| the run says | why | what to do | checkpoints |\n|---|---|---|---|\n"
        for row in rows:
            said = row.text.replace("`{", "*").replace("}`", "*").replace("{", "*").replace("}", "*")
            cure = row.cure[:1].upper() + row.cure[1:]
            text += f"| {said} | {row.why} | {cure}. | {'yes' if row.takes_checkpoints else 'no'} |\n"
    return text
