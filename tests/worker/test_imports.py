"""What a worker process imports before its engine does."""

import subprocess
import sys

PROGRAM = """
import sys
import daemons.main, daemons.worker.main, daemons.up
print([name for name in ("torch", "diffusers", "transformers", "sqlite3", "broker.core") if name in sys.modules])
"""


def test_shells_are_torch_free() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, daemons.main\nprint([n for n in ('zmq', 'pydantic', 'torch', 'structlog') if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
