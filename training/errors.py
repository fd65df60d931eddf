"""What a training run ends with where it cannot go on."""


class TrainingError(RuntimeError):
    """The run stopped; what its last checkpoint holds is whole."""
