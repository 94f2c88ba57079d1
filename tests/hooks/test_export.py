"""`pedl checkpoint export` of a checkpoint from somebody else: it runs no code of the checkpoint, and says why."""
import json

import pytest

from py_hooks.verbs import export

EVIL = "\x1b]0;title\x07\n\u202e"


@pytest.fixture
def exported(tmp_path, capsys):
    """A function that exports a model that a checkpoint claims to contain. Returns the exit code, and the message."""

    def run(model, target="model.keras", trusted="0"):
        whole = {
            "number": 0, "class": "keras.Sequential", "framework": "keras", "version": "3.13.2", "backend": "jax",
            "architecture": None, "why_not": "", "weights": [["kernel", "a"]],
        }  # fmt: skip
        whole.update(model)
        (tmp_path / "state.json").write_text(json.dumps({"models": [whole]}))
        header = json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        (tmp_path / "tensors.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"x")
        code = export.main([str(tmp_path), str(tmp_path / target), "", "0", "9", trusted])
        return code, capsys.readouterr().err

    return run


PARTS = {
    "lambda of Keras 3": {"class_name": "Lambda", "config": {"function": {"class_name": "__lambda__", "config": {"code": ""}}}},
    "lambda of Keras 2": {"class_name": "Lambda", "config": {"function": ["4wEA", None, None], "function_type": "lambda"}},
    "module": {"class_name": "Popen", "module": "subprocess", "config": {"args": ["touch", "/tmp/x"]}},
    "module of a function": {"class_name": "Dense", "config": {"activation": {"module": "os", "class_name": "system"}}},
}


@pytest.mark.parametrize("part", sorted(PARTS))
def test_an_architecture_that_holds_or_names_code_is_not_built(exported, part, tmp_path):
    architecture = {"class_name": "Sequential", "module": "keras", "config": {"layers": [{"inner": [PARTS[part]]}]}}
    code, said = exported({"architecture": json.dumps(architecture)})
    assert code == export.DAMAGED, said
    assert "it was not built" in said
    assert "--trust" in said
    assert not (tmp_path / "model.keras").exists()
    # The weights contain no code.
    assert exported({"architecture": json.dumps(architecture)}, "weights.safetensors")[0] == 0


def test_what_a_framework_names_is_no_code():
    usual = {"class_name": "Dense", "module": "keras.layers", "registered_name": None, "config": {
        "activation": "relu", "kernel_initializer": {"module": "keras.initializers", "class_name": "GlorotUniform", "config": {}},
        "dtype": {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}}, "function_type": "function",
    }}  # fmt: skip
    assert export._code_in({"config": {"layers": [usual, {"module": "builtins", "class_name": "function"}]}}) is None


@pytest.mark.parametrize(
    "model",
    [
        {"framework": "antigravity"}, {"framework": 7}, {"weights": [["kernel", "../b"]]}, {"weights": [7]},
        {"weights": [[7, "a"]]}, {"architecture": "["}, {"architecture": "[" * 100000}, {"architecture": 7},
    ],
    ids=["framework", "number", "tensor", "no pair", "no name", "no JSON", "deep", "no text"],
)  # fmt: skip
def test_what_pedl_run_does_not_write_is_refused(exported, model):
    code, said = exported(model)
    assert code == export.DAMAGED, said


def test_names_do_nothing_to_a_terminal(exported):
    code, said = exported({"class": EVIL, "why_not": EVIL, "architecture": "["})
    assert code == export.DAMAGED
    assert not [character for character in said if character != "\n" and not character.isprintable()]
    assert r"(`\u001b]0;title\u0007\n\u202e`)" in said
