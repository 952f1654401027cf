"""What a job's rewards are called in curves and components. Torch-free; workers and driver must agree on it."""

from collections.abc import Iterable
from pathlib import Path


def labels_of(names: Iterable[str]) -> list[str]:
    """A label each: the name; `file:function` for one from a file; with #2 and so on where it repeats."""
    labels: list[str] = []
    for name in names:
        file, colon, function = name.rpartition(":")
        label = f"{Path(file).stem}:{function}" if colon else name
        count = sum(each.partition("#")[0] == label for each in labels)
        labels.append(label if count == 0 else f"{label}#{count + 1}")
    return labels
