"""Digits of a 5 x 7 pixel font, moved about, dimmed and buried in noise; nothing is downloaded."""

import numpy as np

# The ten digits: seven rows of five pixels each, '#' is ink.
FONT = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ....#
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .###.
"""


def make_images(count, noise, seed):
    """Returns `count` images, shape (count, 12, 10, 1), and their digits as one-hot vectors, shape (count, 10)."""
    random = np.random.RandomState(seed)
    rows = [line.split() for line in FONT.split("\n") if line]
    glyphs = np.array([[[pixel == "#" for pixel in row[digit]] for row in rows] for digit in range(10)])
    images = random.normal(0, noise, (count, 12, 10)).astype("float32")
    digits = random.randint(0, 10, count)
    for image, digit in zip(images, digits):
        top, left = random.randint(0, 6), random.randint(0, 6)
        image[top : top + 7, left : left + 5] += random.uniform(0.6, 1) * glyphs[digit]
    return images[..., None], np.eye(10, dtype="float32")[digits]
