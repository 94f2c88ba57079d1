"""The interceptions of pedl-run: which library, at which places, what is done there, and how they are installed.

Four words, four places:

    registry     WHICH   `registry.py`               one row for each generation (version range) of a library
    generation   WHERE   `<library>/generations/`    a docstring, facts and rows of `Patch`; data, no code
    advice       WHAT    `<library>/`                functions `(original, target, *args, **kwargs)`
    engine       HOW     `engine/`                   post-import hook, patching, choice of the generation

Advice is made of what the neutral rooms offer, which know no library and no version:

    recording        records calls, and answers them in a replay
    random_numbers   streams of random numbers, and the generators that a script owns
    script_io        files, output, the clock, commands: what a replay must not do twice, or must see again
    workers          processes that build items
    datasets         items of data sets, and passes over them
    ranks            processes that train one model together

A generation also states `facts/`: what its versions have that others do not. The advice asks for these, and for no version.

Beside them, `options/` makes hyperparameters defaults of the script's command line, `boot/` has the first lines of a process,
and `verbs/` the parts of the command line that need Python. `tests/hooks/test_layers.py` says which room may import which.

The life of a process, from the first line of Python to the last:

    boot.process.start(launch)     the host calls it before the script; nothing but an import hook is installed
    import keras                   the engine chooses the generation, patches all its targets or none
    first intercepted call         `Trial.begin`: the trial directory appears, a checkpoint is looked for
    replay, if there is one        the script runs again from its first line; calls that were made are
                                   answered from `calls.log` (`recording/recorder.py`)
    resume point                   the state of the checkpoint is restored (`Checkpoints.restore`)
    live                           every call is computed and recorded

No module here imports a framework at its top: a patch file is imported after its library.
"""
