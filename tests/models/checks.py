"""What must hold of every family, each check named by what it says; test_families.py calls them on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.utils.rnn import pad_sequence

from digend.models.spec import Condition, Model
from tests.families import Family
from tests.pipelines import PROMPTS

SEEDS = (3, 1, 2)


@dataclass
class Subject:
    """A family with its tiny folder, loaded by it and by diffusers."""

    family: Family
    folder: Path

    @cached_property
    def model(self) -> Model:
        return self.family.load(self.folder)

    @cached_property
    def stock(self) -> Any:
        return stock_pipeline(self.folder)

    @cached_property
    def conditions(self) -> list[Condition]:
        """Each encoded by itself, as the engine does."""
        return [self.model.encode([prompt])[0] for prompt in PROMPTS]

    def embeddings(self) -> dict[str, torch.Tensor]:
        """The conditions as the stock call's arguments, padded and masked where prompts have their own lengths."""
        found = {name: [each[name] for each in self.conditions] for name in self.family.conditions}
        masks = {
            f"{name}_mask": pad_sequence([torch.ones(len(each), dtype=torch.long) for each in embeds], True)
            for name, embeds in found.items()
            if len({each.shape for each in embeds}) > 1
        }
        return {name: pad_sequence(list(embeds), True) for name, embeds in found.items()} | masks


def stock_pipeline(folder: Path) -> Any:
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    for module in pipeline.components.values():
        if isinstance(module, torch.nn.Module):
            module.eval()
            for parameter in module.parameters():
                parameter.data = parameter.data.clone()
    return pipeline


def text_to_latents_is_the_stock_pipelines(subject: Subject, num_timesteps: int) -> None:
    """From the prompt on, one sample."""
    family = subject.family
    expected = family.drawn_by_stock(subject.stock, num_timesteps, SEEDS[:1], prompt=[PROMPTS[0]], **negative(family))
    drawn = family.drawn(subject.model, subject.conditions[:1], num_timesteps, SEEDS[:1])
    assert torch.equal(drawn, expected), float((drawn - expected).abs().max())


def a_batch_is_the_stock_pipelines(subject: Subject, num_timesteps: int) -> None:
    """Several samples in one forward pass, from the same embeddings."""
    family = subject.family
    expected = family.drawn_by_stock(subject.stock, num_timesteps, SEEDS, **dict[str, Any](subject.embeddings()))
    drawn = family.drawn(subject.model, subject.conditions, num_timesteps, SEEDS)
    assert torch.equal(drawn, expected), float((drawn - expected).abs().max())


def pixels_are_the_stock_pipelines(subject: Subject) -> None:
    """[B, 3, H, W] or [B, F, 3, H, W] uint8, to the last bit."""
    family = subject.family
    expected = family.drawn_by_stock(subject.stock, 2, SEEDS[:1], "np", prompt=[PROMPTS[0]], **negative(family))
    drawn = family.drawn(subject.model, subject.conditions[:1], 2, SEEDS[:1])
    pixels = (subject.model.decode(drawn, family.shape) * 255).round().to(torch.uint8)
    picture = np.moveaxis((np.asarray(expected) * 255).round().astype(np.uint8), -1, -3)
    assert np.array_equal(pixels.numpy(), picture)
    frames = (family.shape.num_frames,) if family.shape.num_frames > 1 else ()
    assert pixels.shape == (1, *frames, 3, family.shape.height, family.shape.width)
    assert len(np.unique(picture)) > 10


def negative(family: Family) -> dict[str, str]:
    """The negative prompt of the family's defaults, where its stock call asks for one."""
    options = family.spec.options.model_validate(family.options)
    asked = getattr(options, "negative_prompt", None)
    return {} if asked is None else {"negative_prompt": asked}


def samples_may_be_at_different_sigmas(subject: Subject) -> None:
    """And a sample's velocity does not depend on its company."""
    model, family = subject.model, subject.family
    latents, mixed = model.initial(generators(), family.shape), torch.tensor([1.0, 0.6, 0.2])
    with torch.no_grad():
        together = model.velocity(latents, mixed, subject.conditions, family.guidance_scale, family.shape)
        for row in range(3):
            here = slice(row, row + 1)
            alone = model.velocity(
                latents[here], mixed[here], subject.conditions[here], family.guidance_scale, family.shape
            )
            torch.testing.assert_close(together[here], alone, rtol=1e-4, atol=1e-5)


def guidance_matters(subject: Subject, negative_prompt: str | None = None) -> None:
    """The scale, and where there is an unconditional pass, its prompt."""
    model, family = subject.model, subject.family
    latents, sigma = model.initial(generators(), family.shape), torch.full((3,), 0.5)
    with torch.no_grad():
        one, other = (model.velocity(latents, sigma, subject.conditions, scale, family.shape) for scale in (1.0, 8.0))
        assert not torch.allclose(one, other, atol=1e-5)
        if negative_prompt is not None:
            against = family.load(subject.folder, negative_prompt=negative_prompt)
            conditions = against.encode(PROMPTS)
            assert not torch.allclose(other, against.velocity(latents, sigma, conditions, 8.0, family.shape), atol=1e-6)
            torch.testing.assert_close(one, against.velocity(latents, sigma, conditions, 1.0, family.shape))


