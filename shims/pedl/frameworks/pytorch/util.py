"""Metrics of PyTorch models."""


def error_rate(predictions, labels):
    """The share of wrong predictions: 1 - accuracy, a tensor without dimensions.

    Args:
        predictions: `(batch, classes)`, scores or probabilities.
        labels: `(batch,)`, the numbers of the classes.
    """
    wrong = predictions.argmax(dim=1) != labels.to(predictions.device)
    return wrong.to(predictions.dtype).mean()
