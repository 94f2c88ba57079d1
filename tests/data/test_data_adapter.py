"""`KerasDataAdapter`, `InMemorySequence` and batch loaders: rules K7 to K16 (issue 6)."""

import importlib
import json
import os
import warnings

import pytest
import support

pytestmark = pytest.mark.stack("keras3-jax", "keras2-tensorflow1", "tfkeras-1.15")

SCRIPT = support.SCRIPTS / "data_adapter.py"

# Six batches of an epoch, the last one shorter, and three epochs.
FIRSTS = [0, 8, 16, 24, 32, 40]

CONFIGURATION = """
searcher: {name: single, metric: loss, max_steps: 1}
reproducibility: {experiment_seed: 7}
"""


@pytest.fixture
def delivered(script_run, tmp_path):
    """A function that returns the batches that an adapter delivered."""

    def run(*words):
        file = tmp_path / "seeds.yaml"
        file.write_text(CONFIGURATION)
        ended = script_run(SCRIPT, *words, options=["--config", file]).run().check()
        return json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("{")))

    return run


def test_k12_without_workers_the_thread_that_asks_builds(delivered):
    found = delivered(0, "threads", 10)
    assert (found["processes"], found["threads"]) == ([found["trainer"][0]], [found["trainer"][1]])
    assert found["ahead"] <= 1


def test_k10_no_workers_are_no_processes_either(delivered):
    found = delivered(0, "processes", 10)
    assert (found["processes"], found["threads"]) == ([found["trainer"][0]], [found["trainer"][1]])


def test_k13_one_process_in_the_background(delivered):
    found = delivered(1, "processes", 10)
    assert len(found["processes"]) == 1
    assert found["trainer"][0] not in found["processes"]


def test_k14_two_threads_in_the_background(delivered):
    found = delivered(2, "threads", 10)
    assert found["processes"] == [found["trainer"][0]]
    assert found["threads at once"] == 2
    assert found["trainer"][1] not in found["threads"]


@pytest.mark.parametrize("queue", [1, 4])
@pytest.mark.parametrize("way", ["threads", "processes"])
def test_k11_no_more_are_built_ahead_than_the_queue_holds(delivered, way, queue):
    assert delivered(2, way, queue)["ahead"] <= queue


def test_k16_each_epoch_has_every_batch_once_and_in_order(delivered):
    expected = delivered(0, "threads", 10)
    assert expected["length"] == 6
    assert expected["firsts"] == 3 * FIRSTS
    assert expected["ends"] == [0] * 6 + [1] * 6 + [2] * 6
    assert len(set(expected["hashes"])) == 18, "noise differs from epoch to epoch"
    for words in [(1, "threads", 10), (3, "threads", 2), (1, "processes", 10), (3, "processes", 2)]:
        found = delivered(*words)
        assert [found[key] for key in ("hashes", "firsts", "ends")] == [
            expected[key] for key in ("hashes", "firsts", "ends")
        ]


@pytest.mark.parametrize("words", [(0, "threads"), (2, "threads"), (2, "processes")])
def test_what_is_left_out_at_the_beginning_changes_nothing_behind_it(delivered, words):
    whole, rest = delivered(0, "threads", 10), delivered(*words, 10, 8)
    assert rest["firsts"] == whole["firsts"][8:]
    assert rest["hashes"] == whole["hashes"][8:]
    assert rest["ends"] == whole["ends"][8:]


def test_a_validation_is_one_pass(delivered):
    found = delivered(2, "processes", 10, 0, "validation")
    assert found["firsts"] == FIRSTS
    assert found["ends"] == [0] * 6


def test_no_thread_is_left_behind(delivered):
    assert delivered(2, "threads", 10)["left"] == delivered(0, "threads", 10)["left"]


def test_k15_what_cannot_be_sent_to_workers_is_named(script_run):
    ended = script_run(SCRIPT, 2, "processes", 10, 0, "lambda").run()
    assert ended.code == 1, ended
    assert "TypeError: KerasDataAdapter cannot send `Noisy` to worker processes that are started by `spawn`" in ended.stderr
    assert "its attribute `transform` cannot be pickled" in ended.stderr
    ended = script_run(SCRIPT, 2, "processes", 10, 0, "spawn").run()
    assert ended.code == 1, ended
    assert "RuntimeError: KerasDataAdapter starts its worker processes by itself" in ended.stderr
    assert "set the start method `fork`, or use threads" in ended.stderr
    assert script_run(SCRIPT, 2, "threads", 10, 0, "lambda").run().check()


# -- without a trial ---------------------------------------------------------------------------------------------------


@pytest.fixture
def data():
    """`pedl.frameworks.keras.data`, as a model definition imports it."""
    with warnings.catch_warnings():
        # Old frameworks use features that were deprecated later.
        warnings.simplefilter("ignore")
        import pedl.frameworks.keras

        importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))
    return pedl.frameworks.keras.data


