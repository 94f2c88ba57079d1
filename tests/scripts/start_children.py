"""Runs a function in children of every start method, and in a plain subprocess."""
import multiprocessing
import os
import subprocess
import sys


def work(number):
    import _pedl
    import pedl
    import py_hooks

    modules = (_pedl, pedl, py_hooks)
    return number * number, all(os.path.isabs(module.__file__) for module in modules)


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(work, range(4)), flush=True)
    code = "import sys, pedl, user_module; print('PEDL_LAUNCH' in __import__('os').environ)"
    subprocess.check_call([sys.executable, "-c", code])
