"""Writes scalars into an event file, as TensorBoard reads them.

An event file is a sequence of records: length (8 bytes), its checksum, data, its checksum; the data is a protocol buffer
`Event`. This module writes it without a framework: none is needed, and the bytes are the same after a crash.

Source: tensorflow 2.15, tensorflow/core/lib/io/record_writer.cc, tensorflow/core/util/event.proto and
tensorflow/core/framework/summary.proto; tsl/lib/hash/crc32c.h for the mask.
"""
from __future__ import annotations

import os
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# One name for each folder, so that a trial that is run again writes the same file; it has no time in it.
_FILE = "events.out.tfevents.0000000000.pedl"

# Numbers of fields in the protocol buffers, with the types of their values.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = b"\x09", b"\x10", b"\x1a", b"\x2a"
_VALUE, _TAG, _SIMPLE_VALUE = b"\x0a", b"\x0a", b"\x15"

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


class EventWriter:
    """One event file.

    Args:
        directory: is made if it does not exist; the file in it is written from the start.
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._file = open(os.path.join(directory, _FILE), "wb")  # noqa: SIM115 - it stays open for the trial
        self._write(_FILE_VERSION + _sized(b"brain.Event:2"))

    def add(self, step: int, scalars: Iterable[tuple[str, float]]) -> None:
        """Adds values.

        Args:
            step: a whole number, 0 or more.
            scalars: pairs of tags and numbers.
        """
        values = b"".join(_VALUE + _sized(_value(tag, number)) for tag, number in scalars)
        self._write(_STEP + _varint(step) + _SUMMARY + _sized(values))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, event: bytes) -> None:
        data = _WALL_TIME + struct.pack("<d", time.time()) + event
        length = struct.pack("<Q", len(data))
        self._file.write(length + _checksum(length) + data + _checksum(data))


def _value(tag: str, number: float) -> bytes:
    return _TAG + _sized(tag.encode()) + _SIMPLE_VALUE + struct.pack("<f", number)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _table() -> list[int]:
    table = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (_POLYNOMIAL if remainder & 1 else 0)
        table.append(remainder)
    return table


_TABLE = _table()


def _checksum(data: bytes) -> bytes:
    """The masked CRC-32C."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = checksum >> 8 ^ _TABLE[(checksum ^ byte) & 255]
    checksum ^= 0xFFFFFFFF
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF)
