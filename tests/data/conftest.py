"""A tiny build, made once; and a fresh interpreter, as a user would start it: empty directory, no network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ruleworld_data.io import build, export

SOURCE = Path(__file__).parents[2] / "ruleworld-data" / "src"

# The .pth file is read from the source tree: the tests do not depend on how the package is installed.
PRELUDE = f"""
import site, socket, sys
site.addsitedir({str(SOURCE)!r})
asked = []
connect = socket.socket.connect
def refuse(*address, **kwargs):
    asked.append(address)
    raise OSError("no network in this test")
def connect_locally(self, address):
    return connect(self, address) if self.family == socket.AF_UNIX else refuse(address)
socket.getaddrinfo, socket.socket.connect = refuse, connect_locally
"""
EPILOGUE = "\nassert not asked, f'the network was asked: {asked}'\n"


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A finished tiny build, which no test may write to."""
    folder = tmp_path_factory.mktemp("built") / "new" / "folder"
    build(folder, "tiny")
    return folder


@pytest.fixture(scope="session")
def exported(built, tmp_path_factory):
    """Its export."""
    folder = tmp_path_factory.mktemp("exported") / "hub"
    export(built, folder)
    return folder


@pytest.fixture
def run_python(tmp_path):
    """Run code in an empty directory with empty caches and without network; return what it printed."""

    def run(code, *, directory=None, python=sys.executable, **variables):
        empty = tmp_path / "empty"
        empty.mkdir(exist_ok=True)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HF_", "RULEWORLD_"))
        }
        environment |= {"HF_HOME": str(tmp_path / "hf"), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"} | variables
        result = subprocess.run(
            [python, "-c", PRELUDE + code + EPILOGUE],
            cwd=directory or empty,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout + result.stderr

    return run
