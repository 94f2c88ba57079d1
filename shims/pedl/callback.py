"""What is called around the steps of a trial."""


class Callback:
    """Is told of the steps of a trial; derive from it, and define what you need. All hooks are optional.

    Those of a list are called in its order at every hook. After a crash the hooks of what was done already are called
    again, with the same metrics, so that what they keep and write is as it was.
    """

    def on_trial_begin(self):
        """Before the first training step of the trial."""

    def on_train_step_begin(self, step_id):
        """A training step begins; steps are counted from 1."""

    def on_train_step_end(self, step_id, metrics):
        """A training step has ended.

        Args:
            step_id: its number.
            metrics: a list of dicts, one for each batch of it: what that batch has by itself. Of what is no mean (AUC,
                precision) Keras only knows the running value of the epoch.
        """

    def on_validation_step_begin(self, step_id):
        """A validation begins, after so many training steps."""

    def on_validation_step_end(self, step_id, metrics):
        """A validation has ended.

        Args:
            step_id: how many training steps were before it.
            metrics: a dict.
        """
