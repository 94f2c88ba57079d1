"""Drawings of shapes, of any size and in any place, in noise; nothing is downloaded."""

import numpy as np

SHAPES = ["disc", "square", "triangle", "cross"]
SIZE = 16


def _is_inside(shape, down, right, radius):
    """Which pixels belong to a shape, by how far they lie below its middle and right of it."""
    box = np.maximum(abs(down), abs(right)) <= radius
    if shape == "disc":
        return down**2 + right**2 <= radius**2
    if shape == "triangle":
        return box & (2 * abs(right) <= down + radius)
    if shape == "cross":
        return box & (np.minimum(abs(down), abs(right)) <= radius / 4)
    return box


def make_images(count, noise, seed):
    """Returns `count` drawings, shape (count, SIZE, SIZE, 1), and the places of their shapes in `SHAPES`."""
    random = np.random.RandomState(seed)
    images = random.normal(0, noise, (count, SIZE, SIZE)).astype("float32")
    labels = random.randint(0, len(SHAPES), count).astype("int32")
    down, right = np.mgrid[:SIZE, :SIZE]
    for image, label in zip(images, labels):
        radius = random.uniform(3, 6)
        top, left = random.uniform(radius, SIZE - radius, 2)
        image[:] += random.uniform(0.6, 1) * _is_inside(SHAPES[label], down - top, right - left, radius)
    return images[..., None], labels
