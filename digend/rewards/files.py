"""Rewards from a file: `file.py:function`, only from folders that the node file allows (`reward_paths`).

Owns the name's form, the check that the file really lies in an allowed folder (links are followed first), and the step
from the plain function to the Reward protocol. A job file is data: without an allowed folder no job can run code.

The function: `function(pixels, prompts, metadata) -> list of floats`, one a sample, larger is better. pixels: float32
numpy [B, 3, H, W] or [B, F, 3, H, W] in [0, 1]; prompts: list of texts; metadata: list of dicts of texts.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from typing import Any

from digend.config.errors import nearest
from digend.rewards.spec import Batch, Scores

RewardFunction = Callable[..., Sequence[float | None]]


class RewardFileError(ValueError):
    """A `file.py:function` reward is refused or cannot be loaded; whoever asked for it has its name."""


def is_file_reward(name: str) -> bool:
    """Whether a reward's name has the form `file.py:function`."""
    return name.rpartition(":")[0].endswith(".py")


def form_hint(name: str) -> str:
    """For a name that is no plug-in and looks like a file's: how that is written; else nothing."""
    file, colon, function = name.partition(":")
    if not colon and not file.endswith(".py"):
        return ""
    stem = file.removesuffix(".py")
    return f"; a function of a file is named FILE.py:FUNCTION, such as {stem}.py:{function or 'score'}"


def complaint(name: str, folders: Iterable[str | Path]) -> str | None:
    """What would keep `load_file_reward` from loading it, as far as can be told without running the file; else None."""
    file, _, function = name.rpartition(":")
    try:
        path = _allowed(file, [Path(folder).resolve() for folder in folders])
        names = list(_top_names(ast.parse(path.read_bytes(), str(path))))
    except RewardFileError as error:
        return str(error)
    except SyntaxError as error:
        return f"{path}:{error.lineno}: {error.msg}"
    if function in names or "*" in names:
        return None
    return _no_function(path, function, names)


def _top_names(tree: ast.Module) -> Iterator[str]:
    """What a module defines or imports at its top; "*" where only running it would tell."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in node.names)
            case ast.Assign() | ast.AnnAssign():
                yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
            case ast.Expr():
                pass
            case _:
                yield "*"


def _no_function(path: Path, function: str, known: Iterable[str]) -> str:
    near = nearest(function, known)
    return f"{path} has no function {function!r}" + (f"; did you mean {near}?" if near else "")


class FileReward:
    """The Reward made of a plain function."""

    def __init__(self, function: RewardFunction) -> None:
        self._function = function

    def score(self, batch: Batch) -> Scores:
        """Raises TypeError where the function's answer is no sequence; its length is checked by the caller."""
        answer: Any = self._function(batch.pixels, list(batch.prompts), [dict(each) for each in batch.metadata])
        if isinstance(answer, str | bytes) or not hasattr(answer, "__iter__"):
            raise TypeError(f"the function returned a {type(answer).__name__}, not a list of floats")
        return Scores(values=[None if value is None else float(value) for value in answer])


def load_file_reward(name: str, folders: Iterable[str | Path]) -> FileReward:
    """The reward `file.py:function`; a relative file is looked up in each allowed folder in turn.

    Raises RewardFileError where no folder is allowed, the file is missing or outside them, does not import, or has no
    such function.
    """
    file, _, function = name.rpartition(":")
    path = _allowed(file, [Path(folder).resolve() for folder in folders])
    module_spec = spec_from_file_location(f"digend_reward_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise RewardFileError(f"{path} is not a Python file")
    module = module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise RewardFileError(f"{path} does not import: {error!r}") from error
    loaded = getattr(module, function, None)
    if not callable(loaded):
        known = [each for each, value in vars(module).items() if isfunction(value)]
        raise RewardFileError(_no_function(path, function, known))
    return FileReward(loaded)


def _allowed(file: str, folders: Sequence[Path]) -> Path:
    if not folders:
        raise RewardFileError("this node allows no reward files (reward_paths of the node file)")
    listed = ", ".join(f"{folder}" if folder.is_dir() else f"{folder}, which is no folder" for folder in folders)
    candidates = [candidate for folder in folders if (candidate := (folder / file).resolve()).is_file()]
    inside = [path for path in candidates if any(path.is_relative_to(folder) for folder in folders)]
    if inside:
        return inside[0]
    if candidates:
        raise RewardFileError(f"{candidates[0]} is outside the folders of reward_paths ({listed})")
    near = nearest(file, [each.name for folder in folders for each in folder.glob("*.py")])
    hint = f"; did you mean {near}?" if near else ""
    raise RewardFileError(f"no file {file} in the folders of reward_paths ({listed}){hint}")
