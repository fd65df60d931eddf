"""The slots of a batch as the host sees them: who sits where, and the programs that run over them."""

from collections import deque
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import PyTree
from ..control import Controller, Costs, estimate
from ..drafters import Drafter
from ..lm import LanguageModel
from ..loop import begin
from ..state import FinishReason, GenerateConfig, Generation
from . import programs
from .prompts import bucket, pack, rows_at_once
from .request import Request


class Slots:
    """A batch of rows on the device, all of them idle at first. Only `build` and `ended` wait for the device."""

    def __init__(
        self,
        target: LanguageModel,
        target_params: PyTree,
        drafter: Drafter | None,
        drafter_params: PyTree,
        *,
        batch: int,
        config: GenerateConfig,
        seed: int,
        eos_tokens: Sequence[int],
        controller: Controller,
        costs: Costs | None,
    ):
        self._models = (target, target_params, drafter, drafter_params)
        self._config, self._seed = config, seed
        self._eos = np.asarray(eos_tokens, np.int32)
        self._requests: list[Request | None] = [None] * batch
        self._built: set[int] = set()
        if costs is None:
            costs = estimate(target_params, drafter, drafter_params, batch, config.widths)
        self._controller, self._costs = controller, costs.checked(config.widths)
        # Rows that take the place of others go on with what was learned of those: the best guess there is.
        self._control = jax.tree.map(jnp.copy, begin(controller, drafter, batch, config))  # to be donated
        self._state, self._axes = programs.blank(*self._models, self._eos, batch=batch, config=config)

    @property
    def busy(self) -> int:
        """Rows that run, as far as the host knows."""
        return sum(request is not None for request in self._requests)

    def next_group(self, waiting: deque[Request]) -> tuple[int, list[Request]]:
        """A bucket, and the requests of it that are read next: the first that waits, and others along with it.

        They leave the queue; there are none where no slot is idle. The others keep their order.
        """
        idle = len(self._requests) - self.busy
        if not idle or not waiting:
            return 0, []
        width = self._bucket(waiting[0])
        most = min(idle, rows_at_once(width, self._config, len(self._requests)))
        group = []
        for _ in range(len(waiting)):
            request = waiting.popleft()
            if len(group) < most and self._bucket(request) == width:
                group.append(request)
            else:
                waiting.append(request)
        return width, group

    def is_built(self, width: int) -> bool:
        """Whether the programs for prompts of this bucket have run."""
        return width in self._built

    def build(self, width: int) -> None:
        """Compile what prompts of this bucket need, by running it on idle rows; the rows that run are not touched."""
        if not self._built:
            # Every leaf of the state gets the value that the models give an idle row.
            rows, batch = rows_at_once(width, self._config, len(self._requests)), len(self._requests)
            for first in range(0, batch, rows):
                self._insert(width, [], range(first, min(first + rows, batch)), fresh=True)
            jax.block_until_ready(programs.take(self._state, np.int32(0), config=self._config, axes=self._axes))
        else:
            self._insert(width, [], [])
        self.decode(wanted=1, rounds=0)
        jax.block_until_ready(self._state.lengths)
        self._built.add(width)

    def insert(self, width: int, group: Sequence[Request]) -> None:
        """Put the requests into idle slots."""
        idle = [slot for slot, request in enumerate(self._requests) if request is None][: len(group)]
        self._insert(width, group, idle)
        for slot, request in zip(idle, group, strict=True):
            self._requests[slot] = request

    def decode(self, *, wanted: int, rounds: int) -> None:
        """Go on until ``wanted`` rows have ended, none runs, or so many rounds have passed."""
        self._state, self._control = programs.decode(
            *self._models,
            self._controller,
            self._costs,
            self._state,
            self._control,
            np.int32(wanted),
            np.int32(rounds),
            config=self._config,
        )

    def ended(self) -> list[tuple[Request, Generation]]:
        """Wait for the device, and free the slots whose rows have ended. What they hold is still on its way."""
        reasons = np.asarray(self._state.finish_reason)
        found = []
        for slot, request in enumerate(self._requests):
            if request is not None and reasons[slot] != FinishReason.RUNNING:
                answer = programs.take(self._state, np.int32(slot), config=self._config, axes=self._axes)
                found.append((request, answer))
                self._requests[slot] = None
        return found

    def _bucket(self, request: Request) -> int:
        return bucket(len(request.token_ids), self._config)

    def _insert(self, width: int, group: Sequence[Request], slots: Sequence[int], *, fresh: bool = False) -> None:
        rows = rows_at_once(width, self._config, len(self._requests))
        self._state = programs.insert(
            *self._models,
            self._state,
            pack(group, rows, width, self._seed),
            np.asarray([*slots, *[0] * (rows - len(slots))], np.int32),
            np.int32(len(slots)),
            np.bool_(fresh),
            self._eos,
            config=self._config,
            axes=self._axes,
        )
