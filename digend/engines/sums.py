"""What an update reports: sums over its (sample, timestep) pairs, read from the device once a forward pass."""

from collections.abc import Sequence

import numpy as np

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
        if losses.rejected is not None:
            self._rejected += int(losses.rejected.sum())
        places = [(items[pair.item].prompt, items[pair.item].index, pair.index) for pair in forward.pairs]
        if self._drift is not None:
            self._drift.add(zip(places, log_ratio.tolist(), strict=True))
        if self._keep_pairs:
            self._pairs += [(*place, loss) for place, loss in zip(places, each.tolist(), strict=True)]

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
            rejected=self._rejected,
            sample_drift=self._drift.samples() if self._drift else (),
            timestep_drift=self._drift.timesteps() if self._drift else (),
        )
