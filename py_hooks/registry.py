"""WHICH libraries are intercepted, in which versions. One row for each generation; no code.

A row: distribution, first version, last version (`on`: not closed yet), module of the generation below `py_hooks`.
The module that is imported to learn the version is the distribution's own name.
"""

GENERATIONS = (
    ("keras", "2.2.5", "2.3.1", "keras.v2_2_5_to_v2_3_1"),
    ("keras", "3.13.0", "on", "keras.v3_13_0_on"),
    ("tensorflow", "1.15.0", "1.15.5", "tensorflow.v1_15_0_to_v1_15_5"),
    ("tensorflow", "2.18.0", "on", "tensorflow.v2_18_0_on"),
)
