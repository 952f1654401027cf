"""Bad job files: each error names the file, the line, the key, what was expected, and the nearest known name."""

from pathlib import Path

import pytest

from digend.config.errors import ConfigError
from digend.config.loader import load_job
from digend.config.prompts import PromptRow
from digend.job_check import read_job, validate_job
from tests.config.support import JOB, changed, write_job


def message_of(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_job(path, overrides)
    return str(caught.value)


def test_a_valid_job_has_absolute_paths(tmp_path: Path) -> None:
    inputs = read_job(write_job(tmp_path))
    assert inputs.config.model.path == str(tmp_path / "model")
    assert inputs.config.data.prompts == str(tmp_path / "prompts.txt")
    assert [each.text for each in inputs.prompts] == ["a red circle", "a blue ring", "a green cross"]
    assert inputs.eval_prompts is None
    validate_job(inputs.config, inputs.prompts)


def test_paths_are_relative_to_the_file_not_to_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    write_job(folder, changed('path = "model"', 'path = "../other"'))
    monkeypatch.chdir(tmp_path)
    assert load_job("jobs/job.toml").model.path == str(tmp_path / "other")


def test_evaluation_prompts_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "held-out.txt").write_text("a white square\n")
    inputs = read_job(write_job(tmp_path, JOB + '\n[eval]\nprompts = "held-out.txt"\n'))
    assert inputs.eval_prompts == (PromptRow("a white square"),)
    assert inputs.config.eval.prompts == str(tmp_path / "held-out.txt")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("height = 16", "hieght = 16", ":8: sampling.hieght = 16: unknown key; did you mean sampling.height?"),
        ("height = 16", "", ":7: sampling.height: required, and missing: expected integer > 0 (Pixels)"),
        ("global_steps = 2", 'global_steps = "2"', ':25: training.global_steps = "2": expected integer >= 1'),
        ("global_steps = 2", "global_steps = 2.0", ":25: training.global_steps = 2.0: expected integer >= 1"),
        ("global_steps = 2", "global_steps = 0", ":25: training.global_steps = 0: expected integer >= 1"),
        (
            "global_steps = 2",
            "global_steps = 2\nlearning_rate = inf",
            ":26: training.learning_rate = inf: expected a finite number > 0",
        ),
        (
            "samples_per_prompt = 4",
            "samples_per_prompt = 1",
            ":22: data.samples_per_prompt = 1: expected integer >= 2, <= 10000 (K: samples a group; a group of one",
        ),
        ('name = "tiny"', 'name = "tiny"\nlearning_rate = 1.0', "did you mean training.learning_rate?"),
        (
            'name = "tiny"',
            'name = "no spaces"',
            ':1: name = "no spaces": expected a string of the right form (Letters, digits',
        ),
        (
            'path = "model"',
            'path = "model"\ndtype = "bfloat61"',
            ':6: model.dtype = "bfloat61": expected one of float32, bfloat16, float16, float64',
        ),
        ('path = "model"', 'path = "model"\ndtype = "bfloat61"', "did you mean bfloat16?"),
        ('family = "flux"', 'family = "fluks"', ":4: model.family: unknown model family 'fluks'; did you mean flux?"),
        ('"jpeg_compressibility"', '"jpeg_compresibility"', "did you mean jpeg_compressibility?"),
        ('name = "flow_grpo"', 'name = "flow-grpo"', "did you mean flow_grpo?"),
        (
            "window_size = 3",
            "window_sise = 3",
            ":16: algorithm.options.window_sise = 3: unknown key; did you mean algorithm.options.window_size?",
        ),
        ("window_size = 3", 'window_size = "3"', ':16: algorithm.options.window_size = "3": expected integer'),
        ("window_range = [0, 3]", "window_range = [0, 9]", ":17: algorithm.options.window_range = [0, 9]: window"),
        (
            "window_range = [0, 3]",
            "window_range = [5, 8]",
            ":17: algorithm.options.window_range = [5, 8]: window [5, 8) holds the last timestep",
        ),
        (
            "num_timesteps = 8",
            'num_timesteps = 8\nsigma_schedule = "linaer"',
            ":11: sampling.sigma_schedule: unknown schedule 'linaer'",
        ),
        ("num_timesteps = 8", 'num_timesteps = 8\nsigma_schedule = "dance:-1"', "such as dance:3.0"),
        (
            "global_steps = 2",
            "global_steps = 2\nupdates_per_rollout = 3",
            ":26: training.updates_per_rollout: must divide the 2 micro-batches of a rollout",
        ),
        ("prompts_per_rollout = 2", "prompts_per_rollout = 4", "the prompts file has only 3"),
        ("[[rewards]]", "[[rewards]]\nweight = 0.0", "every weight is 0"),
        (
            "[[rewards]]",
            '[[rewards]]\nname = "jpeg_compressibility"\n[[rewards]]',
            ":30: rewards[1].name: listed twice",
        ),
        ("[[rewards]]", '[schedule]\nstrategy = "allways"\n[[rewards]]', "did you mean always?"),
        ("[[rewards]]", '[schedule]\nstrategy = "static:x"\n[[rewards]]', ":28: schedule.strategy"),
        ("[[rewards]]", '[schedule]\ngenerators = [""]\n[[rewards]]', ':28: schedule.generators[0] = ""'),
        (
            '"jpeg_compressibility"\n',
            '"jpeg_compressibility"\noptions = { quality = 3 }\n',
            "rewards[0].options.quality",
        ),
        (
            "global_steps = 2",
            "global_steps = 2\nbetas = [0.9, 1.0]",
            ":26: training.betas[1] = 1.0: expected list of 2",
        ),
        (
            "global_steps = 2",
            "global_steps = 2\nranks = 4\nreplicas = 3",
            ":27: training.replicas: must divide training.ranks = 4: 1, 2, 4",
        ),
        (
            "global_steps = 2",
            'global_steps = 2\nranks = 2\noptimizer = "adafactor"',
            ":27: training.optimizer: adafactor needs whole weights on every rank",
        ),
        (
            "global_steps = 2",
            'global_steps = 2\ntimestep_width = "atuo"',
            ':26: training.timestep_width = "atuo": expected integer >= 0 or auto',
        ),
        (
            "global_steps = 2",
            'global_steps = 2\ntimestep_width = "auto"\ndeterministic = true',
            ":26: training.timestep_width: auto is measured, which training.deterministic = true has no room for",
        ),
        ('path = "model"', 'path = ""', ':5: model.path = "": expected a string that is not empty ('),
        (
            "window_size = 3",
            "window_size = 3\nadv_clip_max = inf",
            ":17: algorithm.options.adv_clip_max = inf: expected a finite number",
        ),
        ('path = "model"', 'path = "model"\noptions = { when = 1979-05-27 }', "model.options.when = 1979-05-27"),
        ('path = "model"', 'path = "mo\\u0000del"', 'model.path = "mo\\u0000del": has a NUL character'),
        (
            "global_steps = 2",
            "global_steps = 9223372036854775808",
            "9223372036854775808: expected an integer of 64 bits",
        ),
    ],
)
def test_one_mistake(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = write_job(tmp_path, changed(old, new))
    message = message_of(path)
    assert expected in message
    assert message.startswith(f"{path}:") or "every weight" in message


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        (b"", "no prompts: expected one a line"),
        (b"# only a comment\n\n   \n", "no prompts: expected one a line"),
        (b"a red circle\na \xff ring\n", "not UTF-8: byte 0xff at offset 15"),
    ],
)
def test_bad_prompts_files(tmp_path: Path, prompts: bytes, expected: str) -> None:
    message = message_of(write_job(tmp_path, prompts=prompts))
    assert "job.toml:20: data.prompts: " in message
    assert f"{tmp_path / 'prompts.txt'}: {expected}" in message


