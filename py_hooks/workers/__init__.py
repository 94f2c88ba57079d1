"""Worker processes that build the items of data sets. `transfer/` sends a data set, and the script's state, to a process."""
