"""Counting traces: a program that is traced again is compiled again."""

from collections.abc import Callable

from ..lm import LanguageModel


def count_traces(model: LanguageModel) -> tuple[LanguageModel, Callable[[], int]]:
    """The same model, and a function that tells how often its ``apply`` ran in Python, as it does to be traced."""
    count = 0

    def apply(params, tokens, cache, lengths):
        nonlocal count
        count += 1
        return model.apply(params, tokens, cache, lengths)

    return model._replace(apply=apply), lambda: count
