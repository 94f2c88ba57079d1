"""Functions of `os`, replaced so that nothing of the script can tell.

What a script asks of a function stays true of the one in its place: it is in `os.supports_fd` and the like, and it can be
pickled (`multiprocessing.Pool.map(os.stat, names)`), for which it has to be found under its own module and name.
"""
import os


def replace(name, in_place, before):
    """Replaces a function of `os`, if this system has it.

    Args:
        name: of the function.
        in_place: makes what is called in the place of a builtin function (`src/native/in_place.rs`).
        before: called first, with the arguments of each call; it answers, or returns NotImplemented.
    """
    original = getattr(os, name, None)
    if original is None:
        return
    replaced = in_place(original, "os", before)
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if original in able:
            able.add(replaced)
    setattr(os, name, replaced)
