"""Run a notebook from top to bottom in this process, and keep what its cells print and draw.

Its cells run as Python does, with all your rights: so only for the notebooks beside this file, which are committed here
and reviewed like any module. No command of the packages calls it, and none runs a notebook of a user.

python benchmarks/notebooks/execute.py benchmarks/notebooks/look_at_the_data.ipynb
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any


def outputs(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell's code; return its output as a notebook keeps it, figures as PNG."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(source, "<cell>", "exec"), names)  # this repository's own code
    lines = said.getvalue().splitlines(keepends=True)
    found: list[dict[str, Any]] = (
        [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    )
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        for number in pyplot.get_fignums():
            image = io.BytesIO()
            pyplot.figure(number).savefig(image, format="png", dpi=72, metadata={"Software": None})
            data = {"image/png": base64.b64encode(image.getvalue()).decode(), "text/plain": ["<Figure>"]}
            found.append({"data": data, "metadata": {}, "output_type": "display_data"})
        pyplot.close("all")
    return found


def main() -> None:
    """Execute the notebook that the command line names, in place or into another file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, help="default: the notebook itself")
    arguments = parser.parse_args()
    os.environ["MPLBACKEND"] = "Agg"
    book = json.loads(arguments.notebook.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        cell["outputs"] = outputs("".join(cell["source"]), names)
        cell["execution_count"] = number
    text = json.dumps(book, indent=1, ensure_ascii=False) + "\n"
    (arguments.out or arguments.notebook).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
