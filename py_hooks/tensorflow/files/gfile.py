"""Files that TensorFlow's C++ opens for Python (`tf.io.gfile`, `tf.train.Checkpoint`): noted as those of `open` are.

What `tf.train.Checkpoint` writes comes from variables, in C++, and a replay cannot write it: this is a cause, once there
is training. Source: tensorflow 1.15.5 and 2.21.0, tensorflow/python/lib/io/file_io.py; 2.21.0,
tensorflow/python/checkpoint/checkpoint.py.
"""
from __future__ import annotations

import os

from py_hooks import causes
from py_hooks.recording import recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from _typeshed import StrOrBytesPath


def opened(original: Callable[..., Any], file: Any, name: StrOrBytesPath, mode: str, *args: Any, **kwargs: Any) -> None:
    """`FileIO.__init__`."""
    path, files = os.fspath(name), recorder.CALLS.files
    if "://" not in os.fsdecode(path):
        if set("wa+").intersection(mode):
            files.opening(path, mode)
        else:
            files.reading(path)
    original(file, name, mode, *args, **kwargs)


def written_records(original: Callable[..., Any], writer: Any, path: StrOrBytesPath, *args: Any, **kwargs: Any) -> None:
    """`TFRecordWriter.__init__`."""
    if _is_local(path):
        recorder.CALLS.files.opening(path, "w")
    original(writer, path, *args, **kwargs)


def make_folders(original: Callable[..., Any], path: StrOrBytesPath, *args: Any, **kwargs: Any) -> Any:
    """`create_dir_v2`, `recursive_create_dir_v2`: the outermost folder that is missing first."""
    missing, folder = [], os.path.abspath(os.fsdecode(path))
    while "://" not in os.fsdecode(path) and not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(missing):
        recorder.CALLS.files.making(folder)
    return original(path, *args, **kwargs)


def rename(original: Callable[..., Any], src: StrOrBytesPath, dst: StrOrBytesPath, *args: Any, **kwargs: Any) -> Any:
    """`rename_v2`."""
    if _is_local(src) and _is_local(dst):
        recorder.CALLS.files.moving(src, dst)
    return original(src, dst, *args, **kwargs)


def copy(original: Callable[..., Any], src: StrOrBytesPath, dst: StrOrBytesPath, *args: Any, **kwargs: Any) -> Any:
    """`copy_v2`."""
    if _is_local(src):
        recorder.CALLS.files.reading(src)
    if _is_local(dst):
        recorder.CALLS.files.opening(dst, "w")
    return original(src, dst, *args, **kwargs)


def remove(original: Callable[..., Any], path: StrOrBytesPath, *args: Any, **kwargs: Any) -> Any:
    """`delete_file_v2`."""
    if _is_local(path):
        recorder.CALLS.files.removing(path)
    return original(path, *args, **kwargs)


def remove_folder(original: Callable[..., Any], path: StrOrBytesPath, *args: Any, **kwargs: Any) -> Any:
    """`delete_recursively_v2`."""
    if _is_local(path):
        recorder.CALLS.files.removing_folder(path)
    return original(path, *args, **kwargs)


def _is_local(path: StrOrBytesPath) -> bool:
    return "://" not in os.fsdecode(path)


def checkpoint(original: Callable[..., Any], saver: Any, *args: Any, **kwargs: Any) -> Any:
    """`TrackableSaver.save`, `restore`: of `tf.train.Checkpoint` and its manager."""
    calls = recorder.CALLS
    if calls.begun and not calls.depth:
        calls.exactness.refuse(causes.CHECKPOINT_OF_TENSORFLOW())
    return original(saver, *args, **kwargs)
