"""What an update reports: sums over its (sample, timestep) pairs, read from the device once a forward pass."""

from collections.abc import Sequence

import numpy as np

from digend.algorithms.spec import PairLosses
from digend.engines.forwards import Forward
from digend.wire.tasks import UpdateItem, UpdateResult


class Sums:
    """Grows by one forward pass at a time. `keep_pairs`: also remember every pair's loss."""

    def __init__(self, *, keep_pairs: bool) -> None:
        self._keep_pairs = keep_pairs
        self._pairs: list[tuple[str, int, int, float]] = []
        self.num_pairs = 0
        self._loss = self._ratio = self._kl = self._max_abs_log_ratio = 0.0
        self._clipped = 0
        self._max_log_ratio = float("-inf")

    def add(self, items: Sequence[UpdateItem], forward: Forward, losses: PairLosses) -> None:
        each = losses.losses.detach().double().cpu()
        log_ratio = losses.log_ratio.double().cpu()
        self.num_pairs += len(forward.pairs)
        self._loss += float(each.sum())
        self._ratio += float(log_ratio.exp().sum())
        self._kl += float(losses.kl.double().sum())
        self._clipped += int(losses.clipped.sum())
        self._max_abs_log_ratio = max(self._max_abs_log_ratio, float(log_ratio.abs().max()))
        self._max_log_ratio = max(self._max_log_ratio, float(log_ratio.max()))
        if self._keep_pairs:
            for pair, loss in zip(forward.pairs, each.tolist(), strict=True):
                item = items[pair.item]
                self._pairs.append((item.prompt, item.index, pair.index, loss))

    def result(self) -> UpdateResult:
        return UpdateResult(
            num_pairs=self.num_pairs,
            loss_sum=self._loss,
            clipped=self._clipped,
            ratio_sum=self._ratio,
            max_abs_log_ratio=self._max_abs_log_ratio,
            kl_sum=self._kl,
            ratio_max=float(np.exp(self._max_log_ratio)) if self.num_pairs else 0.0,
            pairs=tuple(self._pairs),
        )
