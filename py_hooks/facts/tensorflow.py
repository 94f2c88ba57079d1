"""The facts of TensorFlow."""
from __future__ import annotations

from py_hooks.facts import stated


class TensorFlowFacts:
    """The facts of one generation of TensorFlow.

    Args:
        computes_in_sessions: training computes in sessions, which run several ops at once; TensorFlow 1 does.
        context_has_config: `context.context()` has a `config`, which sessions without a config take
            (tensorflow/python/eager/context.py); from 1.14 on.
        graph_numbers_ops: `Graph._next_id_counter` is the number of ops (tensorflow/python/framework/ops.py). From 2.13 on C++
            numbers the ops.
        seeds_count_seeds: the default seed of a random op is the number of those before it that got such a seed, by
            `_graph_to_seed_dict` (tensorflow/python/framework/random_seed.py). In TensorFlow 1 it is the number of all ops.
        feeds_are_wrapped: what a session is fed is a mapping around a dictionary, its `_storage`
            (tensorflow/python/client/session.py, `BaseSession._run`); in 1.15.
        feed_keys_are_references: its keys are references to tensors, which have the tensor as `_wrapped`
            (tensorflow/python/util/object_identity.py); from 1.15 on.
        writer_ends_by_event: an event ends the thread of an `EventFileWriter`, its `_sentinel_event`
            (tensorflow/python/summary/writer/event_file_writer.py); in TensorFlow 1.
        option_of_order: option of `tf.data.Options` that lets a pipeline keep no order if it is False. From 2.7 on it is
            `deterministic`, for which the older name is an alias (tensorflow/python/data/ops/options.py).
        option_of_tuning: path of the option that lets TensorFlow choose the sizes of buffers, and add prefetching at the end of a
            pipeline (there, and tensorflow/core/grappler/optimizers/data/inject_prefetch.cc).
    """

    def __init__(
        self,
        *,
        computes_in_sessions: bool,
        context_has_config: bool,
        graph_numbers_ops: bool,
        seeds_count_seeds: bool,
        feeds_are_wrapped: bool,
        feed_keys_are_references: bool,
        writer_ends_by_event: bool,
        option_of_order: str,
        option_of_tuning: str,
    ) -> None:
        self.computes_in_sessions = computes_in_sessions
        self.context_has_config = context_has_config
        self.graph_numbers_ops = graph_numbers_ops
        self.seeds_count_seeds = seeds_count_seeds
        self.feeds_are_wrapped = feeds_are_wrapped
        self.feed_keys_are_references = feed_keys_are_references
        self.writer_ends_by_event = writer_ends_by_event
        self.option_of_order = option_of_order
        self.option_of_tuning = option_of_tuning


def tensorflow_facts() -> TensorFlowFacts:
    """The facts of the TensorFlow of this process."""
    found: TensorFlowFacts = stated.of("tensorflow")
    return found
