import atexit
import sys


@atexit.register
def say_goodbye():
    print("goodbye", flush=True)


def outer(depth):
    if depth:
        outer(depth - 1)
    try:
        {}["missing"]
    except KeyError:
        raise ValueError("not \u00fcsual")


print("begin", flush=True)
print("before the traceback", file=sys.stderr)
outer(2)
