"""Embeddings are made once per distinct prompt and found again on disk."""

from pathlib import Path
from typing import Any

import pytest

from digend.wire.tasks import EncodeResult, EncodeTask, Prompt
from tests.engines.world import JOB, Bench, bench, job_config
from tests.pipelines import PROMPTS


def encode(on: Bench, *texts: str) -> EncodeResult:
    prompts = tuple(Prompt(uid=f"q{number}", text=text) for number, text in enumerate(texts))
    result = on.engine.run(EncodeTask(job=JOB, incarnation=0, prompts=prompts), on.context)
    assert isinstance(result, EncodeResult)
    return result


def counted(on: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that really reach the text encoders from now on."""
    job = on.engine._job
    assert job is not None
    seen: list[str] = []
    real = job.model.encode

    def spy(prompts: Any) -> Any:
        seen.extend(prompts)
        return real(prompts)

    monkeypatch.setattr(job.model, "encode", spy)
    return seen


def test_one_blob_a_prompt(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("generator", job_config(flux_folder), tmp_path)
    tensors = on.context.pull(on.conditions["p0"])
    assert {name: array.shape for name, array in tensors.items()} == {
        "prompt_embeds": (8, 32),
        "pooled_prompt_embeds": (32,),
    }
    assert on.conditions["p0"].digest != on.conditions["p1"].digest


def test_each_text_is_encoded_once(flux_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = bench("generator", job_config(flux_folder), tmp_path)
    seen = counted(on, monkeypatch)
    result = encode(on, "blue of red", PROMPTS[0], "blue of red")
    assert seen == ["blue of red"]
    assert result.conditions["q0"].digest == result.conditions["q2"].digest
    assert result.conditions["q0"].id != result.conditions["q2"].id
    assert result.conditions["q1"].digest == on.conditions["p0"].digest
    encode(on, "blue of red")
    assert seen == ["blue of red"]


def test_another_option_is_another_embedding(flux_folder: Path, tmp_path: Path) -> None:
    short = bench("generator", job_config(flux_folder), tmp_path)
    longer = bench("generator", job_config(flux_folder, model={"options": {"max_sequence_length": 12}}), tmp_path)
    assert longer.context.pull(longer.conditions["p0"])["prompt_embeds"].shape == (12, 32)
    assert short.conditions["p0"].digest != longer.conditions["p0"].digest


def test_a_torn_file_is_made_again(flux_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = bench("generator", job_config(flux_folder), tmp_path)
    for file in (tmp_path / "state" / "conditions").iterdir():
        file.write_bytes(file.read_bytes()[:50])
    seen = counted(on, monkeypatch)
    assert encode(on, PROMPTS[0]).conditions["q0"].digest == on.conditions["p0"].digest
    assert seen == [PROMPTS[0]]


def test_an_embedding_does_not_depend_on_its_neighbours(flux_folder: Path, tmp_path: Path) -> None:
    first, second = (bench("generator", job_config(flux_folder), tmp_path / name) for name in ("one", "two"))
    together = encode(first, "red", "a photo of a green circle", "blue")
    alone = encode(second, "blue")
    assert alone.conditions["q0"].digest == together.conditions["q2"].digest
