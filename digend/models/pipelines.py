"""Pipeline folders in diffusers' layout: checked, loaded and written the same way for every family.

Owns what a folder must hold before diffusers is asked, the memory layout of loaded weights and the layout of what a
checkpoint's `pipeline/` holds. Must not know a family's forward pass.

Invariants: only safetensors are read, never a pickle, never the network. Every loaded parameter is moved to memory
that torch allocated: the mapped file is unaligned, and the same values at other alignments give other bits. A written
folder differs from the one it came from in the trained modules only; the rest is copied byte for byte.
"""

import copy
import json
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch

from digend.models.components import tensor_shapes, weight_files

ENCODERS = "text_encoder"
"""How the names of components begin that `encode` needs and nothing else."""

_waiting: ContextVar[frozenset[str]] = ContextVar("waiting", default=frozenset())
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.msgpack", "*.h5")


@contextmanager
def left_in_host_memory(components: Collection[str]) -> Iterator[None]:
    """Pipelines that are loaded inside never have these on the device: what is larger than it may be offloaded.

    A name also stands for those that it begins.
    """
    token = _waiting.set(frozenset(components))
    try:
        yield
    finally:
        _waiting.reset(token)


def check_folder(path: str, class_name: str, components: tuple[str, ...]) -> None:
    """Raises OSError where folder or weights are missing, ValueError where it holds another pipeline; both name it."""
    folder = Path(path)
    if not folder.is_dir():
        raise OSError(f"model.path: {path} is not a folder")
    index = folder / "model_index.json"
    if not index.is_file():
        raise OSError(f"model.path: {index} is missing; a diffusers pipeline folder has one")
    found = json.loads(index.read_text("utf-8")).get("_class_name")
    if found != class_name:
        raise ValueError(f"model.path: {index} names the pipeline {found}, this family needs {class_name}")
    for component in components:
        if not any((folder / component).glob("*.safetensors")):
            raise OSError(f"model.path: {folder / component} holds no weights (*.safetensors)")


def check_tokens(asked: int, tokenizer: Any, where: str) -> None:
    """Raises ValueError where `model.options.max_sequence_length` is more than a tokenizer allows."""
    allowed = tokenizer.model_max_length
    if asked > allowed:
        raise ValueError(
            f"model.options.max_sequence_length = {asked} is more than the {allowed} tokens that {where} allows"
        )


def load_pipeline(path: str, device: str, dtype: torch.dtype, trained: Sequence[str] = ("transformer",)) -> Any:
    """The stock pipeline, frozen, in eval mode, its weights aligned; half precision keeps the VAE in float32.

    Raises OSError with the folder's name for whatever diffusers cannot read, and where a tensor of a module that is to
    be trained is not bound to one of the folder: diffusers would leave it at random values and only say so.
    """
    pipeline = _stock(path, dtype, {})
    for name in trained:
        _check_bound(Path(path) / name, getattr(pipeline, name))
    _settle(pipeline, device)
    return pipeline


def load_vae(path: str, device: str, dtype: torch.dtype) -> Any:
    """The stock pipeline with its VAE and nothing else, for a process that only decodes."""
    listed = json.loads((Path(path) / "model_index.json").read_text("utf-8"))
    others = [name for name, kind in listed.items() if isinstance(kind, list) and name not in ("vae", "scheduler")]
    pipeline = _stock(path, dtype, dict.fromkeys(others))
    _settle(pipeline, device)
    return pipeline


def _stock(path: str, dtype: torch.dtype, components: Mapping[str, None]) -> Any:
    """What diffusers makes of a folder; `components` are left out."""
    _silence()
    from diffusers import DiffusionPipeline

    half = dtype.itemsize < torch.float32.itemsize
    try:
        with warnings.catch_warnings():
            # Newer releases call the argument dtype, older ones know torch_dtype only.
            warnings.filterwarnings("ignore", message=".*torch_dtype", category=FutureWarning)
            return DiffusionPipeline.from_pretrained(
                path,
                torch_dtype={"default": dtype, "vae": torch.float32 if half else dtype},
                local_files_only=True,
                use_safetensors=True,
                **components,
            )
    except Exception as error:
        raise OSError(f"model.path: {path} cannot be loaded: {error}") from error


