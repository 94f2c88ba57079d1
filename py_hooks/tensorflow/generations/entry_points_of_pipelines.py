"""All generations of TensorFlow: the rows of `tf.data`, except the one of `StructuredFunctionWrapper`.

Call paths (read from 1.13.1, 1.14.0, 1.15.5, 2.3.4, 2.6.5, 2.12.1, 2.15.1 and 2.21.0):

    Dataset.map, interleave, from_generator; shuffle and others without a seed -> random_seed.get_seed of tf.data
    tf.data.experimental.map_and_batch       -> _MapAndBatchDataset
    tf.data.experimental.parallel_interleave -> readers.ParallelInterleaveDataset
    py_function, numpy_function              -> script_ops._internal_py_func
"""
from py_hooks.engine.patch import Patch
from py_hooks.tensorflow.data import pipelines
from py_hooks.tensorflow.random_ops import random_ops

_DATASETS = "tensorflow.python.data.ops.dataset_ops"
_BATCHING = "tensorflow.python.data.experimental.ops.batching"
_READERS = "tensorflow.python.data.ops.readers"
_RANDOM = "tensorflow.python.ops.gen_random_ops"
_IMAGES = "tensorflow.python.ops.gen_image_ops"

ROWS = (
    #     module     attribute            advice                          why
    Patch("tensorflow.python.data.util.random_seed", "get_seed", pipelines.seed, "repeat orders in a replay"),
    Patch(_DATASETS, "DatasetV1.map",     pipelines.mapped,               "repeat elements in a replay"),
    Patch(_DATASETS, "DatasetV2.map",     pipelines.mapped,               "repeat elements in a replay"),
    Patch(_DATASETS, "DatasetV2.interleave", pipelines.mapped,            "repeat elements in a replay"),
    Patch(_DATASETS, "DatasetV2.batch",   pipelines.batched,              "repeat elements in a replay"),
    Patch(_DATASETS, "DatasetV2.cache",   pipelines.cached,               "note which files are made"),
    Patch(_BATCHING, "_MapAndBatchDataset.__init__", pipelines.mapped_and_batched, "repeat elements in a replay"),
    Patch(_READERS,  "ParallelInterleaveDataset.__init__", pipelines.interleaved, "repeat elements in a replay"),
    Patch(_DATASETS, "DatasetV2.from_generator", pipelines.from_generator, "keep its random numbers apart"),
    Patch("tensorflow.python.ops.script_ops", "_internal_py_func", pipelines.python_function, "see what draws in a pipeline"),
    Patch(_RANDOM,   "random_gamma",      random_ops.seeded_in_pipelines, "repeat elements in a replay"),
    Patch(_RANDOM,   "random_poisson_v2", random_ops.seeded_in_pipelines, "repeat elements in a replay"),
    Patch(_RANDOM,   "parameterized_truncated_normal", random_ops.seeded_in_pipelines, "repeat elements in a replay"),
    Patch(_IMAGES,   "sample_distorted_bounding_box_v2", random_ops.seeded_in_pipelines, "repeat elements in a replay"),
)
