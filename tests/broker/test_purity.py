"""The core is pure: no clock, no socket, no chance, no torch; asked of a fresh interpreter and of its own imports."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

BROKER = Path(__file__).parents[2] / "broker"
MODULES = sorted(BROKER.rglob("*.py"))

FORBIDDEN = {
    "torch",
    "diffusers",
    "transformers",
    "zmq",
    "sqlite3",
    "time",
    "datetime",
    "asyncio",
    "socket",
    "random",
    "secrets",
    "uuid",
    "threading",
    "multiprocessing",
    "subprocess",
    "os",
    "pathlib",
    "numpy",
    "daemons",
    "clients",
}


def test_importing_the_core_loads_neither_torch_nor_sockets() -> None:
    code = "import sys, json, broker.core, broker.views, broker.harness; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=BROKER.parent)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"torch", "diffusers", "transformers", "zmq", "sqlite3", "numpy", "daemons", "clients"}
    assert not {name for name in json.loads(done.stdout) if name.startswith(("digend.net", "digend.config"))}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(BROKER)))
def test_no_module_of_the_core_imports_what_could_make_it_answer_otherwise(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            named.add((node.module or "").split(".")[0])
    assert not named & FORBIDDEN


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(BROKER)))
def test_nothing_iterates_over_a_set_or_depends_on_hash_or_identity_order(path: Path) -> None:
    """Sets have no order that replay could repeat: they may be asked and compared, not walked."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            walked = node.iter
            assert not isinstance(walked, ast.Set | ast.SetComp), f"line {walked.lineno}"
            if isinstance(walked, ast.Call) and isinstance(walked.func, ast.Name):
                assert walked.func.id not in ("set", "frozenset"), f"line {walked.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("hash", "input", "open", "print"), f"line {node.lineno}"


def test_answers_do_not_depend_on_the_hash_seed() -> None:
    """The same run in two interpreters whose strings hash differently: the same commands."""
    code = (
        "from tests.broker.support import finished, job, evaluation\n"
        "from hashlib import blake2b\n"
        "run = finished(job(strategy='always', evaluation=evaluation(2, every=1)), 3)\n"
        "print(blake2b(repr(run.batches).encode()).hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=BROKER.parent,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1
