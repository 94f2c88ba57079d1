"""Several processes that train one model, as `torchrun` starts them: each is a rank, with a trial of its own.

What a rank has to do at the same batch as all others is agreed upon by one exchange at the end of each batch: whether a
signal that asks for the end has come to any of them, and whether a checkpoint is to be taken (its time is that of rank 0).
No rank takes one before all have written the one before: so there are always two moments of which all have a checkpoint,
or one that they share and none is in the middle of. A replay exchanges nothing.

Gradients are averaged by `DistributedDataParallel`. Its buckets of gradients stay as they were made, so that a start that goes
on adds up in the same order.

Source: torch 2.15, torch/nn/parallel/distributed.py; torch/csrc/distributed/c10d/reducer.cpp, `should_rebuild_buckets`.
"""
import contextlib
import json
import os
import zlib

from py_hooks.advice import calls as recorder

# What the environment of a rank tells besides its numbers.
_MEETING = ("MASTER_ADDR", "MASTER_PORT")

# What a process ends with that has lost another rank: the same command may go on.
_LOST = 75

# What errors of gloo, and of the store where ranks meet, name.
_CONNECTING = "gloo", "Connection", "connection", "TCPStore", "Broken pipe", "socket", "failed to recv"

# Where they are raised. The C++ below has no frames of its own.
_BETWEEN_RANKS = "/torch/distributed/", "/torch/nn/parallel/distributed.py", "/torch/autograd/"

_NOTHING = contextlib.nullcontext()

# What an exchange is for.
_BATCH, _SAVE, _END = 1, 2, 3

# Fields of the launch message that are the same for all ranks.
_COMMON = (
    "command",
    "hyperparameters",
    "trial_seed",
    "batches_per_step",
    "steps",
    "validation_period",
    "checkpoint_period",
    "checkpoint_batches",
)


class One:
    """One process, which has nobody to agree with. What its methods are: `Ranks`."""

    size = 1
    rank = 0
    key = ()

    def wrapped(self, model, device):
        """The model itself."""
        return model

    def device(self):
        """A GPU, where there is one."""
        import torch

        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def watch(self, order):
        """Nothing."""

    def compare(self, described):
        """Nothing."""

    def compare_resumption(self):
        """Nothing."""

    def guard(self):
        """Nothing."""
        return _NOTHING

    def level(self, model, wrapped, measured):
        """The metrics as they are."""
        return measured

    def share(self, live):
        """What `live()` returns."""
        return live()


