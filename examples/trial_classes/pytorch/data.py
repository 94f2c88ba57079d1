"""Signals of a machine, as its sensor records them, with noise; nothing is downloaded."""

import numpy as np
import torch

KINDS = ["sine", "square", "sawtooth", "silence"]
LENGTH = 64


def make_wave(kind, phases):
    """A signal of a kind, by how many turns the machine has made at each moment."""
    turns = phases % 1
    return {
        "sine": np.sin(2 * np.pi * turns),
        "square": np.where(turns < 0.5, 1.0, -1.0),
        "sawtooth": 2 * turns - 1,
        "silence": 0 * turns,
    }[kind]


class Signals(torch.utils.data.Dataset):
    """Signals, each by its place: what kind it is of and how fast it is, never changes.

    Args:
        count: how many.
        noise: how much of it.
        seed: of what never changes.
        is_augmented: they begin at another moment each time, and are recorded with other noise.
    """

    def __init__(self, count, noise, seed, is_augmented):
        random = np.random.RandomState(seed)
        self.noise = noise
        self.seed = seed
        self.is_augmented = is_augmented
        self.labels = random.randint(0, len(KINDS), count)
        self.speeds = random.uniform(1.5, 5, count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        random = np.random if self.is_augmented else np.random.RandomState([self.seed, index])
        phases = random.rand() + self.speeds[index] * np.arange(LENGTH) / LENGTH
        signal = make_wave(KINDS[self.labels[index]], phases) + random.normal(0, self.noise, LENGTH)
        return torch.tensor(signal[None], dtype=torch.float32), int(self.labels[index])
