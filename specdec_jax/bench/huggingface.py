"""transformers as a contestant: the same weights in float32, plain, with prompt lookup, and with an assistant."""

import contextlib
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from .contest import Contestant, Prompts


def transformers_contestants(
    weights: Path, *, assistant: Path | None, eos_tokens: Sequence[int], draft_length: int, threads: int
) -> Callable[[int], Mapping[str, Contestant]]:
    """Contestants for a batch size, on a GGUF file or a directory.

    Plain greedy decoding; at batch 1, which is all that it can speculate at, also prompt lookup of ``draft_length``
    tokens and assisted generation with the draft model ``assistant``, whose draft length is left to transformers.

    Raises:
        ImportError: torch or transformers is missing; they come with ``specdec-jax[bench]``.
    """
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    ends = list(eos_tokens)
    pad = ends[0] if ends else 0

    def model_of(weights: Path) -> Any:
        folder, options = (weights, {}) if weights.is_dir() else (weights.parent, {"gguf_file": weights.name})
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bar knows no switch
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
        return model.eval()

    model = model_of(weights)

    def contestant(config: Mapping[str, Any], **extra) -> Contestant:
        def answer(prompts: Prompts, limit: int) -> list[list[int]]:
            longest = max(map(len, prompts))
            ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
            mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
            chosen = transformers.GenerationConfig(
                max_new_tokens=limit, do_sample=False, eos_token_id=ends, pad_token_id=pad, **config
            )
            with torch.inference_mode():
                out = model.generate(ids, attention_mask=mask, generation_config=chosen, **extra)
            return [_to_end(row, ends) for row in out[:, longest:].tolist()]

        return answer

    plain = {"transformers": contestant({})}
    alone = plain | {"transformers, prompt lookup": contestant({"prompt_lookup_num_tokens": draft_length})}
    if assistant is not None:
        alone["transformers, assisted"] = contestant({}, assistant_model=model_of(assistant))
    return lambda batch: alone if batch == 1 else plain


def _to_end(tokens: list[int], ends: Collection[int]) -> list[int]:
    """Up to the first end token, past which a row of a batch is padded."""
    length = next((place for place, token in enumerate(tokens, 1) if token in ends), len(tokens))
    return tokens[:length]
