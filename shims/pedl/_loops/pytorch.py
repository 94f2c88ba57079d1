"""Trains `PyTorchTrial`: the loop over batches, of both kinds of classes.

A batch is one recorded call. In a replay it is answered, and its data is skipped. At the batch of the checkpoint, the state of
the model, of its optimizer and of its scheduler is restored.
"""
from __future__ import annotations

import importlib
import itertools
import operator
import os

from pedl._context import context
from pedl._loops import metrics
from pedl._loops.pytorch_ways import way_of
from pedl.errors import DefinitionError
from pedl.frameworks.pytorch.lr_scheduler import LRScheduler
from pedl.trial import call_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pedl._loops.host import OfTorch, Pass, Passes, TrialHost
    from pedl._loops.pytorch_ways import OfBatches, OfLosses
    from pedl._loops.run import Loaders
    from pedl._loops.steps import Steps
    from pedl.frameworks.pytorch.pytorch_trial import PyTorchTrial

_L2_NORM, _VALUE = "clip_grad_l2_norm", "clip_grad_val"


def run(trial: PyTorchTrial, loaders: Loaders, hparams: dict[str, Any], steps: Steps, host: TrialHost) -> None:
    """Trains the trial. The arguments are explained in `pedl._loops.run`."""
    torch = importlib.import_module("torch")
    way = way_of(trial)
    clip = _clipping(hparams, torch)
    training = host.of_torch(context().get("ranks"))
    ranks = training.ranks
    pair = [_checked_loader(loader, torch) for loader in loaders.make()]
    _check_batch_size(way, pair, host)
    if ranks.size > 1:
        _check_shares(pair[0], torch)
    device = ranks.device()
    model = _checked(call_with(trial.build_model, hparams=hparams), torch.nn.Module, "build_model").to(device)
    optimizer = _checked(trial.optimizer(model), torch.optim.Optimizer, "optimizer")
    scheduler = trial.create_lr_scheduler(optimizer)
    if scheduler is not None:
        _checked(scheduler, LRScheduler, "create_lr_scheduler")
    training.provide(trial, model, optimizer, scheduler, pair)
    host.saved_by(lambda directory: _saved(torch, directory, model, optimizer, scheduler))
    passes = [training.passes(pair[0], is_shared=True), training.passes(pair[1])]
    training.compare(host.described())
    host.begin(training.causes())
    ranks.compare_resumption()
    loop = _Loop(torch, training, host, steps, way, model, device, passes)
    loop.optimize_with(optimizer, scheduler, clip)
    with host.loop():
        loop.train()
    loop.close()


