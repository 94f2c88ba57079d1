"""Functions of `os`, and `open`, replaced so that nothing of the script can tell.

What a script asks of a function stays true of the one in its place: it is in `os.supports_fd` and the like, and it can be
pickled (`multiprocessing.Pool.map(os.stat, names)`), for which it has to be found under its own module and name.

A script takes functions at its head (`from os import remove`), and so do libraries (`numpy` holds `open`). So what is to be
replaced later is replaced before the script runs, and `ask_first` has the same object ask somebody else from then on.
"""
import builtins
import io
import os

# What was replaced: `(what is in its place, original)`, by its name; that of `open` is `io.open`.
_REPLACED = {}


def replace(name, in_place, before=None):
    """Replaces a function of `os`, if this system has it.

    Args:
        name: of the function.
        in_place: makes what is called in the place of a builtin function (`src/native/in_place.rs`).
        before: called first, with the arguments of each call; it answers, or returns NotImplemented. None: nobody as yet.
    """
    original = getattr(os, name, None)
    if original is None:
        return
    replaced = in_place(original, "os", before)
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if original in able:
            able.add(replaced)
    _REPLACED[name] = replaced, original
    setattr(os, name, replaced)


def replace_open(in_place, before):
    """Replaces `open`. The arguments are those of `replace`."""
    original = builtins.open
    builtins.open = io.open = in_place(original, "io", before)
    _REPLACED["io.open"] = io.open, original


def replaced(name):
    """What is in the place of a function, and that function. The script may have put something else there since."""
    return _REPLACED[name]


def is_plain(opener):
    """Whether `open` opens a file as it does without an opener: there is none, or that of `pathlib` before Python 3.10."""
    return opener is None or type(getattr(opener, "__self__", None)).__module__ == "pathlib"


def ask_first(name, in_place, before):
    """Has a function that was replaced ask somebody else first: `before`, as of `replace`."""
    if name in _REPLACED:
        in_place.ask_first(_REPLACED[name][0], before)
