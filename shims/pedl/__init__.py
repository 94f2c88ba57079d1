"""The functions by which a script asks about its trial, under `pedl-run`.

Example:
    import pedl
    learning_rate = pedl.get_hyperparameter("learning_rate")    # pedl-run --hp learning_rate=0.01 train.py
    path = pedl.get_data_config()["path"]                       # pedl-run --config experiment.yaml train.py
"""
from pedl import util as util
from pedl._callbacks import callbacks as callbacks
from pedl._local import local as local
from pedl.data_download import get_download_data_dir as get_download_data_dir
from pedl.errors import Error as Error
from pedl.errors import HyperparameterNotFound as HyperparameterNotFound
from pedl.errors import NothingDownloaded as NothingDownloaded
from pedl.errors import NotUnderHost as NotUnderHost
from pedl.experiment import get_data_config as get_data_config
from pedl.experiment import get_experiment_config as get_experiment_config
from pedl.experiment import get_experiment_id as get_experiment_id
from pedl.hyperparameters import get_hyperparameter as get_hyperparameter
from pedl.trial import get_trial_id as get_trial_id
from pedl.trial import get_trial_seed as get_trial_seed
from pedl.util import is_valid_url as is_valid_url