def test_k8_arguments_and_defaults(data):
    sequence = data.InMemorySequence([[1], [2]], [1, 2], 1)
    adapter = data.KerasDataAdapter(sequence)
    assert (adapter.workers, adapter.use_multiprocessing, adapter.max_queue_size) == (1, False, 10)
    adapter = data.KerasDataAdapter(sequence, 3, True, 5)
    assert (adapter.workers, adapter.use_multiprocessing, adapter.max_queue_size) == (3, True, 5)
    assert len(adapter) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"sequence": 5}, TypeError, "takes a Sequence.*class `int`"),
        ({"sequence": iter([])}, TypeError, "takes a Sequence"),
        ({"sequence": [1, 2]}, TypeError, "class `list`\n  arrays become one by `InMemorySequence"),
        ({"workers": -1}, ValueError, "workers is at least 0; it was given -1"),
        ({"workers": 1.5}, TypeError, "workers is a whole number; it was given 1.5"),
        ({"workers": True}, TypeError, "workers is a whole number; it was given True"),
        ({"max_queue_size": 0}, ValueError, "max_queue_size is at least 1; it was given 0"),
    ],
)
def test_k8_other_arguments_are_one_clear_error(data, arguments, error, said):
    settings = dict({"sequence": data.InMemorySequence([1, 2], None, 1)}, **arguments)
    with pytest.raises(error, match=said):
        data.KerasDataAdapter(settings.pop("sequence"), **settings)


def test_an_adapter_needs_a_trial_to_build_batches(data):
    import pedl

    adapter = data.KerasDataAdapter(data.InMemorySequence([1, 2], None, 1))
    with pytest.raises(RuntimeError, match="call its `start` first"):
        adapter.get_iterator()
    with pytest.raises(pedl.NotUnderHost, match="does not run under pedl-run\n  start it with: pedl-run "):
        adapter.start()
    with pytest.raises(ValueError, match="the `InMemorySequence` of this KerasDataAdapter has no batches"):
        data.KerasDataAdapter(data.InMemorySequence([], None, 1)).start()
    with pytest.raises(ValueError, match="batch_offset is 3; a validation is one pass of 2 batches"):
        adapter.start(batch_offset=3, is_validation=True)
    adapter.stop()


@pytest.mark.parametrize(
    ("rows", "batch_size", "drop_leftovers", "sizes"),
    [(10, 4, False, [4, 4, 2]), (10, 4, True, [4, 4]), (8, 4, True, [4, 4]), (3, 4, True, []), (3, 4, False, [3])],
)
def test_in_memory_sequence(data, rows, batch_size, drop_leftovers, sizes):
    import numpy

    arrays = numpy.arange(rows), -numpy.arange(rows)
    sequence = data.InMemorySequence(*arrays, batch_size, drop_leftovers=drop_leftovers)
    batches = [sequence[index] for index in range(len(sequence))]
    assert [len(inputs) for inputs, _ in batches] == sizes
    for inputs, targets in batches:
        assert (inputs == -targets).all()
    with pytest.raises(IndexError):
        sequence[len(sequence)]
    sequence.on_epoch_end()


def test_in_memory_sequence_takes_several_inputs_and_weights(data):
    import numpy

    rows = numpy.arange(5)
    inputs, targets, weights = data.InMemorySequence({"a": rows, "b": rows * 2}, [rows, rows * 3], 2, rows * 4)[1]
    assert {name: array.tolist() for name, array in inputs.items()} == {"a": [2, 3], "b": [4, 6]}
    assert [array.tolist() for array in targets] == [[2, 3], [6, 9]]
    assert weights.tolist() == [8, 12]
    assert data.InMemorySequence(rows, None, 2)[2].tolist() == [4]
    with pytest.raises(ValueError, match="data has 5, labels has 4"):
        data.InMemorySequence(rows, rows[1:], 2)
    with pytest.raises(ValueError, match=r"data\['a'\] has 5, data\['b'\] has 3"):
        data.InMemorySequence({"a": rows, "b": rows[2:]}, None, 2)


def test_in_memory_sequence_is_one_for_the_framework(data):
    keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))
    assert issubclass(data.InMemorySequence, getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence)


def test_batch_loaders_of_the_first_model_definitions():
    import numpy
    from pedl.data import ArrayBatchLoader, Batch, BatchLoader, SliceBatchLoader, as_sequence

    class Squares(BatchLoader):
        def get_batch(self, start, end):
            return Batch(numpy.arange(start, end), numpy.arange(start, end) ** 2)

        def __len__(self):
            return 10

    rows = numpy.arange(10)
    for loader in [Squares(), ArrayBatchLoader(rows, rows**2)]:
        part = SliceBatchLoader(loader, 2, 7)
        assert (len(loader), len(part)) == (10, 7)
        assert part.get_batch(5, 9).data.tolist() == [7, 8]
        sequence = as_sequence(part, 3)
        assert [sequence[index][0].tolist() for index in range(len(sequence))] == [[2, 3, 4], [5, 6, 7], [8]]
        assert [sequence[index][1].tolist() for index in range(len(sequence))] == [[4, 9, 16], [25, 36, 49], [64]]
    with pytest.raises(ValueError, match="5 rows from row 6 on; the loader has 10"):
        SliceBatchLoader(Squares(), 6, 5)
    with pytest.raises(ValueError, match="data has 10, labels 9"):
        ArrayBatchLoader(rows, rows[1:])
