from .model_def import Trial as Trial
