"""A request that is not granted: raised wherever that is found out, told to the client by the desk."""

from digend.exitcodes import ExitCode


class Refusal(Exception):
    """The exit code that digenctl ends with, and why."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
