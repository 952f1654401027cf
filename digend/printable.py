"""Text of others, made fit for a terminal and a line of a log: what a reward raised, a prompt, a file's name.

Invariant: what comes out has no control character but those that were asked for, so that nothing moves the cursor,
changes colours or ends a line early.
"""

MAX_CHARS = 1000
"""Of a text that a person gives beside a request: a reason, a name. It is journalled, and shown in tables."""


def printable(text: str, keep: str = "") -> str:
    """Control characters (C0, DEL, C1) as `\\xNN`, those in `keep` as they are."""
    if text.isprintable():
        return text
    return "".join(f"\\x{ord(char):02x}" if is_control(char) and char not in keep else char for char in text)


def is_control(char: str) -> bool:
    """Whether a terminal may take it for a command."""
    return char < " " or "\x7f" <= char < "\xa0"