def _settle(pipeline: Any, device: str) -> None:
    """Frozen, in eval mode, aligned, on the device but for those that wait in host memory."""
    pipeline.set_progress_bar_config(disable=True)
    waiting = tuple(_waiting.get())
    for name, module in pipeline.components.items():
        if isinstance(module, torch.nn.Module):
            module.requires_grad_(False).eval()
            align(module)
            if not name.startswith(waiting):
                module.to(device)


def _check_bound(folder: Path, module: torch.nn.Module) -> None:
    """Raises OSError unless every tensor of the module, and no other, is in the folder's files."""
    written = {name for file in weight_files(folder) for name, _ in tensor_shapes(file)}
    wanted = list(module.state_dict())
    missing = [name for name in wanted if name not in written]
    unknown = sorted(written - set(wanted))
    if missing or unknown:
        first = f"missing {missing[0]}" if missing else f"{unknown[0]} is no tensor of the model"
        raise OSError(
            f"model.path: {folder.parent}: {folder.name}: bound {len(wanted) - len(missing)} of {len(wanted)} tensors: "
            f"{first}"
        )


def _silence() -> None:
    """Progress bars and remarks about optional packages do not belong in a daemon's log."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()

    import diffusers

    diffusers.utils.logging.disable_progress_bar()


def align(module: torch.nn.Module) -> None:
    """Copy every parameter and buffer into memory that torch allocated."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.clone()


def save_pipeline(source: str, folder: str, trained: Mapping[str, torch.nn.Module]) -> None:
    """Write a pipeline folder: `source` with the trained modules in place of its own, adapters merged into a copy."""
    ignored = shutil.ignore_patterns(*trained, *_PICKLES, ".*")
    shutil.copytree(source, folder, ignore=ignored, dirs_exist_ok=True)
    for name, module in trained.items():
        merged: Any = merge_adapter(module, Path(source) / name)
        merged.save_pretrained(Path(folder) / name, safe_serialization=True)


def merge_adapter(module: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """The module itself, or, where it has an adapter, a copy with the adapter merged into its weights.

    Where the base is stored in 8 bits, the copy is of the weights that it was loaded from.
    """
    if not hasattr(module, "peft_config"):
        return module
    small = any(parameter.dtype.itemsize == 1 for parameter in module.parameters())
    merged: Any = _with_adapter_of(module, folder) if small else copy.deepcopy(module)
    merged.fuse_lora()
    merged.unload_lora()
    return merged  # type: ignore[no-any-return]


def _with_adapter_of(module: Any, folder: Path) -> Any:
    from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict

    loaded = type(module).from_pretrained(folder, local_files_only=True, use_safetensors=True)
    loaded.add_adapter(module.peft_config["default"], adapter_name="default")
    set_peft_model_state_dict(loaded, get_peft_model_state_dict(module, adapter_name="default"), "default")
    return loaded.to(next(module.parameters()).device)


def save_adapter(pipeline: Any, folder: str, trained: Mapping[str, torch.nn.Module]) -> None:
    """Write `pytorch_lora_weights.safetensors` as diffusers' load_lora_weights reads it, rank and alpha included.

    That of a second transformer goes into a folder of its name, for `load_into_transformer_2=True`.
    """
    from peft.utils import get_peft_model_state_dict

    for name, module in trained.items():
        adapted: Any = module
        target = Path(folder) if name == "transformer" else Path(folder) / name
        type(pipeline).save_lora_weights(
            target,
            transformer_lora_layers=get_peft_model_state_dict(module, adapter_name="default"),
            transformer_lora_adapter_metadata=adapted.peft_config["default"].to_dict(),
            safe_serialization=True,
        )
