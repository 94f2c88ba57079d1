"""The interceptions of pedl-run: which library, at which places, what is done there, and how they are installed.

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
    replay, if there is one        the script runs again from its first line; calls that were made are
                                   answered from `calls.log` (`advice/calls.py`)
    resume point                   the state of the checkpoint is restored (`Calls.resume`)
    live                           every call is computed and recorded

No module here imports a framework at its top: a patch file is imported after its library.
"""
