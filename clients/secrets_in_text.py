"""Values that a dump must not have: of keys and variables whose names say that they are secret. Pure."""

import re
from collections.abc import Mapping

MASK = "(masked)"
_SECRET = r"secret|token|passw|api_?key|access_?key|private_?key|credential"
_NAME = re.compile(_SECRET, re.IGNORECASE)
_TOML_LINE = re.compile(
    rf"^(?P<head>\s*(?P<key>[\w.\"'-]*(?:{_SECRET})[\w.\"'-]*)\s*=\s*)(?P<value>\S.*)$", re.IGNORECASE | re.MULTILINE
)
_INLINE = re.compile(rf"(?P<head>[\w-]*(?:{_SECRET})[\w-]*\s*=\s*)(?P<value>\"[^\"]*\"|'[^']*')", re.IGNORECASE)

SHOWN = ("DIGEND_", "CUDA_", "HF_", "OMP_", "NCCL_", "TORCH_", "TOKENIZERS_", "PYTORCH_")
"""Variables that change what daemons do; no others are looked at."""


def is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret."""
    return _NAME.search(name) is not None


def masked_toml(text: str) -> str:
    """TOML with the values of such keys replaced, in inline tables too."""
    inline = _INLINE.sub(lambda found: f'{found["head"]}"{MASK}"', text)
    return _TOML_LINE.sub(lambda found: f'{found["head"]}"{MASK}"', inline)


def masked_environment(environ: Mapping[str, str]) -> str:
    """NAME=value lines of the variables that matter."""
    names = sorted(name for name in environ if name.startswith(SHOWN))
    return "".join(f"{name}={MASK if is_secret(name) else environ[name]}\n" for name in names)
