"""The examples run under plain Python as they are, learn what they should, and say so."""

import re

import pytest
import support


def accuracy(ended):
    found = re.search(r"test accuracy (\d\.\d+)$", ended.stdout, re.MULTILINE)
    assert found, ended
    return float(found.group(1))


@pytest.mark.stack("keras3")
def test_keras_fit_images_learns_to_read_digits(script_run):
    ended = script_run(support.EXAMPLES / "keras_fit_images.py").python().check()
    assert accuracy(ended) > 0.9
    assert len(ended.hashes) == 1


@pytest.mark.stack("keras2")
def test_keras2_fit_generator_images_learns_to_read_digits(script_run):
    ended = script_run(support.EXAMPLES / "keras2_fit_generator_images.py").python().check()
    assert accuracy(ended) > 0.9
    assert len(ended.hashes) == 1
