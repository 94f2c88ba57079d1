"""The base of every error with which these hooks end a process."""


class Refusal(Exception):
    """An error that ends the run: one message, one hint, one exit code of the host, and no traceback.

    Args:
        message: what failed with the value received, then, indented, what was expected and what was done.
        hint: one imperative, with the command.
    """

    exit_code = 70

    def __init__(self, message, hint):
        Exception.__init__(self, message)
        self.hint = hint
