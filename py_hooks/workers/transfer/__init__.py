"""What a worker process that starts clean needs of the script: its definitions, settings and the state of its data set."""
