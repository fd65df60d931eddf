"""Batches by their number: of fixed data, or with a share that is sampled afresh in every phase."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from specdec_jax._typing import PyTree

from .packing import Packed, rows_at
from .students import Batch
from .teacher import Outputs, rows_of


class Corpus(NamedTuple):
    """Packed texts with what the teacher says about them."""

    packed: Packed
    outputs: Outputs

    def batch(self, index: np.ndarray) -> Batch:
        return Batch(*self.packed.rows(index), *rows_of(self.outputs, index))

    @property
    def rows(self) -> int:
        return len(self.packed.tokens)


Phase = Callable[[int], Batch]


def fixed(corpus: Corpus, batch: int, seed: int) -> Callable[[int, PyTree], Phase]:
    """Epochs of one corpus, each in an order of its own."""

    def phase(first: int, params: PyTree) -> Phase:
        del first, params
        return lambda step: corpus.batch(rows_at(step, corpus.rows, batch, seed))

    return phase


def mixed(
    corpus: Corpus, fresh: Callable[[int, PyTree], Corpus], share: float, batch: int, seed: int
) -> Callable[[int, PyTree], Phase]:
    """A share of each batch from texts sampled at the start of the phase, as in DistillSpec (Zhou et al., ICLR 2024).

    Args:
        corpus: where the other rows come from.
        fresh: ``(first step of the phase, student's parameters) -> texts``, the same for the same arguments.
        share: of the rows, more than 0 and at most 1.
        batch: rows of a batch.
        seed: of the orders.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share of fresh rows is {share}; expected more than 0 and at most 1")
    new = max(1, round(share * batch))
    old = batch - new

    def phase(first: int, params: PyTree) -> Phase:
        pool = fresh(first, params)

        def at(step: int) -> Batch:
            # A pool smaller than a batch is gone through more than once.
            places = np.arange((step - first) * new, (step - first + 1) * new)
            order = np.random.default_rng((seed, first, 1)).permutation(pool.rows)
            parts = [pool.batch(order[places % pool.rows])]
            if old:
                parts.append(corpus.batch(rows_at(step, corpus.rows, old, seed)))
            return Batch(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

        return at

    return phase


def in_order(corpus: Corpus, batch: int) -> Callable[[], Iterator[Batch]]:
    """All rows once; a last batch that is not full is filled up with rows that do not count."""

    def batches() -> Iterator[Batch]:
        for start in range(0, corpus.rows, batch):
            index = np.arange(start, start + batch)
            part = corpus.batch(np.minimum(index, corpus.rows - 1))
            yield part._replace(learned=part.learned & (index < corpus.rows)[:, None])

    return batches
