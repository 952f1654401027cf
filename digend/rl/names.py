"""Closed lists of names that job files, the driver and the torch side must agree on.

Owns the kernel names; knows nothing of what a kernel computes (`digend.diffusion.kernels`). It is here, not
beside the kernels, because the driver checks a name at submit without importing torch.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

KERNELS: Final = ("flow_sde", "cps", "dance_sde", "ode")


def require_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise ValueError when `name` is none of `known`, naming the nearest; `kind` says what was asked for."""
    names = tuple(known)
    if name in names:
        return
    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")
