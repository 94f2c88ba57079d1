"""What a model definition takes from `pedl` for its framework."""
