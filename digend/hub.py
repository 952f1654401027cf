"""Where a model's folder is on this box: `model.path` is a folder, or `org/name@revision` of the Hugging Face hub.

Owns the form of a hub id and its way to a folder in the hub's cache (HF_HOME), each box for itself: what the cache
holds is taken as it is, and only what it lacks is downloaded. Imports the library when an id comes. Invariant: no
pickle is downloaded; whether two boxes hold the same weights is for the digest to say, not for the id.
"""

import re
from pathlib import Path

_HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)@(?P<revision>[A-Za-z0-9][\w./-]*)")
_PARTS = ["model_index.json", "*/*"]
"""Of a repository that also holds single files of tens of GiB beside the folders."""
_NOT = ["*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.msgpack", "*.h5", "*.onnx*"]
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_hub_id(path: str) -> bool:
    """Whether `path` has the form `org/name@revision`."""
    return _HUB_ID.fullmatch(path) is not None


def cached_folder(path: str) -> Path | None:
    """The folder of `model.path` as far as this box has it; None for a hub id that its cache lacks. No network."""
    found = _HUB_ID.fullmatch(path)
    if found is None:
        return Path(path)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        held = Path(snapshot_download(found["repo"], revision=found["revision"], local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return held if (held / "model_index.json").is_file() else None


def local_folder(path: str) -> Path:
    """The folder of `model.path`. Raises OSError for a hub id that the cache lacks and the hub does not give."""
    held, found = cached_folder(path), _HUB_ID.fullmatch(path)
    if held is not None or found is None:
        return held or Path(path)
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    error: Exception = OSError("it has no model_index.json")
    try:
        made = snapshot_download(found["repo"], revision=found["revision"], allow_patterns=_PARTS, ignore_patterns=_NOT)
        if (Path(made) / "model_index.json").is_file():
            return Path(made)
    except (HfHubHTTPError, OSError) as raised:
        error = raised
    if constants.HF_HUB_OFFLINE:
        why = "HF_HUB_OFFLINE forbids to download it: `hf download` it once, or give a folder"
    else:
        why = f"it could not be downloaded: {str(error).splitlines()[0]}"
    raise OSError(f"model.path: {path} is not in this box's cache {constants.HF_HUB_CACHE}, and {why}") from error


def commit_of(folder: Path) -> str:
    """The commit that a folder of the hub's cache holds; empty for any other folder."""
    return folder.name if folder.parent.name == "snapshots" and _COMMIT.fullmatch(folder.name) else ""
