"""WHICH libraries are intercepted, in which versions. One row for each generation; no code.

A row: library, first version, last version (`on`: still open), module of the generation below `py_hooks`.
A library is a distribution, and the module that is imported to learn the version has its name. A library with a dot in
its name is a part of the distribution before the dot: it has that version, and is intercepted together with it.
"""

GENERATIONS = (
    ("keras", "2.2.0", "2.2.2", "keras.generations.v2_2_0_to_v2_2_2"),
    ("keras", "2.2.3", "2.2.4", "keras.generations.v2_2_3_to_v2_2_4"),
    ("keras", "2.2.5", "2.2.5", "keras.generations.v2_2_5_to_v2_2_5"),
    ("keras", "2.3.0", "2.3.1", "keras.generations.v2_3_0_to_v2_3_1"),
    ("keras", "2.4.0", "2.4.3", "keras.generations.v2_4_0_to_v2_4_3"),
    ("keras", "2.6.0", "2.7.0", "keras.generations.v2_6_0_to_v2_7_0"),
    ("keras", "2.8.0", "2.8.0", "keras.generations.v2_8_0_to_v2_8_0"),
    ("keras", "2.9.0", "2.10.0", "keras.generations.v2_9_0_to_v2_10_0"),
    ("keras", "2.11.0", "2.11.0", "keras.generations.v2_11_0_to_v2_11_0"),
    ("keras", "2.12.0", "2.12.0", "keras.generations.v2_12_0_to_v2_12_0"),
    ("keras", "2.13.0", "2.15.0", "keras.generations.v2_13_0_to_v2_15_0"),
    ("keras", "3.13.0", "on", "keras.generations.v3_13_0_on"),
    ("tensorflow", "1.13.1", "1.13.2", "tensorflow.generations.v1_13_1_to_v1_13_2"),
    ("tensorflow", "1.14.0", "1.14.0", "tensorflow.generations.v1_14_0_to_v1_14_0"),
    ("tensorflow", "1.15.0", "1.15.5", "tensorflow.generations.v1_15_0_to_v1_15_5"),
    ("tensorflow", "2.2.0", "2.5.3", "tensorflow.generations.v2_2_0_to_v2_5_3"),
    ("tensorflow", "2.6.0", "2.6.5", "tensorflow.generations.v2_6_0_to_v2_6_5"),
    ("tensorflow", "2.7.0", "2.7.4", "tensorflow.generations.v2_7_0_to_v2_7_4"),
    ("tensorflow", "2.8.0", "2.12.1", "tensorflow.generations.v2_8_0_to_v2_12_1"),
    ("tensorflow", "2.13.0", "2.15.1", "tensorflow.generations.v2_13_0_to_v2_15_1"),
    ("tensorflow", "2.18.0", "on", "tensorflow.generations.v2_18_0_on"),
    ("tensorflow.keras", "1.13.1", "1.13.2", "tensorflow_keras.generations.v1_13_1_to_v1_13_2"),
    ("tensorflow.keras", "1.14.0", "1.14.0", "tensorflow_keras.generations.v1_14_0_to_v1_14_0"),
    ("tensorflow.keras", "1.15.0", "1.15.5", "tensorflow_keras.generations.v1_15_0_to_v1_15_5"),
    ("tensorflow.keras", "2.2.0", "2.2.3", "tensorflow_keras.generations.v2_2_0_to_v2_2_3"),
    ("tensorflow.keras", "2.3.0", "2.5.3", "tensorflow_keras.generations.v2_3_0_to_v2_5_3"),
)
