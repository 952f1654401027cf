"""The package is named by torch-free code, so importing it must not import torch."""

import subprocess
import sys

import pytest

import digend.diffusion


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, digend.diffusion, digend.diffusion.coefficients; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", digend.diffusion.__all__)
def test_every_exported_name_loads(name: str) -> None:
    assert callable(getattr(digend.diffusion, name))
    assert name in dir(digend.diffusion)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'transitions'"):
        _ = digend.diffusion.transitions
