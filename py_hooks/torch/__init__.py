"""PyTorch, which is not intercepted. No generation: nothing here depends on a version."""
