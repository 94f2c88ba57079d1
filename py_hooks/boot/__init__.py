"""The first lines of our Python in a process: what the host calls, and what is installed when a library is imported.

`host.py` takes over from the executable; `process.py` knows the process; `install.py` chooses the generations of an imported
library, patches their targets and makes the recorder; `worker_server.py` is the process from which data workers start.
"""
