"""Help and completion, and what digenctl imports for them."""

import subprocess
import sys

import pytest

from clients.main import VERBS
from digend import __version__
from tests.clients.conftest import ROOT, Digenctl
from tests.clients.fake_driver import FakeDriver

CONFIG = ("config show", "config check", "config schema", "config example")
HEAVY = ("torch", "diffusers", "transformers")
UNUSED = ("numpy", "PIL", "jinja2", "rich", "structlog", "asyncio", "tensorboard", "prometheus_client", "sqlite3")


@pytest.mark.parametrize("verb", [*VERBS, "show job", "show node", *CONFIG])
def test_help_has_an_example(digenctl: Digenctl, verb: str) -> None:
    result = digenctl(*verb.split(), "--help")
    assert result.returncode == 0
    assert f"digenctl {verb}" in result.stdout.split("Examples:")[1]


def test_help_lists_all_verbs_and_exit_codes(digenctl: Digenctl) -> None:
    result = digenctl("--help")
    assert result.returncode == 0
    for verb in VERBS:
        assert f"  {verb} " in result.stdout
    assert "69 driver unreachable" in result.stdout


@pytest.mark.parametrize("verb", ["statsu", "submitt"])
def test_a_mistyped_verb(digenctl: Digenctl, verb: str) -> None:
    result = digenctl(verb)
    assert result.returncode == 2
    assert "did you mean" in result.stderr


def test_version_is_an_option_too(digenctl: Digenctl) -> None:
    assert digenctl("--version").stdout == f"digenctl {__version__}\n"


def test_no_verb_is_a_usage_error(digenctl: Digenctl) -> None:
    assert digenctl().returncode == 2


@pytest.mark.parametrize(
    ("shell", "expected"), [("bash", "complete -o"), ("zsh", "#compdef digenctl"), ("fish", "complete --no-files")]
)
def test_completion(digenctl: Digenctl, shell: str, expected: str) -> None:
    result = digenctl("completion", shell)
    assert result.returncode == 0
    assert expected in result.stdout
    assert digenctl("completion", "tcsh").returncode == 2


def test_the_shell_is_offered_verbs(digenctl: Digenctl) -> None:
    result = digenctl(_DIGENCTL_COMPLETE="bash_complete", COMP_WORDS="digenctl stat", COMP_CWORD="1")
    assert result.stdout.strip() == "plain,status"


def imported_by(*args: str) -> set[str]:
    """The modules that digenctl has imported when it ends."""
    code = (
        "import sys\nfrom clients.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    print('modules', *sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return set(result.stdout.splitlines()[-1].split()[1:])


def test_help_imports_next_to_nothing() -> None:
    modules = imported_by("--help")
    assert "click" in modules
    assert not modules & {*HEAVY, *UNUSED, "pydantic", "zmq", "msgpack", "tomllib", "digend.wire"}


def test_status_imports_no_model_of_a_job(driver: FakeDriver) -> None:
    modules = imported_by("status", "--address", driver.address)
    assert "zmq" in modules
    assert not modules & {*HEAVY, *UNUSED, "digend.config.job", "digend.plugins", "digend.telemetry.timeline"}
    assert not [name for name in modules if name.startswith(("broker", "daemons"))]


def test_status_makes_only_the_classes_that_it_needs(driver: FakeDriver) -> None:
    """Those that workers are told, and pydantic, would double what it takes."""
    modules = imported_by("status", "--address", driver.address)
    assert {"digend.wire.requests", "digend.wire.replies"} <= modules
    assert not modules & {f"digend.wire.{name}" for name in ("workers", "pages", "records", "tasks", "pulls", "verbs")}
    assert not modules & {"pydantic", "importlib.metadata"}


@pytest.mark.parametrize("verb", ["jobs", "nodes", "queue"])
def test_tables_in_a_pipe_need_no_rich(driver: FakeDriver, verb: str) -> None:
    assert not imported_by(verb, "--address", driver.address) & {*HEAVY, *UNUSED}
