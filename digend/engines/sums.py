"""What an update reports: sums over its (sample, timestep) pairs, read from the device once a forward pass.

Invariant: pairs are summed in the order in which one rank would train them, whoever did.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from digend.algorithms.spec import PairLosses
from digend.engines.drift import Drift
from digend.engines.forwards import Forward
from digend.wire.tasks import UpdateItem, UpdateResult


class Sums:
    """Grows by one forward pass at a time. `keep_pairs`: also remember every pair's loss. `drifts`: there are log-probs
    of the rollout to compare with."""

    def __init__(self, *, keep_pairs: bool, drifts: bool = True) -> None:
        self._keep_pairs = keep_pairs
        self._drift = Drift() if drifts else None
        self._rejected = 0
        self._pairs: list[tuple[str, int, int, float]] = []
        self.num_pairs = 0
        self._loss = self._ratio = self._kl = self._max_abs_log_ratio = 0.0
        self._clipped = 0
        self._max_log_ratio = float("-inf")

    def add(self, items: Sequence[UpdateItem], forward: Forward, rows: Tensor) -> None:
        """`rows`: of `PairTable`, those of the pass's pairs."""
        each, log_ratio, kl, clipped, rejected = rows.unbind(1)
        self.num_pairs += len(forward.pairs)
        self._loss += float(each.sum())
        self._ratio += float(log_ratio.exp().sum())
        self._kl += float(kl.sum())
        self._clipped += int(clipped.sum())
        self._max_abs_log_ratio = max(self._max_abs_log_ratio, float(log_ratio.abs().max()))
        self._max_log_ratio = max(self._max_log_ratio, float(log_ratio.max()))
        self._rejected += int(rejected.sum())
        places = [(items[pair.item].prompt, items[pair.item].index, pair.index) for pair in forward.pairs]
        if self._drift is not None:
            self._drift.add(zip(places, log_ratio.tolist(), strict=True))
        if self._keep_pairs:
            self._pairs += [(*place, loss) for place, loss in zip(places, each.tolist(), strict=True)]

    def result(self, remade: int = 0) -> UpdateResult:
        """`remade`: how often all of it was made again."""
        return UpdateResult(
            num_pairs=self.num_pairs,
            loss_sum=self._loss,
            clipped=self._clipped,
            ratio_sum=self._ratio,
            max_abs_log_ratio=self._max_abs_log_ratio,
            kl_sum=self._kl,
            ratio_max=float(np.exp(self._max_log_ratio)) if self.num_pairs else 0.0,
            pairs=tuple(self._pairs),
            rejected=self._rejected,
            remade=remade,
            sample_drift=self._drift.samples() if self._drift else (),
            timestep_drift=self._drift.timesteps() if self._drift else (),
        )


class PairTable:
    """Figures of every pair of an update, float64 [N, 5] on the CPU: loss, log ratio, KL, clipped, rejected; 0 where
    another rank trains the pair, so that tables of ranks add up. `planned`: all passes, as one rank would run them."""

    def __init__(self, planned: Sequence[Forward]) -> None:
        self._planned = planned
        self._rows = {pair: row for row, pair in enumerate(pair for forward in planned for pair in forward.pairs)}
        self._table = torch.zeros(len(self._rows), 5, dtype=torch.float64)

    def add(self, forward: Forward, losses: PairLosses) -> None:
        """This rank's pass."""
        if forward.padding:
            return
        rejected = torch.zeros_like(losses.clipped) if losses.rejected is None else losses.rejected
        columns = (losses.losses.detach(), losses.log_ratio, losses.kl, losses.clipped, rejected)
        rows = torch.stack([column.double() for column in columns], dim=1).cpu()
        self._table[[self._rows[pair] for pair in forward.pairs]] = rows

    def pour(
        self, sums: Sums, items: Sequence[UpdateItem], add_up: Callable[[Tensor], Tensor], remade: int = 0
    ) -> UpdateResult:
        """The sums over all ranks' tables. `remade`: how often the micro-batch was made again."""
        table = add_up(self._table)
        for forward in self._planned:
            sums.add(items, forward, table[[self._rows[pair] for pair in forward.pairs]])
        return sums.result(remade)
