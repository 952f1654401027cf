"""The commented defaults: a file with every setting, none of them switched on. `digenctl config example`.

From the model. Invariant: with each `#` that has no space behind it taken away, the file loads, and every key but the
tables of roles has its default (a table with a required key has to be filled in first).
"""

from collections.abc import Iterator
from textwrap import wrap

from digend.config.keys import Key, keys_of
from digend.config.node import NodeConfig

HEAD = """\
#:schema ./schema/node.json
# Settings of digend, with their defaults. A line that begins with `#` and no space is a setting: take the `#` away to
# change it. A role runs on this box if its table ([driver], [generator], [trainer], [reward]) is there.
#
# Read in this order, each over those before it: /etc/digend/digend.toml, /etc/digend/conf.d/*.toml by name,
# ~/.config/digend/digend.toml (not by units), variables such as DIGEND_TIMING__LOST_S=20, and flags. Where each
# value comes from: digenctl config show --origin. Every key: docs/node-file.md.
"""


def commented_defaults() -> str:
    """The file as text."""
    keys = keys_of(NodeConfig)
    top = [key for path, key in keys.items() if "." not in path and not key.table]
    lines = [HEAD, *_entries(top)]
    for path, key in keys.items():
        if key.table:
            inside = [each for name, each in keys.items() if name.rpartition(".")[0] == path and not each.table]
            header = f"[[{path}]]" if key.type == "array of tables" else f"[{path}]"
            lines += [*_prose(key.meaning), f"#{header}", "", *_entries(inside)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _entries(keys: list[Key]) -> Iterator[str]:
    for key in keys:
        name = key.path.rpartition(".")[2]
        kind = f"{key.type}, required" if key.required else key.type
        yield from _prose(f"{key.meaning} ({kind})" if key.default is not None else f"{name}: {key.meaning} ({kind})")
        if key.default is not None:
            yield f"#{name} = {key.default}"
        yield ""


def _prose(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(text, 116)]
