"""The extension module `_pedl` alone: values and checkpoints are returned unchanged, and a child records nothing."""
import ast
import json
import math
import os
import re
import subprocess
import sys
import warnings
from functools import partial

import pytest
import support

# Most tests are about numpy, which only stacks with a framework have.
pytestmark = pytest.mark.stack("keras")

TYPES = support.ROOT / "shims" / "pedl" / "_pedl.pyi"

TRAIN, READ = 1, 5


@pytest.fixture
def start(native, tmp_path):
    """A function that starts a trial in one directory, any number of times, in this process."""

    def begun(**settings):
        trial = native.Trial(support.launch_message(tmp_path / "trial", **settings))
        trial.begin(json.dumps({"python": "3", "versions": {}, "cpu": ""}))
        return trial

    return begun


class Tensor:
    """An object that looks like a framework's tensor from outside."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class SymbolicTensor:
    """A tensor without a value."""

    def __array__(self, dtype=None, copy=None):
        raise NotImplementedError("a placeholder")


class Pair(tuple):
    """A tuple with a meaning beyond its items."""


def plain_values():
    """Values of Python's built-in types."""
    return [
        None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**20000), 0.1, -0.0, math.nan, -math.inf,
        "", "hé", "\ud800 alone", "x" * 1000, b"", b"\0\xff", b"x" * 1000,
        [], (), {}, [1, [2, (3, None)]], {"a": 1, 2: "b", (1, "x"): None, b"k": {"d": []}, "k" * 300: 0},
    ]


