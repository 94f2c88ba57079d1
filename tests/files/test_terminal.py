"""One line on the terminal shows the progress of the training, and is never mixed with a line of the script."""

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest
import support

pytestmark = pytest.mark.stack("each-keras")

SCRIPT = """
import sys
import time
import numpy as np
import keras

class Slow(keras.callbacks.Callback):
    def on_batch_end(self, batch, logs=None):
        time.sleep(0.02)

model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
model.compile("sgd", "mse")
x = np.arange(400.0).reshape(200, 2) / 400
print("the script begins", flush=True)
model.fit(x, x[:, :1], batch_size=4, epochs=3, verbose=int(sys.argv[1]), callbacks=[Slow()])
print("the script ends", flush=True)
if "fail" in sys.argv:
    raise RuntimeError("of the script")
"""

# Keras 3 colours the numbers of its bar.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """What a terminal shows of the text written to it: the lines, and every state that each of them had."""

    def __init__(self):
        self.lines = [""]
        self.column = 0
        self.states = set()

    def feed(self, text):
        """Writes more text to it."""
        for part in re.findall(r"\x1b\[K|[\r\n\b]|[^\x1b\r\n\b]+", COLOUR.sub("", text)):
            self._show(part)
            self.states.add(self.lines[-1])

    def _show(self, part):
        line = self.lines[-1]
        if part == "\r":
            self.column = 0
        elif part == "\b":
            self.column = max(0, self.column - 1)
        elif part == "\n":
            self.lines.append("")
        elif part == "\x1b[K":
            self.lines[-1] = line[: self.column]
        else:
            line = line.ljust(self.column)
            self.lines[-1] = line[: self.column] + part + line[self.column + len(part) :]
            self.column += len(part)


def on_terminal(directory, verbose, *arguments, options=(), stderr_too=True):
    """Runs the script on a terminal; returns the screen, the text written, and the exit code."""
    directory.mkdir()
    (directory / "train.py").write_text(SCRIPT)
    command = [support.executable(), "--python", sys.executable, "--batches-per-step", "10", "--checkpoint-seconds", "0"]
    command += list(options) + ["train.py", str(verbose)] + list(arguments)
    parent, child = pty.openpty()
    environment = support.clean_environment({"TERM": "xterm", "COLUMNS": "100"})
    with (directory / "stderr").open("wb") as elsewhere:
        process = subprocess.Popen(
            command, cwd=str(directory), env=environment, stdin=child, stdout=child,
            stderr=child if stderr_too else elsewhere, start_new_session=True,
        )  # fmt: skip
    os.close(child)
    written, deadline = b"", time.monotonic() + support.TIMEOUT
    while time.monotonic() < deadline:
        if not select.select([parent], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(parent, 65536)
        except OSError:  # Linux reports this when no process has the terminal open any more
            break
        written += part
    os.close(parent)
    code = process.wait()
    screen = Screen()
    screen.feed(written.decode())
    return screen, written.decode(), code


def progress_of(screen):
    return [state for state in screen.states if state.startswith("pedl: trial 1, step ")]


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_the_line_never_mixes_with_the_scripts(tmp_path, verbose):
    screen, written, code = on_terminal(tmp_path / "run", verbose)
    assert code == 0, written
    mixed = [state for state in screen.states if "pedl:" in state and (not state.startswith("pedl: ") or "the script" in state)]
    assert mixed == []
    # Nothing of it remains, and all lines of the script are complete.
    lines = [line.strip() for line in screen.lines]
    assert "the script begins" in lines
    assert lines[-2:] == ["the script ends", ""]
    assert not any(line.startswith("pedl: trial") for line in lines)
    assert "pedl: step" not in written
    if verbose == 0:
        last = max(progress_of(screen), key=len)
        assert re.search(r"step \d+, batch \d+, [\d.]+ batches/s, checkpoint \d+: loss [\d.e-]+", last), last
    else:
        assert sum(line.startswith("Epoch ") for line in lines) == 3
        assert sum("loss: " in line and "pedl" not in line for line in lines) >= 3


def test_what_is_said_besides_has_lines_of_its_own(tmp_path):
    screen, written, code = on_terminal(tmp_path / "run", 1, "fail", options=["--verbose"])
    assert code == 1, written
    lines = [line.strip() for line in screen.lines]
    # The last checkpoint may be written while the script ends.
    assert [line for line in lines if not line.startswith("pedl: checkpoint")][-2:] == ["RuntimeError: of the script", ""]
    said = [line for line in lines if "pedl: step " in line]
    assert len(said) == 15
    assert all(line.startswith("pedl: step ") for line in said)


@pytest.mark.parametrize("options", [["--quiet"], ["--log-format", "json"]], ids=" ".join)
def test_there_is_none_where_it_is_not_wanted(tmp_path, options):
    screen, written, code = on_terminal(tmp_path / "run", 0, options=options)
    assert code == 0, written
    assert progress_of(screen) == []
    assert "\x1b[K" not in written


def test_there_is_none_where_standard_error_is_no_terminal(tmp_path):
    screen, written, code = on_terminal(tmp_path / "run", 0, stderr_too=False)
    assert code == 0, written
    assert "pedl" not in written
    said = (tmp_path / "run" / "stderr").read_text()
    assert said.count("pedl: step ") == 15
    assert "\x1b" not in said