def _saved(torch: Any, directory: str, model: Any, optimizer: Any, scheduler: LRScheduler | None) -> str:
    """Saves the model, the optimizer and the scheduler, without the host. Returns the path of the file for `torch.load`."""
    saved = {"model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict()}
    if scheduler is not None:
        saved["lr_scheduler_state_dict"] = scheduler._scheduler.state_dict()
    path = os.path.join(directory, "trial.pt")
    torch.save(saved, path)
    return path


def _checked(value: Any, kind: type, method: str) -> Any:
    if not isinstance(value, kind):
        raise DefinitionError(
            f"`{method}` returned an object of class `{type(value).__name__}`\n"
            f"  expected: a `{kind.__module__.partition('.')[0]}` object of class `{kind.__name__}`",
            "wrap it, as in `LRScheduler(scheduler, step_every_epoch=True)`" if kind is LRScheduler else None,
        )
    return value


def _checked_loader(loader: Any, torch: Any) -> Any:
    kind = importlib.import_module("pedl.frameworks.pytorch.data").DataLoader
    if isinstance(loader, kind):
        return loader
    is_torchs = isinstance(loader, torch.utils.data.DataLoader)
    raise DefinitionError(
        "`make_data_loaders` returned {}\n  expected: a `pedl.frameworks.pytorch.DataLoader`".format(
            "a `DataLoader` of torch itself" if is_torchs else f"an object of class `{type(loader).__name__}`"
        ),
        "it takes the same arguments: `from pedl.frameworks.pytorch import DataLoader`",
    )


def _check_shares(loader: Any, torch: Any) -> None:
    """Checks that the training data can be shared among several processes, by indices."""
    if isinstance(loader.dataset, torch.utils.data.IterableDataset) or not hasattr(loader.dataset, "__len__"):
        problem = "has an iterable data set", "a data set with indices and a length, of which each rank has its share"
    elif isinstance(loader.sampler, torch.utils.data.DistributedSampler):
        problem = "has a `DistributedSampler`", "a sampler of the whole data set: each rank has its share of what that draws"
    elif type(loader).__iter__ is not torch.utils.data.DataLoader.__iter__:
        problem = "has an `__iter__` of its own", "that of `DataLoader`"
    else:
        return
    raise DefinitionError(
        f"the loader of the training data {problem[0]}, and several ranks train\n  expected: {problem[1]}\n  nothing was trained"
    )


def _check_batch_size(way: OfBatches | OfLosses, pair: list[Any], host: TrialHost) -> None:
    size = way.batch_size()
    if size is None:
        return
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise DefinitionError(f"`batch_size` returned {size!r}\n  expected: a whole number above 0")
    of_loader = pair[0].batch_size
    if of_loader is not None and of_loader != size:
        host.say(f"`batch_size` returned {size}, and the loader of the training data has {of_loader}, which is used")


def _clipping(hparams: dict[str, Any], torch: Any) -> Callable[[Any], Any] | None:
    """A function that clips the gradients of parameters; None if the hyperparameters ask for none."""
    norm, value = hparams.get(_L2_NORM), hparams.get(_VALUE)
    if norm is not None and value is not None:
        raise DefinitionError(
            f"the hyperparameters `{_L2_NORM}` and `{_VALUE}` are both given\n  expected: one of them",
            "leave one of them out",
        )
    for name, limit in ((_L2_NORM, norm), (_VALUE, value)):
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit <= 0):
            raise DefinitionError(f"the hyperparameter `{name}` is {limit!r}\n  expected: a number above 0")
    clip = torch.nn.utils
    if norm is not None:
        return lambda parameters: clip.clip_grad_norm_(parameters, norm)
    if value is not None:
        return lambda parameters: clip.clip_grad_value_(parameters, value)
    return None


