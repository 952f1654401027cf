"""A job file that is valid, for tests that break one thing of it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]

JOB = """\
name = "tiny"

[model]
family = "flux"
path = "model"

[sampling]
height = 16
width = 16
num_timesteps = 8

[algorithm]
name = "flow_grpo"

[algorithm.options]
window_size = 3
window_range = [0, 3]

[data]
prompts = "prompts.txt"
prompts_per_rollout = 2
samples_per_prompt = 4

[training]
global_steps = 2

[[rewards]]
name = "jpeg_compressibility"
"""


def write_job(folder: Path, text: str = JOB, prompts: bytes = b"a red circle\na blue ring\na green cross\n") -> Path:
    """A job file in `folder`, with its prompts and a model folder beside it."""
    (folder / "model").mkdir(exist_ok=True)
    (folder / "prompts.txt").write_bytes(prompts)
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def changed(old: str, new: str) -> str:
    """The job with one piece replaced."""
    assert old in JOB
    return JOB.replace(old, new)
