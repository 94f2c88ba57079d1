"""The interceptions of pedl-run: which library, where, what is done there, and how it is installed.

Four words, four places:

    registry     WHICH   `registry.py`               one row for each generation (version range) of a library
    generation   WHERE   `<library>/v<range>.py`     a docstring, facts and rows of `Patch`; data, no code
    advice       WHAT    `advice/`, `<library>/`     functions `(original, target, *args, **kwargs)`
    engine       HOW     `engine/`                   post-import hook, patching, choice of the generation

Beside them, `options/` makes hyperparameters defaults of the script's command line.

The life of a process, from the first line of Python to the last:

    boot.start(launch)             the host calls it before the script; nothing but an import hook is installed
    import keras                   the engine chooses the generation, patches all its targets or none
    first intercepted call         `Trial.begin`: the trial directory appears, a checkpoint is looked for
    replay, when there is one      the script runs again from its first line; calls that were made are
                                   answered from `calls.log` (`advice/calls.py`)
    resume point                   the state of the checkpoint is put in (`Calls.resume`)
    live                           every call is computed, and recorded

No framework is imported at the head of any module here: a patch file is imported after its library.
"""