class _Loop:
    """The loop over the batches of a trial.

    Args:
        torch: the module.
        training: an object of the host, for random numbers and data.
        host: counts batches.
        steps: calls the user's callbacks.
        way: what the class does with a batch.
        model: the model.
        device: the device of the model.
        passes: those over the training data, and those over the validation data.
    """

    _validated: int | None
    _names: list[str] | None
    # These are set before the first batch.
    _optimizer: Any
    _gradients: Any
    _scheduler: Any
    _mode: LRScheduler.StepMode | None
    _clip: Callable[[Any], Any] | None

    def __init__(
        self,
        torch: Any,
        training: OfTorch,
        host: TrialHost,
        steps: Steps,
        way: OfBatches | OfLosses,
        model: Any,
        device: Any,
        passes: list[Passes],
    ) -> None:
        self._torch = torch
        self._training = training
        self._host = host
        self._steps = steps
        self._way = way
        self._model = model
        self._ranks = training.ranks
        # The module that gradients come from.
        self._trained = self._ranks.wrapped(model, device)
        self._device = device
        self._data = _Epochs(passes[0])
        self._validation = passes[1]
        self._validated = None
        self._validations = 0
        self._names = None
        self._means = metrics.Means(host.say)
        self._optimizer = self._gradients = self._scheduler = self._mode = self._clip = None

    def optimize_with(
        self, optimizer: Any, scheduler: LRScheduler | None, clip: Callable[[Any], Any] | None
    ) -> None:
        """Sets the optimizer, the scheduler and the clipping."""
        self._optimizer = optimizer
        self._gradients = _Gradients(self._model, optimizer)
        self._clip = clip
        if scheduler is not None:
            # `step` of `LRScheduler` is for the user.
            self._scheduler, self._mode = scheduler._scheduler, scheduler.step_mode

    def train(self) -> None:
        """Trains the remaining batches of the plan."""
        host, steps = self._host, self._steps
        train_batch = self._ranks.with_guard(self._train_batch)
        self._model.train()
        while host.batches_left != 0:
            steps.batch_begins()
            measured = host.train(train_batch, self._skip_batch)
            steps.batch_ended(measured)
            if host.is_validation_due:
                self._validate()
        if self._validated != host.batches:
            self._validate()

    def close(self) -> None:
        """Ends the workers of the loaders."""
        self._data.close()
        self._validation.close()

    # -- a batch -------------------------------------------------------------------------------------------------------

    def _skip_batch(self) -> None:
        self._data.skip()

    def _train_batch(self, number: int) -> dict[str, Any]:
        data, way = self._data, self._way
        with self._training.of_batch(number) as drawing:
            batch = data.take()
            drawing.compute()
            if data.has_begun_late:
                self._step_scheduler(LRScheduler.StepMode.STEP_EVERY_EPOCH)
            measured = way.train(self._on_device(batch), self._trained, data.epoch, number)
            if not isinstance(measured, dict):
                measured = {"loss": measured}
            metrics.checked(measured, way.training, self._names)
            if self._names is None:
                self._names = list(measured)
            self._make_step(_loss_of(measured, way.training, self._torch))
            return self._ranks.level(self._model, self._trained, _plain(measured))

    def _make_step(self, loss: Any) -> None:
        loss.backward()
        if self._clip is not None:
            self._clip(self._model.parameters())
        self._optimizer.step()
        self._gradients.forget()
        if self._scheduler is not None:
            self._step_scheduler(LRScheduler.StepMode.STEP_EVERY_BATCH)
            if self._data.is_at_end:
                self._step_scheduler(LRScheduler.StepMode.STEP_EVERY_EPOCH)

    def _step_scheduler(self, mode: LRScheduler.StepMode) -> None:
        if self._mode is mode:
            self._scheduler.step()

    # -- validations ---------------------------------------------------------------------------------------------------

    def _validate(self) -> None:
        host = self._host
        self._steps.validation_begins()
        self._validations += 1
        data = _Counted(self._validation)
        measured, begun = host.validate(lambda: self._ranks.share(lambda: self._evaluate(data)))
        data.catch_up(begun)
        host.validated(metrics.scalars(measured))
        self._validated = host.batches
        self._steps.validated(measured)

    def _evaluate(self, data: _Counted) -> list[Any]:
        torch, model = self._torch, self._model
        with self._training.alone("validation", self._validations):
            model.eval()
            try:
                with torch.no_grad():
                    measured = self._measured(data)
            finally:
                model.train()
        return [measured, data.begun]

    def _measured(self, data: _Counted) -> dict[str, Any]:
        way = self._way
        if way.takes_full_dataset:
            view = _LoaderView(self._validation.loader, data, self._on_device)
            return _plain(metrics.checked(way.validate(view, self._model), way.validation))
        batches: list[dict[str, Any]]
        known: list[str] | None
        batches, known = [], None
        for batch in data.begin():
            measured = _plain(metrics.checked(way.validate(self._on_device(batch), self._model), way.validation, known))
            known = list(measured)
            batches.append(measured)
        return self._means.of(batches)

    def _on_device(self, batch: Any) -> Any:
        """A batch in any nesting of tuples, lists and dicts: arrays become tensors, on the model's device."""
        torch, device = self._torch, self._device
        if isinstance(batch, torch.Tensor):
            return batch if batch.device == device else batch.to(device)
        if type(batch) is list:
            # Loaders give lists. This avoids a call for each tensor.
            return [
                one if isinstance(one, torch.Tensor) and one.device == device else self._on_device(one) for one in batch
            ]
        if isinstance(batch, dict):
            return {name: self._on_device(one) for name, one in batch.items()}
        if isinstance(batch, tuple) and hasattr(batch, "_fields"):
            return type(batch)(*map(self._on_device, batch))
        if isinstance(batch, (list, tuple)):
            return type(batch)(map(self._on_device, batch))
        if getattr(getattr(batch, "dtype", None), "kind", "O") in "biufc":
            return torch.as_tensor(batch).to(device)
        return batch


def _loss_of(measured: dict[str, Any], method: str, torch: Any) -> Any:
    """The loss that is minimized."""
    if "loss" not in measured:
        raise DefinitionError(
            f"`{method}` returned the metrics {', '.join(f'`{name}`' for name in sorted(measured)) or 'none'}\n"
            '  expected: a dict with "loss" in it, or the loss itself'
        )
    loss = measured["loss"]
    if not isinstance(loss, torch.Tensor):
        raise DefinitionError(
            f"the loss that `{method}` returned is an object of class `{type(loss).__name__}`\n  expected: a tensor"
        )
    if loss.dim() or not loss.requires_grad:
        what = "that depends on no parameter of the model" if not loss.dim() else f"of the shape {tuple(loss.shape)}"
        raise DefinitionError(
            f"the loss that `{method}` returned is a tensor {what}\n  expected: a scalar, computed from the model's output",
            "take its mean" if loss.dim() else None,
        )
    return loss