def numpy_values():
    """Scalars and arrays of numpy."""
    import numpy as np

    quiet, signalling = (np.frombuffer(bits, np.float32)[0] for bits in (b"\x01\0\xc0\x7f", b"\x01\0\xa0\x7f"))
    scalars = [
        np.float32(0.1), np.float32(-0.0), quiet, signalling, np.float64(0.1), np.float64("nan"), np.float16(1.5),
        np.longdouble(0.1), np.int8(-3), np.int64(3), np.uint64(2**64 - 1), np.bool_(True), np.complex64(1 + 2j),
        np.str_("hé"), np.str_(""), np.bytes_(b"q"), np.datetime64("2020-01-01T00:00:00", "ns"), np.timedelta64(3, "s"),
    ]
    arrays = [
        np.zeros(()), np.arange(6).reshape(2, 3), np.arange(24.0).reshape(4, 6).T, np.arange(9)[::2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((0, 3)), np.zeros((2, 0, 1), np.float16),
        np.arange(1000, dtype=np.float32), np.arange(90000.0).reshape(300, 300)[:, ::2],
        np.array(["ab", "c"]), np.array(["", ""]), np.arange(3, dtype=">i4"), np.array([True]),
        np.array(["2020-01-01"], "M8[D]"), np.array([b"ab", None, {"k": 1}], dtype=object).reshape(3, 1),
    ]
    return scalars + arrays + [{"loss": np.float32(0.5), np.int64(3): [np.zeros(3)]}] + registered_values()


def registered_values():
    """Scalars and arrays of dtypes that `ml_dtypes` registers with numpy."""
    import numpy as np

    try:
        import ml_dtypes
    except ImportError:
        return []
    names = ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3", "int4")
    dtypes = [getattr(ml_dtypes, name) for name in names]
    arrays = [np.array([0, 1, 2] * 100, dtype).reshape(-1, 3) for dtype in dtypes]
    return arrays + [np.zeros((), dtype) for dtype in dtypes] + [dtype(1) for dtype in dtypes]


def assert_same(found, expected):
    """Types, dtypes, shapes and bits are equal; and an array belongs to the caller, who may write into it."""
    import numpy as np

    if isinstance(expected, Tensor):
        expected = expected.array
    assert type(found) is type(expected)
    if isinstance(expected, (np.ndarray, np.generic)) and not expected.dtype.hasobject:
        assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
        if isinstance(found, np.ndarray):
            assert found.flags.writeable
            assert found.flags.owndata
            assert found.flags.c_contiguous
    elif isinstance(expected, np.ndarray):
        assert found.shape == expected.shape
        assert_same(found.tolist(), expected.tolist())
    elif isinstance(expected, dict):
        assert_same(list(found.items()), list(expected.items()))
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for found_item, expected_item in zip(found, expected):
            assert_same(found_item, expected_item)
    else:
        assert found == expected or found != found and expected != expected


def record(start, values):
    """Records values in one process and starts the trial again; returns it, and the key of the `i`th call."""
    trial = start()

    def key(trial, number):
        return READ, trial.intern("read"), trial.intern(f"train.py:{number % 3}"), number, 2**64 - 1 - number

    opaque = trial.append([key(trial, number) + (value,) for number, value in enumerate(values)])
    trial.save(0, [], "{}", [])
    trial.wait_saved()
    again = start()
    assert (again.position, again.resume_call) == (0, len(values))
    return again, lambda number: key(again, number), opaque


@pytest.mark.parametrize("values", [plain_values, numpy_values])
def test_values_come_back_as_they_were(start, values):
    values = values()
    trial, key, opaque = record(start, values)
    assert opaque == []
    for number, value in enumerate(values):
        kind, identity, _, _, arguments = key(number)
        assert trial.peek() == (kind, identity, arguments)
        assert_same(trial.answer(*key(number)), value)
    assert (trial.peek(), trial.position) == (None, len(values))


@pytest.mark.parametrize("values", [plain_values, numpy_values])
def test_a_value_that_is_computed_again_equals_its_record(start, values):
    values = values()
    trial, key, _ = record(start, values)
    for number, value in enumerate(values):
        trial.check(*key(number) + (value,))
    assert trial.position == len(values)


def test_tensors_go_through_what_makes_tensors(start):
    import numpy as np

    value = {"loss": Tensor(np.array(0.5, np.float32)), "kept": np.zeros(2), "large": [Tensor(np.ones(500))]}
    trial, key, _ = record(start, [value, value])
    assert_same(trial.answer(*key(0)), value)
    made = trial.answer(*key(1), tensor=Tensor)
    assert_same(made["kept"], value["kept"])
    for found, expected in ((made["loss"], value["loss"]), (made["large"][0], value["large"][0])):
        assert type(found) is Tensor
        assert_same(found.array, expected.array)


def test_what_cannot_be_recorded_is_named_and_never_answered(native, start):
    import numpy as np

    structure = np.zeros(2, [("a", "i4"), ("b", "f8")])
    values = [Pair((1, 2)), {"x": object()}, SymbolicTensor(), structure, np.ma.masked_array([1]), [object()]]
    trial, key, opaque = record(start, values)
    names = [name.rsplit(".", 1)[-1] for name in opaque]
    assert names == ["Pair", "object", "SymbolicTensor", "ndarray", "MaskedArray"]
    with pytest.raises(native.Error, match="could not be recorded"):
        trial.answer(*key(0))


def test_a_difference_carries_its_exit_code_and_advice(native, start):
    trial, key, _ = record(start, [1.5])
    kind, identity, site, draws, arguments = key(0)
    with pytest.raises(native.Divergence, match="after another number of random draws") as caught:
        trial.answer(kind, identity, site, draws + 1, arguments)
    assert caught.value.exit_code == 76
    assert "--fresh" in caught.value.hint
    with pytest.raises(native.Divergence, match="returned 1.5\n  now: .* returned 2.5"):
        trial.check(kind, identity, site, draws, arguments, 2.5)


def test_an_exception_of_the_values_own_code_passes_through(start):
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise OSError("the device is gone")

    with pytest.raises(OSError, match="the device is gone"):
        start().append([(READ, 0, 0, 0, 0, Broken())])


def test_checkpoint_arrays_come_back(start, tmp_path):
    import numpy as np

    arrays = [
        ("keras/1", np.arange(12, dtype=np.float32).reshape(3, 4)),
        ("keras/0", np.array(5)),
        ("transposed", np.arange(60000.0).reshape(200, 300).T),
        ("nothing", np.zeros((0, 2), np.uint8)),
        ("__metadata__", np.array(True)),
        ("ünï\n", np.zeros(3, np.complex64)),
    ]
    arrays += [(str(array.dtype), array) for array in registered_values()[:3]]
    kept = tmp_path / "kept.h5"
    kept.write_text("then")
    trial = start()
    for number in range(3):  # the second and third use the memory of the first
        trial.append([(READ, trial.intern("read"), trial.intern("train.py:1"), 0, 0, None)])
        trial.batch_done(float(number))
        scale = number + 1
        trial.save(number, [(name, array * array.dtype.type(scale)) for name, array in arrays], '{"n": 1}', [str(kept)])
        trial.wait_saved()
    kept.write_text("now")
    again = start()
    assert again.checkpoint_state() == '{"n": 1}'
    found = again.checkpoint_tensors()
    assert [name for name, _ in found] == [name for name, _ in arrays]
    for (_, array), (_, expected) in zip(found, arrays):
        assert_same(array, np.ascontiguousarray(expected * expected.dtype.type(3)).reshape(expected.shape))
    assert again.checkpoint_tensors() == []
    assert again.restore_file(str(kept))
    assert kept.read_text() == "then"
    assert not again.restore_file(str(tmp_path / "other.h5"))


def test_an_array_that_cannot_be_stored_is_told(native, start):
    import numpy as np

    trial = start()
    trial.save(0, [("names", np.array(["a", "b"]))], "{}", [])
    with pytest.raises(native.NotStorable, match="`names`"):
        trial.wait_saved()
    trial.wait_saved()


def test_steps_and_checkpoints_come_due(start):
    trial = start(checkpoint_period=2, checkpoint_seconds=1000.0)
    due = [trial.batch_done(float(batch)) for batch in range(6)]
    assert [each and (each.step_ended, each.checkpoint) for each in due] == [
        None, None, (True, False), None, None, (True, True),
    ]
    trial.save(0, [], "{}", [])
    due = [trial.batch_done(float(batch)) for batch in range(6, 9)]
    assert [each and (each.step_ended, each.checkpoint) for each in due] == [None, None, (True, False)]
    trial.wait_saved()
    assert not trial.saving()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_forked_child_records_nothing(start, tmp_path):
    trial = start()
    child = os.fork()
    if child == 0:
        inert = trial.append([(READ, 0, 0, 0, 0, 1.5)]) == [] and trial.batch_done(1.0) is None
        trial.save(0, [], "{}", [])
        trial.event('{"event": "child"}')
        trial.end()
        os._exit(0 if inert and trial.position == 0 and not trial.has_checkpoint() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not (tmp_path / "trial" / "latest").exists()
    assert "child" not in (tmp_path / "trial" / "events.jsonl").read_text()


def test_nothing_is_imported_and_nothing_touched_before_it_is_needed(native, tmp_path):
    command = [support.executable(), "--python", sys.executable, "-c"]
    command.append("import _pedl, sys; print('numpy' in sys.modules)")
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout == b"False\n"
    trial = native.Trial(support.launch_message(tmp_path / "trial"))
    assert (trial.seed, trial.no_hooks, trial.resume) == (7, ["torch"], False)
    assert trial.intern("train.py:1") == trial.intern("train.py:1")
    assert not trial.has_checkpoint()
    assert not (tmp_path / "trial").exists()


def test_the_types_name_what_there_is(native):
    tree = ast.parse(TYPES.read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    public = {name for name in dir(native) if isinstance(getattr(native, name), type)}
    assert set(classes) == public
    for name in ("Trial", "Pool", "PoolWorker", "Ahead", "ThreadTasks", "ThreadTask"):
        defined = {node.name: node.args.args for node in classes[name].body if isinstance(node, ast.FunctionDef)}
        kind = getattr(native, name)
        there = {member for member in vars(kind) if not member.startswith("_")}
        assert set(defined) - {"__new__"} == there
        if name != "Trial":
            for member in (member for member in there if callable(getattr(kind, member))):
                words = re.findall("[a-z_]+", getattr(kind, member).__text_signature__)
                assert [argument.arg for argument in defined[member]] == words, member


def test_the_quick_checksum_of_a_batch(native):
    numpy = pytest.importorskip("numpy")
    x = numpy.arange(12, dtype="float32").reshape(4, 3)
    checksum = partial(native.Trial.batch_checksum, named_values={})
    assert checksum((x, None)) == checksum((x.copy(), None)) != 0
    large = numpy.zeros(100000)
    others = [(x,), (x.reshape(3, 4), None), (x + 1, None), (x, x), (x[::-1].copy(), None), (x, True), (x, False)]
    for place in (0, 50000, 99999):
        other = large.copy()
        other[place] = 1
        others.append((other,))
    assert len({checksum(values) for values in [(x, None), (large,), *others]}) == len(others) + 2
    text, records = numpy.array(["a"]), numpy.zeros(2, dtype=[("a", "f4"), ("b", "f4")])
    for values in [("text",), (numpy.array([None]),), ([x],), (numpy.float32(1),), (text,), (records,)]:
        assert checksum(values) == 0


def test_how_a_batch_lies_in_memory_makes_no_difference(native):
    numpy = pytest.importorskip("numpy")
    checksum = partial(native.Trial.batch_checksum, named_values={})
    x = numpy.arange(60, dtype="float32").reshape(10, 6)
    readonly = x.copy()
    readonly.flags.writeable = False
    views = [x[2:5], x[::-1], x[:, ::2], x.T, x[:0], x[:, :0], readonly, x[3, 4:5].reshape(()), x.astype(">f4")]
    found = [checksum((view,)) for view in views]
    assert found == [checksum((numpy.array(view, order="C"),)) for view in views]
    assert 0 not in found
    assert len(set(found)) == len(views)


def test_arrays_that_warn_when_they_may_be_written_are_read_in_silence(native):
    numpy = pytest.importorskip("numpy")
    checksum = partial(native.Trial.batch_checksum, named_values={})
    shared, _ = numpy.broadcast_arrays(numpy.arange(3.0), numpy.zeros((3,)))
    spread, _ = numpy.broadcast_arrays(numpy.arange(3.0), numpy.zeros((2, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checksum((shared,)) == checksum((numpy.arange(3.0),))
        assert checksum((spread,)) == checksum((spread.copy(),)) != 0
