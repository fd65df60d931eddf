"""Makes sentencepiece.json: small vocabularies trained with sentencepiece, and the ids that it gives some texts.

Run it where that package is installed (0.2.1 or newer); the tests need only the file:

    python tests/models/make_sentencepiece.py
"""

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece  # pyright: ignore[reportMissingImports]
from sentencepiece import sentencepiece_model_pb2  # pyright: ignore[reportMissingImports]
from unicode_texts import every_plane

HERE = Path(__file__).parent
COMMON = {
    "character_coverage": 1.0,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "split_digits": True,
    "control_symbols": ["<|end|>"],
    "minloglevel": 2,
    "num_threads": 1,
}
KINDS = {
    "llama": {"model_type": "bpe", "vocab_size": 620, "add_dummy_prefix": True},
    "gemma": {
        "model_type": "bpe",
        "vocab_size": 620,
        "add_dummy_prefix": False,
        "user_defined_symbols": ["<start_of_turn>", "<end_of_turn>", "▁▁", "<table>"],
    },
    "unigram": {"model_type": "unigram", "vocab_size": 480, "add_dummy_prefix": True},
}


def main() -> None:
    lines = (HERE.parents[1] / "README.md").read_text(encoding="utf-8").splitlines()
    lines += ["Привет, мир! Привет всем.", "你好世界你好", "def f(x):", "    return x ** 2", "123 456 7890"] * 3
    texts = [*every_plane(seed=1, per_plane=6), *lines[::12]]
    out: dict[str, Any] = {"texts": texts}
    for name, options in KINDS.items():
        file = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file, **(COMMON | options))
        processor = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
        proto = sentencepiece_model_pb2.ModelProto.FromString(file.getvalue())
        out[name] = {
            "pieces": [piece.piece for piece in proto.pieces],
            "scores": [round(piece.score, 4) for piece in proto.pieces],
            "types": [piece.type for piece in proto.pieces],
            "add_space_prefix": options["add_dummy_prefix"],
        }
        if options["model_type"] == "bpe":
            out[name] |= {
                "ids": processor.encode(texts),
                "decoded": [processor.decode(processor.encode(t)) for t in texts],
            }
    (HERE / "sentencepiece.json").write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
