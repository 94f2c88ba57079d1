"""Graphs: what their nodes do (`graphs.py`), which are read and written (`graph_definitions.py`), which race (`races.py`)."""
