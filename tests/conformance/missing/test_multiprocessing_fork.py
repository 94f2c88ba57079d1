"""Lib/test/test_multiprocessing_fork.py of CPython, which some installations lack."""
from test import _test_multiprocessing

_test_multiprocessing.install_tests_in_module_dict(globals(), "fork")
