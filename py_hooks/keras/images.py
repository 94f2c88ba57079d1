"""Image iterators (`ImageDataGenerator.flow` and its siblings), all generations: sequences that count what they build.

Source: keras_preprocessing 1.1.2, keras_preprocessing/image/iterator.py; keras 3.15.1,
keras/src/legacy/preprocessing/image.py.
"""
from __future__ import annotations

from py_hooks.datasets.items import item_being_built
from py_hooks.random_numbers.random_streams import PrivateStream
from py_hooks.recording import recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def made(original: Callable[..., Any], iterator: Any, *args: Any, **kwargs: Any) -> None:
    """`Iterator.__init__`: gives it a stream for its first order; iterators with the same seed share this stream."""
    original(iterator, *args, **kwargs)
    roots, number = recorder.CALLS.streams.new_key()
    # Only numpy draws an order. The key has plain numbers, because it is an attribute of the data set, which may be sent.
    iterator._pedl_key = (roots.numpy, number) if iterator.seed is None else (iterator.seed,)
    # The order is made when it is first used, from a separate stream (`item`): no item depends on another through it.
    iterator._pedl_keyed = ("index_array",)


def item(original: Callable[..., Any], iterator: Any, index: int) -> Any:
    """`Iterator.__getitem__`: seeds by the number of the item; Keras seeds by the number of items built so far.

    The order of its images, which is drawn when it is first used, comes from a separate stream. So it does not depend on
    which item was built first.
    """
    import numpy

    building = item_being_built()
    if building is None or index >= len(iterator):
        return original(iterator, index)
    _, position = building
    if iterator.seed is not None:
        # `total_batches_seen` counts the items of earlier epochs (`Items.end_epoch`).
        numpy.random.seed(iterator.seed + iterator.total_batches_seen + position)
    with iterator.lock:
        if iterator.index_array is None:
            with PrivateStream("order of images", *iterator._pedl_key):
                iterator._set_index_array()
    start = iterator.batch_size * index
    return iterator._get_batches_of_transformed_samples(iterator.index_array[start:start + iterator.batch_size])
