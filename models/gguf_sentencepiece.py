"""SentencePiece vocabularies in a GGUF file, the ``llama`` kind: Llama 1 and 2, Mistral, Gemma, Phi-3.

There a text is its characters, with U+2581 for each space, and of all neighbours that make a piece together, those that
make the piece of the best score are joined first. In terms of BPE: every way to cut a piece into two pieces is a merge,
and merges rank as the scores of what they make. A character that is no piece is spelt in bytes.
"""

import math

import tokenizers
from tokenizers import decoders, models, normalizers

from .errors import LoadError
from .gguf_file import GGUFFile
from .gguf_vocabulary import Kind, Vocabulary

_SPACE = "\u2581"
_MOST_MERGES, _FEW_MERGES = 8, 1000
"""Ways to cut tokens in two, for each token and beside that; Llama's and Gemma's vocabularies have two a token."""
_MOST_CHARACTERS = 512  # of a piece; SentencePiece trains at most 16, and each is cut in all ways


def sentencepiece(file: GGUFFile, vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """The tokenizer without its special tokens."""
    ids = vocabulary.ids()
    unknown = vocabulary.tokens[vocabulary.kinds.index(Kind.UNKNOWN)] if Kind.UNKNOWN in vocabulary.kinds else None
    merges = _merges(file, vocabulary, ids)
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=ids, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    joined: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if file.get("tokenizer.ggml.add_space_prefix", True, kind=bool):
        # A text begins with a space of its own, and so does what follows a special token, as in llama.cpp.
        spaces.insert(0, normalizers.Prepend(_SPACE))
        joined.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence(joined)
    return backend


def _merges(file: GGUFFile, vocabulary: Vocabulary, ids: dict[str, int]) -> list[tuple[str, str]]:
    """All cuts of all pieces, best score first. Equal scores rank by id, the order that pieces were learnt in."""
    scores = file.items("tokenizer.ggml.scores", float)
    if len(scores) < len(vocabulary.tokens) or not all(map(math.isfinite, scores)):
        raise LoadError(
            f"{file.path} has {len(vocabulary.tokens)} tokens and {len(scores)} scores; expected a finite score for "
            "each, so convert it again"
        )
    most = _FEW_MERGES + _MOST_MERGES * len(ids)
    found: list[tuple[str, str]] = []
    for i in sorted(range(len(vocabulary.tokens)), key=lambda i: (-scores[i], i)):
        token, kind = vocabulary.tokens[i], vocabulary.kinds[i]
        if kind not in (Kind.NORMAL, Kind.USER_DEFINED, Kind.UNUSED) or ids.get(token) != i:
            continue  # never made of parts, or none at all, or texts are cut into another id of the same token
        if len(token) > _MOST_CHARACTERS:
            raise LoadError(
                f"token {i} of {file.path} has {len(token)} characters; expected at most {_MOST_CHARACTERS}, so "
                "convert it again"
            )
        cuts = ((ids.get(token[:cut]), ids.get(token[cut:])) for cut in range(1, len(token)))
        known = sorted((left, right) for left, right in cuts if left is not None and right is not None)
        found += ((vocabulary.tokens[left], vocabulary.tokens[right]) for left, right in known)
        if len(found) > most:
            raise LoadError(
                f"the {len(ids)} tokens of {file.path} can be cut into two others in more than {most} ways; expected "
                "the vocabulary of a language, so convert it again"
            )
    return found
