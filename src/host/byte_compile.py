# Run by the host as `-I -S -c`, once for each version of Python: compiles the library, so that no run has to.
#
# What is compiled is never compared with its source again: a library is not changed, another one lies elsewhere.
import os
import py_compile
import sys

for directory, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".py"):
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(os.path.join(directory, name), doraise=True, invalidation_mode=mode)
