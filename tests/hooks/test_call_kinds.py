"""The kinds of calls, and the bits of what is due, are those of the Rust side."""

import re

from support import ROOT

from py_hooks.recording import boundary, call_kinds


def constants(path):
    """The numbers of the constants in a file of Rust, by name."""
    found = re.findall(r"const ([A-Z_]+): u8 = (\d+);", (ROOT / path).read_text(encoding="utf-8"))
    return {name: int(number) for name, number in found}


def test_kinds_of_calls_are_those_of_the_log():
    ours = {name: number for name, number in vars(call_kinds).items() if name.isupper() and name != "TRACED"}
    assert len(ours) == 8
    assert ours == {name: number for name, number in constants("src/core/calls/record.rs").items() if name in ours}


def test_bits_of_what_is_due_are_those_of_the_border():
    bits = {name: number for name, number in constants("src/native/trial.rs").items() if number & (number - 1) == 0}
    assert len(bits) >= 8
    assert {name: getattr(boundary, name, None) for name in bits} == bits
