"""Prints what a script can see of its process, but for what pedl adds on purpose: a directory at the
end of PYTHONPATH and so in sys.path, and the variable from which `import pedl` answers."""
import json
import os
import sys


def is_users(entry):
    return not os.path.isdir(os.path.join(entry, "py_hooks"))


flags = dict((name, getattr(sys.flags, name)) for name in dir(sys.flags) if name[0] != "_")
for method in ("count", "index"):
    flags.pop(method, None)

# The last one names an environment to pedl, and tells a python nothing.
UNCOMPARED = ("PEDL_CONTEXT", "PYTHONPATH", "VIRTUAL_ENV")

facts = {
    "argv": sys.argv,
    "orig_argv": getattr(sys, "orig_argv", None),
    "path": [entry for entry in sys.path if is_users(entry)],
    "executable": sys.executable,
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "version": sys.version,
    "flags": repr(flags),
    "warnoptions": sys.warnoptions,
    "xoptions": sys._xoptions,
    "name": __name__,
    "file": globals().get("__file__"),
    "package": repr(__package__),
    "spec": getattr(__spec__, "name", None),
    "doc": __doc__,
    "main": sorted(vars(sys.modules["__main__"])),
    "cwd": os.getcwd(),
    "encodings": [sys.getfilesystemencoding(), sys.stdout.encoding, sys.stderr.errors],
    "environment": sorted(name for name in os.environ if name not in UNCOMPARED),
    "sitecustomize": "sitecustomize" in sys.modules,
    "stdin": sys.stdin.read(),
}
print(json.dumps(facts, indent=1, sort_keys=True))
