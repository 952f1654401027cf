"""Writes what is made of the models: docs/job-file.md, docs/node-file.md, configs/digend.toml and configs/schema.
`python -m digend.config.docs [FOLDER]`, where the folder is the root of a checkout.

A program that nothing imports but its test, which is why it may reach up to the plug-ins. Invariant: the pages hold
every key of the models, and nothing about a key that its model does not say.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from digend import plugins
from digend.config.example import commented_defaults
from digend.config.job import JobConfig
from digend.config.keys import Key, keys_of
from digend.config.node import NodeConfig
from digend.config.schema import MODELS, schema_text

GENERATED = "<!-- Made by `python -m digend.config.docs` from the models; change those, not this page. -->"

JOB_INTRO = """# The job file

What `digenctl submit` takes: one TOML file that says what is trained, on what, and how. `configs/jobs/` has examples.

- A key that is not listed here is an error, and the message names the nearest that is. Types are exact: `"22"` is no
  integer. All mistakes of a file are reported together, each with its line; what several keys must agree on is looked
  at once each is right by itself. `digenctl submit JOB.toml --check` looks without submitting.
- Paths are relative to the job file, `~` is your home. The prompts are sent to the driver at submit. The model folder
  is not: each worker reads it, so it must be at the same path on every box.
- `digenctl submit JOB.toml --set training.learning_rate=1e-4 --set 'rewards[0].weight=2'` changes keys without
  touching the file; the changed file is what the run folder keeps as `job.toml`.
- Options of a family, an algorithm or a reward belong to that plug-in (below). A plug-in of another package is checked
  the same way, by its own model.

What several keys must agree on:

- `data.prompts_per_rollout` distinct prompts make a rollout, so the prompts file has as many at least.
- `training.updates_per_rollout` divides the number of micro-batches of a rollout,
  `data.prompts_per_rollout / schedule.micro_batch_groups`, rounded up.
- An SDE window lies within the timesteps. The last timestep of `flow_sde` cannot be trained: its
  transition density is extremely sharp.
- `schedule.generators = []` is the colocated mode: the trainer does everything and nothing is published.

What `training.deterministic = true` costs: the order of accumulation, the composition of forward batches and the
split of fragments are fixed, so work is not spread by measured speed, and a fast worker waits for a slow one. It holds
within one kind of hardware and one build of torch; elsewhere the same seed gives a valid run, not the same one.

A prompts file is UTF-8 text with one prompt a line; lines are stripped, and blank lines and lines that begin with `#`
are skipped. Where its name ends in `.jsonl`, `.csv` or `.parquet` (`pip install 'digend[data]'`) it is a table with a
column `prompt`; every other column reaches the reward as `metadata`, as strings. A prompt is known by its place in the
file: two equal lines are two prompts.
"""

NODE_INTRO = """# The node file, and digend.toml

What runs on one box, where the driver is, and how digenctl shows things. The same keys are read from one node file,
by `digend up NODE.toml`, or from the layers of a box. `configs/nodes/` has examples of node files;
`configs/digend.toml` has every setting with its default.

## Layers

Weakest first; each is laid over those before it:

| | layer | |
|---|---|---|
| 1 | defaults | the tables below; on a box that has one of the next two, the box's places (below) |
| 2 | `/etc/digend/digend.toml` | the box |
| 3 | `/etc/digend/conf.d/*.toml` | pieces of it, by name; names that begin with a dot are left out |
| 4 | `~/.config/digend/digend.toml` | you (`$XDG_CONFIG_HOME/digend/digend.toml`). Units do not read it |
| 5 | a driver in this folder | digenctl only: the address of `.digend/driver.sock`, where it is there |
| 6 | `DIGEND_*` variables | `DIGEND_LOG_LEVEL=debug`, `DIGEND_TIMING__LOST_S=20`: a dot is written `__` |
| 7 | flags | `--set timing.lost_s=20`, and those of digenctl such as `--address` |

- A node file (`digend up NODE.toml`, `--node`, `DIGEND_NODE`) takes the place of 2 to 5. Variables and flags still lie
  over it.
- Tables are merged key by key. Anything else, a list too, is replaced as a whole. No layer can take a table away, so
  put `[trainer]` where it can be left out; `generator.slots = 0` switches generators off.
- Relative paths are taken from the file that says them, those of variables and flags from the working folder.
- The value of a variable is TOML; what is not TOML is a string. A `DIGEND_*` variable that is no setting is warned
  about, with the nearest name, and otherwise ignored. `DIGEND_ETC` names another folder than `/etc/digend`.
- The box's places are those that systemd makes for the units: `address = "ipc:///run/digend/driver.sock"`,
  `state = "/var/lib/digend"`, `runs = "/var/lib/digend/runs"`.