def _plain(measured: dict[str, Any]) -> dict[str, Any]:
    """Metrics as numbers and arrays."""
    return {
        name: value.item() if getattr(value, "shape", None) == () else _array_of(value) for name, value in measured.items()
    }


def _array_of(value: Any) -> Any:
    return value.detach().cpu().numpy().copy() if hasattr(value, "detach") else value


class _Gradients:
    """The gradients of a model, and of other parameters of its optimizer.

    `forget` is not `zero_grad`: a resumed start has no gradients either, and zeros and None are not the same to all
    optimizers. It does not visit all modules, which takes longer than a small step: it checks if they, and their
    parameters, are those that it knows.
    """

    def __init__(self, model: Any, optimizer: Any) -> None:
        self._model = model
        self._optimizer = optimizer
        self._look()

    def forget(self) -> None:
        """Removes all gradients."""
        held = list(self._now_held())
        if len(held) != len(self._held) or not all(map(operator.is_, held, self._held)):
            self._look()
        for parameter in self._parameters:
            parameter.grad = None

    def _now_held(self) -> Iterator[Any]:
        groups = [group["params"] for group in self._optimizer.param_groups]
        return itertools.chain(*[table.values() for table in self._tables], *groups)

    def _look(self) -> None:
        # All objects in modules and groups, and the parameters among them.
        modules = list(self._model.modules())
        self._tables = [table for module in modules for table in (module._modules, module._parameters)]
        self._held = list(self._now_held())
        parameters = [value for module in modules for value in module._parameters.values() if value is not None]
        for group in self._optimizer.param_groups:
            parameters += group["params"]
        self._parameters = list({id(parameter): parameter for parameter in parameters}.values())


class _Epochs:
    """The training data, pass after pass.

    Attributes:
        epoch: of the batch that was taken last, from 0.
        has_begun_late: whether it was the first of a pass, and the end of the pass before was not known until then.
    """

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self._pass: Pass | None = None
        self._taken = 0
        self.epoch = 0
        self.has_begun_late = False

    @property
    def is_at_end(self) -> bool:
        """Whether the batch that was taken last is known to be the last of its pass."""
        return self._taken == self._passes.length

    def skip(self) -> None:
        """Skips the next batch."""
        self.take(_skip)

    def take(self, take: Callable[[Pass], Any] = next) -> Any:
        """The next batch: the result of `take` for the pass."""
        self.has_begun_late = False
        if self._pass is None:
            self._pass = self._passes.begin()
        elif self._taken == self._passes.length:
            self._begin_next()
        try:
            batch = take(self._pass)
        except StopIteration:
            if not self._taken:
                raise DefinitionError("the loader of the training data has no batches\n  expected: one at least") from None
            self.has_begun_late = True
            self._begin_next()
            batch = take(self._pass)
        self._taken += 1
        return batch

    def _begin_next(self) -> None:
        self._passes.end()
        self.epoch += 1
        self._taken = 0
        self._pass = self._passes.begin()

    def close(self) -> None:
        """Closes the passes: no other batch is taken."""
        self._passes.close()


def _skip(one: Pass) -> None:
    one.skip()


class _Counted:
    """The passes of one validation.

    Attributes:
        begun: how many began.
    """

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self.begun = 0

    def begin(self) -> Iterator[Any]:
        """A pass: an iterator over its batches."""
        self.begun += 1
        one = self._passes.begin()
        try:
            yield from one
        finally:
            self._passes.end()

    def catch_up(self, begun: int) -> None:
        """In a replay no pass began: skips passes until `begun` have begun."""
        while self.begun < begun:
            self.begun += 1
            one = self._passes.begin()
            try:
                while True:
                    one.skip()
            except StopIteration:
                self._passes.end()


class _LoaderView:
    """A loader as `evaluate_full_dataset` gets it: its batches are on the model's device."""

    def __init__(self, loader: Any, data: _Counted, on_device: Callable[[Any], Any]) -> None:
        self._loader = loader
        self._data = data
        self._on_device = on_device

    def __iter__(self) -> Iterator[Any]:
        return map(self._on_device, self._data.begin())

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
