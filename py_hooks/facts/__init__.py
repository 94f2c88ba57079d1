"""What differs between the versions of a library, each difference with a name: a fact.

A generation file states the facts of its versions, and the code asks for them; so no other file examines a version. `keras.py`
and `tensorflow.py` say what each fact means, and where it can be read in the source of the library. A new fact is an argument
there, without a default, so every generation must state it.

What differs between two objects of one version is no fact: the code examines the object.
"""
