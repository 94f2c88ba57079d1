"""The network. It needs torch alone, so whoever has its weights can use it without pedl."""

import torch


class Network(torch.nn.Module):
    """Two convolutions, and what they find anywhere in the signal.

    Args:
        kinds: how many kinds of signals there are.
        dropout: which part of what is found is left out in training.
    """

    def __init__(self, kinds, dropout=0.0):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv1d(1, 16, 9),
            torch.nn.BatchNorm1d(16),
            torch.nn.ReLU(),
            torch.nn.MaxPool1d(2),
            torch.nn.Conv1d(16, 32, 5),
            torch.nn.ReLU(),
            torch.nn.AdaptiveMaxPool1d(1),
            torch.nn.Flatten(),
            torch.nn.Dropout(dropout),
            torch.nn.Linear(32, kinds),
        )

    def forward(self, signals):
        """Scores of the kinds, for signals of the shape (count, 1, length)."""
        return self.layers(signals)
