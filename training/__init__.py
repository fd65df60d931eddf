"""specdec_jax.training: drafters by distillation. `distil` is the whole way; the rest are its parts, for loops of
one's own."""

from .distill import Distilled, distil
from .errors import TrainingError
from .loop import Run, TrainConfig, TrainState, make_step, new_state, train
from .losses import LOSS_NAMES, LOSSES, acceptance, cross_entropy, masked_mean
from .packing import Packed, draft_vocabulary, pack
from .samples import DataError, Sample, read_samples, split, write_samples
from .settings import HeadConfig, LossConfig, ModelConfig, TextConfig
from .students import Batch, Measured, Student, draft_model_student, feature_head_student
from .teacher import Outputs, Teacher, as_teacher, cached_outputs

__all__ = [
    "LOSSES",
    "LOSS_NAMES",
    "Batch",
    "DataError",
    "Distilled",
    "HeadConfig",
    "LossConfig",
    "Measured",
    "ModelConfig",
    "Outputs",
    "Packed",
    "Run",
    "Sample",
    "Student",
    "Teacher",
    "TextConfig",
    "TrainConfig",
    "TrainState",
    "TrainingError",
    "acceptance",
    "as_teacher",
    "cached_outputs",
    "cross_entropy",
    "distil",
    "draft_model_student",
    "draft_vocabulary",
    "feature_head_student",
    "make_step",
    "masked_mean",
    "new_state",
    "pack",
    "read_samples",
    "split",
    "train",
    "write_samples",
]