```sh
digenctl config show --origin          # every value, and the file and line (or variable, or flag) that says it
digenctl config show timing            # one table, or one key
digenctl config check                  # all mistakes of all layers; exit code 78
digenctl config check node.toml job.toml
digenctl config show --system          # as units read it
digenctl config example                # configs/digend.toml
```

Editors with TOML support (taplo: Even Better TOML, Helix, Neovim) complete and check keys by a JSON schema. Make one
by `digenctl config schema node > node.json` (or `job`; `configs/schema/` has both) and name it in the first line of
your file: `#:schema ./node.json`.

## Rules

- A role runs here if its table is there: `[driver]`, `[generator]`, `[trainer]`, `[reward]`; an empty table takes the
  defaults. The recorder has no keys, so it is switched on by `recorder = true`. A cluster has one driver
  and one recorder; each job that runs has a trainer of its own, or several (`training.ranks`).
- That of an `ipc://` address is a path too. A socket's path has at most 107 bytes.
- Addresses are `ipc://`, on this machine (127.0.0.1), or, with `[keys]`, anywhere: then all TCP is encrypted, and only
  listed keys get in ([Two boxes](operate.md#two-boxes)). A host name is looked up as IPv4; an IPv6 address is written
  in brackets.
- `timing.heartbeat_s` < `timing.torpid_s` < `timing.lost_s`. A process that loads a large model may be silent for
  seconds.
"""


def job_page() -> str:
    """docs/job-file.md."""
    parts = [JOB_INTRO, "## Keys\n", *_tables(JobConfig), "## Options of plug-ins\n"]
    parts += ["What comes with digend; `options` of the table that names it.\n"]
    for title, group, spec_of in (
        ("Model family", plugins.MODELS, plugins.model_spec),
        ("Algorithm", plugins.ALGORITHMS, plugins.algorithm_spec),
        ("Reward", plugins.REWARDS, plugins.reward_spec),
    ):
        for name in plugins.OWN[group]:
            parts += _plugin(f"{title} `{name}`", spec_of(name).options)
    return _page(parts)


def node_page() -> str:
    """docs/node-file.md."""
    return _page([NODE_INTRO, "## Keys\n", *_tables(NodeConfig)])


def _page(parts: Sequence[str]) -> str:
    heading, _, rest = "\n".join(parts).partition("\n")
    return f"{heading}\n\n{GENERATED}\n{rest}".rstrip("\n") + "\n"


def _tables(model: type[BaseModel]) -> Iterator[str]:
    """One section a TOML table, that of the file itself first."""
    keys = keys_of(model)
    yield "### At the top\n"
    yield from _rows(_inside(keys, ""))
    for key in keys.values():
        if key.table:
            yield f"### {_heading(key)}\n"
            yield from _note(key)
            yield from _rows(_inside(keys, f"{key.path}[]." if _repeated(key) else f"{key.path}."))


def _heading(key: Key) -> str:
    path = key.path.replace("[]", "")
    return f"`[[{path}]]`" if _repeated(key) else f"`[{path}]`"


def _repeated(key: Key) -> bool:
    return key.type == "array of tables"


def _note(key: Key) -> Iterator[str]:
    needed = " Required, one at least." if _repeated(key) and key.required else " Required." if key.required else ""
    yield f"{key.meaning}{needed}\n"


def _inside(keys: Mapping[str, Key], prefix: str) -> list[Key]:
    """The plain keys of one table."""
    return [
        key
        for path, key in keys.items()
        if path.startswith(prefix) and "." not in path[len(prefix) :] and not key.table
    ]


def _plugin(title: str, options: type[BaseModel]) -> Iterator[str]:
    keys = list(keys_of(options).values())
    yield f"### {title}\n"
    yield from _rows(keys) if keys else ["No options.\n"]


def _rows(keys: Sequence[Key]) -> Iterator[str]:
    if not keys:
        yield "No keys.\n"
        return
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    for key in keys:
        default = "required" if key.required else f"`{key.default}`" if key.default is not None else "none"
        yield f"| `{key.path.rpartition('.')[2]}` | {key.type} | {default} | {_cell(key.meaning)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def made_files() -> dict[str, str]:
    """All of them by path."""
    return {
        "docs/job-file.md": job_page(),
        "docs/node-file.md": node_page(),
        "configs/digend.toml": commented_defaults(),
        **{f"configs/schema/{kind}.json": schema_text(kind) for kind in MODELS},
    }


def main(folder: str) -> None:
    """Writes them; ends with a message where `folder` is not the root of a checkout, so that no second copy appears."""
    if not Path(folder, "pyproject.toml").is_file():
        sys.exit(f"{folder}: not the root of a checkout, there is no pyproject.toml; nothing was written")
    for name, text in made_files().items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
