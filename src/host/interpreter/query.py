# Runs inside a candidate interpreter, which may be of any version and implementation, as `-I -S -c`;
# prints one JSON object. It must therefore compile under every Python that is still found on a
# machine, 2.7 included, and judges nothing: what the facts mean is decided by the host.
import json
import os
import sys
import sysconfig


def loaded_library():
    """The libpython of this very process; reliable where the build's own record is not."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.split(None, 5)[-1].strip()
                if os.path.basename(path).startswith("libpython"):
                    return path
    except (IOError, OSError):
        pass
    return None


def candidate_libraries():
    """Where a shared libpython may lie though the executable is linked statically.

    sysconfig alone misleads: Debian reports a shared build for its static executable, conda names a
    static archive though the shared library lies in `lib`, python-build-standalone records the
    directory of its build machine.
    """
    variable = sysconfig.get_config_var
    base = getattr(sys, "base_prefix", sys.prefix)
    version = "%d.%d" % sys.version_info[:2]
    directories = [variable("LIBDIR"), os.path.join(base, "lib"), variable("LIBPL")]
    if variable("MULTIARCH"):
        directories.append(os.path.join(base, "lib", variable("MULTIARCH")))
    names = [
        variable("INSTSONAME"),
        variable("LDLIBRARY"),
        "libpython%s%s.so.1.0" % (version, getattr(sys, "abiflags", "")),
    ]
    found = []
    for directory in directories:
        for name in names:
            if directory and name and ".so" in name:
                path = os.path.join(directory, name)
                if path not in found:
                    found.append(path)
    return found


implementation = getattr(sys, "implementation", None)
print(
    json.dumps(
        {
            "executable": sys.executable,
            "implementation": getattr(implementation, "name", "cpython"),
            "version": sys.version,
            "major": sys.version_info[0],
            "minor": sys.version_info[1],
            "abiflags": getattr(sys, "abiflags", ""),
            "loaded_library": loaded_library(),
            "candidate_libraries": candidate_libraries(),
        }
    )
)