def generators() -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in SEEDS]


def sigmas_are_exact(subject: Subject, fewest: int = 1) -> None:
    """float32 values, ending in exactly 0, and no more than 1."""
    for num_timesteps in (fewest, 2, 6, 10):
        sigmas = subject.model.sigmas(num_timesteps, subject.family.shape)
        assert len(sigmas) == num_timesteps + 1
        assert sigmas == torch.tensor(sigmas, dtype=torch.float32).tolist()
        assert sigmas[-1] == 0
        assert 0.9 < sigmas[0] <= 1 + 2**-23


def the_spec_names_what_exists(subject: Subject) -> None:
    spec = subject.family.spec
    assert tuple(subject.model.trainable) == spec.trainable
    for module in subject.model.trainable.values():
        names = [name for name, _ in module.named_modules()]
        assert all(any(name.endswith(target) for name in names) for target in spec.lora_targets)
        assert all(isinstance(module.get_submodule(name), torch.nn.ModuleList) for name in spec.sharding_units)
        inside = sum(len(list(module.get_submodule(name).parameters())) for name in spec.sharding_units)
        assert inside > 0.3 * len(list(module.parameters()))


def everything_is_frozen_and_aligned(subject: Subject) -> None:
    for module in subject.model.trainable.values():
        assert not module.training
        assert not any(parameter.requires_grad for parameter in module.parameters())
        assert all(parameter.data_ptr() % 64 == 0 for parameter in module.parameters())


def a_broken_key_is_counted(subject: Subject, copy: Path) -> None:
    """One tensor under another name: refused with how many are bound."""
    from shutil import copytree

    component = subject.family.spec.trainable[-1]
    copytree(subject.folder, copy)
    file = copy / component / "diffusion_pytorch_model.safetensors"
    tensors = load_file(file)
    total, name = len(tensors), sorted(tensors)[-1]
    tensors[f"{name}_renamed"] = tensors.pop(name)
    save_file(tensors, file)
    with pytest.raises(OSError, match=f"{component}: bound {total - 1} of {total} tensors.*{name}"):
        subject.family.load(copy)


def bf16_works(subject: Subject) -> None:
    """Velocities in bf16, latents and pixels in fp32, the VAE in fp32."""
    family = subject.family
    model = family.load(subject.folder, "bfloat16")
    conditions = model.encode(PROMPTS[:1])
    latents = model.initial(generators()[:1], family.shape)
    assert latents.dtype == torch.float32
    with torch.no_grad():
        velocity = model.velocity(latents, torch.full((1,), 0.5), conditions, family.guidance_scale, family.shape)
        full = subject.model.velocity(
            latents, torch.full((1,), 0.5), subject.conditions[:1], family.guidance_scale, family.shape
        )
    assert velocity.dtype == torch.bfloat16
    assert float((velocity.float() - full).abs().mean()) < 0.1 * float(full.abs().mean())


def encoders_may_go(subject: Subject, saved: Path) -> None:
    """Once everything is encoded; what is saved has them all the same."""
    family = subject.family
    model = family.load(subject.folder)
    conditions = model.encode(PROMPTS[:1])
    model.unload_encoders()
    drawn = family.drawn(model, conditions, 2, SEEDS[:1])
    assert torch.equal(drawn, family.drawn(subject.model, subject.conditions[:1], 2, SEEDS[:1]))
    model.save(str(saved))
    again = family.load(saved).encode(PROMPTS[:1])
    assert same_conditions(again, conditions)


def same_conditions(some: Sequence[Condition], others: Sequence[Condition]) -> bool:
    return all(_same(one, other) for one, other in zip(some, others, strict=True))


def _same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def the_adapter_loads_into_stock(subject: Subject, folder: Path) -> None:
    """Made as the engine makes it, written, read by the stock pipeline: it draws the adapted policy's latents."""
    from digend.engines.policy import Adapter, Policy

    family = subject.family
    model = family.load(subject.folder)
    policy = Policy(model, Adapter(rank=2, alpha=4.0, targets=family.spec.lora_targets, seed=1))
    rng = torch.Generator().manual_seed(5)
    for parameter in policy.parameters.values():
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=rng)
    model.save_adapter(str(folder))
    stock = stock_pipeline(subject.folder)
    for component in model.trainable:
        arguments: dict[str, Any] = {} if component == "transformer" else {f"load_into_{component}": True}
        stock.load_lora_weights(folder if not arguments else folder / component, **arguments)
    drawn = family.drawn(model, subject.conditions, 2, SEEDS)
    torch.testing.assert_close(drawn, family.drawn_by_stock(stock, 2, SEEDS, **dict[str, Any](subject.embeddings())))
    assert not torch.allclose(drawn, family.drawn(subject.model, subject.conditions, 2, SEEDS), atol=1e-3)