def test_a_missing_prompts_file(tmp_path: Path) -> None:
    path = write_job(tmp_path, changed("prompts.txt", "promts.txt"))
    assert f"{tmp_path / 'promts.txt'}: no such file" in message_of(path)


def test_all_mistakes_are_reported_together_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = (
        changed("height = 16", "hieght = 16")
        .replace("global_steps = 2", 'global_steps = "2"')
        .replace('family = "flux"', 'family = "fluks"')
        .replace("prompts.txt", "nowhere.txt")
    )
    lines = message_of(write_job(tmp_path, text)).splitlines()
    keys = [line.split(": ")[1].split(" ")[0] for line in lines]
    assert keys == ["model.family", "sampling.height", "sampling.hieght", "data.prompts", "training.global_steps"]


def test_overrides_obey_the_same_rules_and_are_named(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    assert load_job(path, ["training.global_steps=7"]).training.global_steps == 7
    message = message_of(path, "training.global_steps=many")
    assert message.startswith('--set: training.global_steps = "many": expected integer >= 1')


def test_a_reward_in_a_file_is_left_to_the_node(tmp_path: Path) -> None:
    path = write_job(tmp_path, changed('"jpeg_compressibility"', '"mine.py:score"'))
    assert read_job(path).config.rewards[0].name == "mine.py:score"


def test_the_driver_refuses_what_the_client_would(tmp_path: Path) -> None:
    config = load_job(write_job(tmp_path))
    with pytest.raises(ConfigError, match=r"data\.prompts_per_rollout: .* has only 1"):
        validate_job(config, [PromptRow("a red circle")])
    algorithm = config.algorithm.model_copy(update={"options": {"window_size": 9}})
    with pytest.raises(ConfigError, match=r"^algorithm\.options\.window_size = 9: "):
        validate_job(config.model_copy(update={"algorithm": algorithm}), [PromptRow("a"), PromptRow("b")])


def test_what_keys_of_a_plug_in_must_agree_on_names_its_table(tmp_path: Path) -> None:
    options = "{path='judge', pattern='score'}"
    with pytest.raises(ConfigError) as raised:
        read_job(write_job(tmp_path), [f"rewards=[{{name='local_judge', options={options}}}]"])
    (problem,) = raised.value.problems
    assert problem.key == "rewards[0].options"
    assert str(problem).endswith("rewards[0].options: pattern 'score' has no group for the number")
