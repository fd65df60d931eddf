"""transformers as a contestant: the same weights in float32, plain and with prompt lookup."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .contest import Contestant


def transformers_contestants(
    weights: Path, *, eos_tokens: Sequence[int], draft_length: int, threads: int
) -> dict[str, Contestant]:
    """Plain greedy decoding and prompt lookup of ``draft_length`` tokens, of a GGUF file or a directory.

    Raises:
        ImportError: torch or transformers is missing; they come with ``specdec-jax[bench]``.
    """
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    folder, options = (weights, {}) if weights.is_dir() else (weights.parent, {"gguf_file": weights.name})
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar knows no switch
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
    model.eval()
    ends = list(eos_tokens)

    def contestant(**extra) -> Contestant:
        def answer(prompt: Sequence[int], limit: int) -> list[int]:
            ids = torch.tensor([list(prompt)])
            chosen = transformers.GenerationConfig(
                max_new_tokens=limit, do_sample=False, eos_token_id=ends, pad_token_id=ends[0] if ends else 0, **extra
            )
            with torch.inference_mode():
                out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=chosen)
            return out[0, len(prompt) :].tolist()

        return answer

    return {
        "transformers": contestant(),
        "transformers, prompt lookup": contestant(prompt_lookup_num_tokens=draft_length),
    }
