"""What a script can ask about the trial it runs in, under `pedl-run`.

Example:
    import pedl
    learning_rate = pedl.get_hyperparameter("learning_rate")    # pedl-run --hp learning_rate=0.01 train.py
"""
from pedl.errors import Error as Error
from pedl.errors import HyperparameterNotFound as HyperparameterNotFound
from pedl.errors import NotUnderHost as NotUnderHost
from pedl.experiment import get_experiment_id as get_experiment_id
from pedl.hyperparameters import get_hyperparameter as get_hyperparameter
from pedl.trial import get_trial_id as get_trial_id
from pedl.trial import get_trial_seed as get_trial_seed
