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

_FIELD = re.compile(
    rf"""(?P<head>["']?[\w.-]*(?:{_SECRET})[\w.-]*["']?\s*[=:]\s*)(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,;&}})\]]+)""",
    re.IGNORECASE,
)
"""`key=value`, `key: value` and `"key": "value"` in a line."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_BEARER = re.compile(r"\b(?P<head>(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_USER_INFO = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)
_KNOWN_FORM = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|ghp_[A-Za-z0-9]{16,}|AKIA[A-Z0-9]{12,})\b")
"""Of a token that needs no name: Hugging Face, OpenAI, GitHub, AWS."""

SHOWN = ("DIGEND_", "CUDA_", "DIFFUSERS_", "HF_", "OMP_", "NCCL_", "TORCH_", "TOKENIZERS_", "PYTORCH_")
"""Variables that change what daemons do; no others are looked at."""


SHORTEST = 8
"""Characters of a value that is looked for elsewhere: a shorter one may be part of any word."""


def is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret."""
    return _NAME.search(name) is not None


def masked_toml(text: str) -> str:
    """TOML with the values of such keys replaced, in inline tables too."""
    inline = _INLINE.sub(lambda found: f'{found["head"]}"{MASK}"', text)
    return _TOML_LINE.sub(lambda found: f'{found["head"]}"{MASK}"', inline)


def values_in_toml(text: str) -> set[str]:
    """The values that `masked_toml` replaces, to be looked for where no name stands before them."""
    found = [each["value"].strip() for pattern in (_INLINE, _TOML_LINE) for each in pattern.finditer(text)]
    return _long({value[1:-1] for value in found if value[0] in "\"'" and value[-1] == value[0]})


def values_in_environment(environ: Mapping[str, str]) -> set[str]:
    """The values of variables whose names say that they are secret, whether daemons use them or not."""
    return _long({value for name, value in environ.items() if is_secret(name)})


def _long(values: set[str]) -> set[str]:
    """A path to a secret is none."""
    return {value for value in values if len(value) >= SHORTEST and not value.startswith("/")}


def masked_text(text: str) -> str:
    """Lines of a log, or JSON, with what looks like a secret replaced: by the name before it, or by its form."""
    text = _KNOWN_FORM.sub(MASK, text)
    text = _USER_INFO.sub(lambda found: f"{found['head']}{MASK}@", text)
    text = _BEARER.sub(lambda found: f"{found['head']}{MASK}", text)
    return _FIELD.sub(_masked_field, text)


def _masked_field(found: re.Match[str]) -> str:
    """A number or a word that stands for nothing is no secret: `tokens=512`, `"token": null`."""
    value = found["value"]
    if value.strip("\"'") in ("", "null", "None", "true", "false", MASK) or _NUMBER.fullmatch(value):
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{found['head']}{quote}{MASK}{quote}"


def masked_environment(environ: Mapping[str, str]) -> str:
    """NAME=value lines of the variables that matter."""
    names = sorted(name for name in environ if name.startswith(SHOWN))
    return "".join(f"{name}={MASK if is_secret(name) else environ[name]}\n" for name in names)