class Ranks:
    """The processes that train one model, as one of them sees them.

    Args:
        calls: the recorder.
        told: what the host says of them.

    Attributes:
        size: how many there are.
        rank: which one this is.
        key: what is added to keys of random streams that are not those of all ranks.
    """

    def __init__(self, calls, told):
        self._calls = calls
        self.size, self.rank, self._local = told["size"], told["rank"], told["local_rank"]
        self.key = ("rank", self.rank) if self.rank else ()
        self._order = None
        self._signal = 0
        self._join()
        calls.agreement = self

    def _join(self):
        import torch.distributed

        missing = [name for name in _MEETING if not os.environ.get(name)]
        if missing:
            recorder.stop(
                self._calls,
                65,
                f"`WORLD_SIZE` is {self.size}, and the environment variable `{missing[0]}` is not set\n"
                "  expected: where the ranks meet\n  nothing was trained",
                "start the ranks with `torchrun --no-python --nproc_per_node N pedl-run ...`",
            )
        with self.guard():
            if not torch.distributed.is_initialized():
                torch.distributed.init_process_group("gloo", store=self._store(), rank=self.rank, world_size=self.size)

    def _store(self):
        """Where the ranks meet. That of `torchrun` lives on at a restart, and holds the addresses of those who are gone."""
        from torch.distributed import PrefixStore, TCPStore

        is_of_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        host, port = (os.environ[name] for name in _MEETING)
        store = TCPStore(host, int(port), self.size, self.rank == 0 and not is_of_torchrun)
        return PrefixStore("pedl-run {}".format(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")), store)

    def device(self):
        """Where this rank trains: each has a GPU of its own."""
        import torch

        if not torch.cuda.is_available():
            return torch.device("cpu")
        torch.cuda.set_device(self._local)
        return torch.device("cuda", self._local)

    def watch(self, order):
        """Has the order of the training data compared between ranks.

        Args:
            order: returns a number that stands for the order of the running pass, of all ranks.
        """
        self._order = order

    def guard(self):
        """Within it, a rank that is lost ends this one too, with a message."""
        return _Guard(self)

    def lost(self, error):
        """Another rank is lost, as this error says: ends the process."""
        what = str(error).splitlines()[0]
        recorder.stop(
            self._calls,
            _LOST,
            f"rank {self.rank} of {self.size} has lost another rank\n  {what[:200]}\n"
            "  the run was stopped; every checkpoint that was committed is kept",
            "start all ranks again with the same commands: they go on from the newest checkpoint that all of them have",
        )

    # -- before the first batch ----------------------------------------------------------------------------------------

    def compare(self, described):
        """Ends the process where ranks do not train the same.

        Args:
            described: texts by what they describe, which are the same for all.
        """
        launch = json.loads(self._calls.trial.launch)
        mine = {f"`{name}`": json.dumps(launch.get(name), sort_keys=True) for name in _COMMON}
        mine.update({f"`{name}`": value for name, value in launch["configuration"].items() if name != "ranks"})
        mine["a trial that is begun anew"] = str(launch["replaces"] is not None)
        self._compare({**mine, **described})

    def compare_resumption(self):
        """Ends the process where ranks do not go on from the same call."""
        self._compare({"the calls before the checkpoint": str(self._calls.trial.resume_call)})

    def _compare(self, mine):
        import torch.distributed

        everyone = [None] * self.size
        with self.guard():
            torch.distributed.all_gather_object(everyone, mine)
        names = sorted(set().union(*everyone))
        for other, told in enumerate(everyone):
            differing = [name for name in names if told.get(name) != everyone[0].get(name)]
            if differing:
                name = differing[0]
                recorder.stop(
                    self._calls,
                    65,
                    f"the ranks do not train the same: they differ in {name}\n"
                    f"  rank 0: {everyone[0].get(name)}\n  rank {other}: {told.get(name)}\n  nothing was trained",
                    "start all ranks with one command; or with `--fresh`, which begins a new trial",
                )

    # -- batches -------------------------------------------------------------------------------------------------------

    def wrapped(self, model, device):
        """The model that is trained by: what it computes has gradients that are averaged over the ranks.

        Which parameters a batch leaves out is known only behind it, when it would be too late to have them looked for. So they
        are looked for in each, and torch says once at each start of a model that uses all of them that it need not.
        """
        import torch

        class Averaged(torch.nn.parallel.DistributedDataParallel):
            """Counts its calls, and has the attributes of the model."""

            forwards = 0

            def __getattr__(self, name):
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(super().__getattr__("module"), name)

            def forward(self, *args, **kwargs):
                self.forwards += 1
                return super().forward(*args, **kwargs)

        with self.guard():
            return Averaged(
                model, device_ids=[device.index] if device.type == "cuda" else None, find_unused_parameters=True
            )

    def level(self, model, wrapped, measured):
        """A batch was trained: buffers are those of rank 0 from now on. Returns the metrics, numbers as means of all ranks."""
        import torch

        if not wrapped.forwards:
            recorder.stop(
                self._calls,
                65,
                "the loss of a batch was not computed by calling the model that `train_batch` was given\n"
                "  expected: `model(...)`; what is computed in another way is not averaged over the ranks\n"
                "  the trial was stopped",
                "call the argument `model` of `train_batch`",
            )
        wrapped.forwards = 0
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, 0)
        names = [name for name, value in measured.items() if isinstance(value, (int, float))]
        own = zlib.crc32(repr(names).encode())
        values = torch.tensor([own, *(measured[name] for name in names)], dtype=torch.float64)
        torch.distributed.all_reduce(values)
        means = (values / self.size).tolist()
        if means[0] != own:
            self._differ("the names of the metrics of a batch")
        return {**measured, **dict(zip(names, means[1:]))}

    def share(self, live):
        """What `live()` returns to rank 0, which alone calls it."""
        import torch.distributed

        held = [live() if self.rank == 0 else None]
        with self.guard():
            torch.distributed.broadcast_object_list(held, 0)
        return held[0]

    def of_batch(self, due):
        """A batch ended, after which so much is due to this rank. Returns what is due to all."""
        calls, trial = self._calls, self._calls.trial
        is_due = self.rank == 0 and due & recorder.CHECKPOINT_DUE
        wanted = bool(due & recorder.CHECKPOINT_WANTED)
        everyone = self._exchanged(_BATCH, trial.pending_signal, bool(is_due), wanted, trial.saving())
        signal, by_time, wanted, busy = (max(column) for column in zip(*everyone))
        due &= ~(recorder.CHECKPOINT_DUE | recorder.CHECKPOINT_WANTED)
        if signal:
            self._signal = signal
            due |= recorder.SIGNAL
        if wanted or (by_time and not busy):
            due |= recorder.CHECKPOINT_DUE | (recorder.CHECKPOINT_WANTED if wanted else 0)
        return due if calls.takes_checkpoints else due & ~recorder.CHECKPOINT_DUE

    def heed_signal(self):
        """A signal came to this rank, or to another, which end at one batch."""
        calls = self._calls
        if not calls.trial.pending_signal and self._signal:
            calls.save(is_wanted=True)
            calls.guarded(calls.trial.wait_saved)
            os.kill(os.getpid(), self._signal)
        calls.heed_signal()

    def may_save(self):
        """A checkpoint is to be taken: waits until all ranks have written the one before. Whether all of them take it."""
        self._calls.guarded(self._calls.trial.wait_saved)
        self._exchanged(_SAVE)
        return self._calls.takes_checkpoints

    def end(self):
        """The trial has ended: waits for the last checkpoint of all ranks, so that none counts as over before the others."""
        import torch.distributed

        self._calls.guarded(self._calls.trial.wait_saved)
        self._exchanged(_END)
        torch.distributed.destroy_process_group()

    def _exchanged(self, purpose, *told):
        """What all ranks tell, by rank."""
        import torch
        import torch.distributed

        calls = self._calls
        order = self._order() if self._order is not None else 0
        common = [purpose, calls.batches, order]
        own = torch.zeros(8, dtype=torch.int64)
        own[: 4 + len(told)] = torch.tensor([*common, int(calls.takes_checkpoints), *map(int, told)])
        everyone = [torch.empty_like(own) for _ in range(self.size)]
        with self.guard():
            torch.distributed.all_gather(everyone, own)
        everyone = [one.tolist() for one in everyone]
        for place, name in enumerate(("what they do", "the batch", "the order of the training data")):
            if any(one[place] != common[place] for one in everyone):
                self._differ(name)
        if calls.takes_checkpoints and not all(one[3] for one in everyone):
            calls.refuse_exactness("another rank takes no checkpoints")
        return [one[4 : 4 + len(told)] for one in everyone]

    def _differ(self, name):
        recorder.stop(
            self._calls,
            65,
            f"the ranks do not train the same: they differ in {name}\n  rank {self.rank}, batch {self._calls.batches}\n"
            "  the trial was stopped; every checkpoint that was committed is kept",
            "look for what a rank does by its own number or time, such as the seed of a sampler",
        )


class _Guard:
    """`with`: an error that says that another rank is lost ends the process.

    Such an error comes out of what torch does between ranks, and in the words of what connects them. What the user's own
    code raises, whatever its words are, and torch anywhere else, passes.
    """

    __slots__ = ("_ranks",)

    def __init__(self, ranks):
        self._ranks = ranks

    def __enter__(self):
        return None

    def __exit__(self, kind, error, trace):
        if isinstance(error, RuntimeError) and _is_of_connection(error) and _is_between_ranks(trace):
            self._ranks.lost(error)


def _is_of_connection(error):
    return any(word in str(error) for word in _CONNECTING)


def _is_between_ranks(trace):
    """Whether something was raised by what torch does between ranks: where it averages gradients, in `backward`, too."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename
    return file == __file__ or any(part in file for part in _BETWEEN_RANKS)


def of(calls, told):
    """The ranks of this process: `Ranks`, or `One` where the host tells of none."""
    return Ranks(calls, told) if told else One()
