"""The parts of `pedl` that a model definition imports for its framework."""
