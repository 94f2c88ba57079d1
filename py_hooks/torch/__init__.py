"""PyTorch, whose training loops are not intercepted. No generation: nothing here depends on a version."""
