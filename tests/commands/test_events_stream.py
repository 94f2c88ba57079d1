"""The parent process of a run can read its events from a pipe, and cannot disturb the run by that."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import support

pytestmark = pytest.mark.stack("each-keras")

F_SETPIPE_SZ = 1031

SCRIPT = """
import hashlib
import os
import signal
import numpy as np
import keras
if os.environ.get("SIGPIPE") == "deadly":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
model.compile("sgd", "mse")
model.set_weights([np.ones((2, 1)), np.zeros(1)])
x = np.arange(400.0).reshape(200, 2) / 400
for _ in range(int(os.environ.get("FITS", 1))):
    model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, shuffle=False)
print(hashlib.sha256(model.get_weights()[0].tobytes()).hexdigest())
"""


class Run:
    """A run of the script with the writing end of a pipe as one of its files."""

    def __init__(self, directory, writer, by_variable=False, **variables):
        directory.mkdir()
        (directory / "train.py").write_text(SCRIPT)
        options = ["--batches-per-step", "10", "--checkpoint-seconds", "0", "--python", sys.executable]
        environment = support.clean_environment(variables)
        if by_variable:
            environment["PEDL_EVENTS_FD"] = str(writer)
        else:
            options += ["--events-fd", str(writer)]
        self.trial = support.Trial(directory / ".pedl" / "train")
        command = [support.executable()] + options + ["train.py"]
        self.process = subprocess.Popen(
            command, cwd=str(directory), env=environment, pass_fds=[writer],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
        )  # fmt: skip

    def end(self):
        """Waits for the end; returns what it printed."""
        stdout, stderr = self.process.communicate(timeout=support.TIMEOUT)
        assert self.process.returncode == 0, stderr
        return stdout


@pytest.mark.parametrize("by_variable", [False, True], ids=["--events-fd", "PEDL_EVENTS_FD"])
def test_a_parent_reads_every_event(tmp_path, by_variable):
    reader, writer = os.pipe()
    run = Run(tmp_path / "run", writer, by_variable)
    os.close(writer)
    read = []
    with os.fdopen(reader) as lines:
        thread = threading.Thread(target=lambda: read.extend(map(json.loads, lines)))
        thread.start()
        run.end()
        # The pipe ends with the run, because no other process holds it open.
        thread.join(10)
        assert not thread.is_alive()
    assert read == run.trial.events
    kinds = [event["event"] for event in read]
    assert kinds[0] == "trial_begun"
    assert kinds.count("step") == 10
    assert kinds[-1] == "trial_ended"
    assert "checkpoint" in kinds


def test_a_pipe_that_is_full_or_closed_disturbs_nothing(tmp_path):
    outputs = []
    for reading in ("never", "gone", "gone, and SIGPIPE deadly"):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
        deadly = {"SIGPIPE": "deadly"} if "deadly" in reading else {}
        run = Run(tmp_path / reading.replace(",", "").replace(" ", "-"), writer, FITS="4", **deadly)
        os.close(writer)
        if reading != "never":
            os.close(reader)
        outputs.append(run.end())
        assert run.trial.count("step") == 40
        assert run.trial.events[-1]["event"] == "trial_ended"
        if reading == "never":
            held = os.read(reader, 1 << 16).decode()
            os.close(reader)
            # Whole lines, in their order: the first ones, and those that were short enough for the remaining room.
            lines = [json.loads(line) for line in held.splitlines()]
            assert 0 < len(lines) < len(run.trial.events)
            assert lines[0] == run.trial.events[0]
            events = iter(run.trial.events)
            assert all(line in events for line in lines), held
    assert len(set(outputs)) == 1


def test_a_stream_tells_of_a_restart(tmp_path):
    reader, writer = os.pipe()
    run = Run(tmp_path / "run", writer, FITS="10")
    os.close(writer)
    read, killed = [], False
    with os.fdopen(reader) as lines:
        for line in lines:
            read.append(json.loads(line))
            if not killed and read[-1]["event"] == "checkpoint":
                killed = True
                (trial_pid,) = support._children(run.process.pid)
                os.kill(trial_pid, signal.SIGKILL)
    run.end()
    kinds = [event["event"] for event in read]
    assert kinds.count("trial_begun") == 2
    assert kinds.index("restart") < kinds.index("resumed") < kinds.index("trial_ended")
