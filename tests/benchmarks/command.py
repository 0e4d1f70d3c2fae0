"""Commands, run in this process."""

from functools import partial
from importlib import import_module

from typer.testing import CliRunner


def run(name, *words, code=None):
    """Run a command, which must end in this exit code if one is given, and never in a traceback."""
    app = import_module(f"{name}.cli.app").app
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert code in (None, done.exit_code) and "Traceback" not in done.output, (words, done.output)
    return done


rwbench, dynarule = (partial(run, name) for name in ("rwbench", "dynarule"))
