"""Items of data sets, in whatever way they are asked for: by index, by epoch, by a generator or by `KerasDataAdapter`."""
