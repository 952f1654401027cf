"""Prompt embeddings, made once per distinct prompt and kept on disk.

Owns the disk cache: one safetensors file a prompt, named by what its content depends on (base weights, family and its
condition version, options, number type, text). Invariant: a prompt is encoded by itself, so that its embedding does not
depend on which prompts came with it, and served in the order of its tensors' names, so that its blob's digest does not
depend on whether it was found on disk; a file that cannot be read is made again.
"""

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from digend.engines.arrays import to_array
from digend.engines.jobs import Job
from digend.engines.protocols import Context
from digend.models.spec import Condition
from digend.wire.refs import BlobRef
from digend.wire.tasks import EncodeResult, EncodeTask

FOLDER = "conditions"


def encode(job: Job, task: EncodeTask, context: Context, state_dir: Path) -> EncodeResult:
    """One blob a prompt, by uid; prompts with the same text are encoded once. Raises Cancelled."""
    known: dict[str, Condition] = {}
    served: dict[str, BlobRef] = {}
    for number, prompt in enumerate(task.prompts):
        if prompt.text not in known:
            with context.stage("encode"):
                known[prompt.text] = _condition(job, prompt.text, state_dir / FOLDER)
        arrays = {name: to_array(tensor) for name, tensor in sorted(known[prompt.text].items())}
        served[prompt.uid] = context.serve(arrays)
        context.progress(number + 1, len(task.prompts))
    return EncodeResult(conditions=served)


def cache_key(job: Job, text: str) -> str:
    """The file's name, without its suffix."""
    parts = [
        job.base_digest,
        job.family.name,
        job.family.condition_version,
        job.model_options.model_dump(mode="json"),
        job.config.model.dtype,
        text,
    ]
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _condition(job: Job, text: str, folder: Path) -> Condition:
    path = folder / f"{cache_key(job, text)}.safetensors"
    if path.is_file():
        try:
            return {name: tensor.clone() for name, tensor in load_file(path).items()}
        except (SafetensorError, OSError):
            path.unlink(missing_ok=True)
    (condition,) = job.model.encode([text])
    _write(path, condition)
    return condition


def _write(path: Path, condition: Condition) -> None:
    """Another process may write the same file: whoever renames last wins, with the same content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    tensors: Mapping[str, object] = {name: tensor.contiguous() for name, tensor in condition.items()}
    save_file(tensors, hidden)
    hidden.replace(path)
