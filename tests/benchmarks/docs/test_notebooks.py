"""The notebook is kept with its outputs, which are what a fresh interpreter prints now."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from ruleworld_data.generate import question_table

NOTEBOOK = Path(__file__).parents[3] / "benchmarks/notebooks/look_at_the_data.ipynb"
RUN = """
import contextlib, io, json, sys
names, said = {"__name__": "__main__"}, []
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec("".join(cell["source"]), names)
        said.append(out.getvalue())
print(json.dumps(said))
"""


def test_it_prints_what_it_is_kept_with_and_names_no_path_of_a_machine(tmp_path):
    text = NOTEBOOK.read_text(encoding="utf-8")
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert len(text) < 60_000 and not re.search(r"/(home|root|tmp|Users|var)/", text)
    streams = [[out for out in cell["outputs"] if out["output_type"] == "stream"] for cell in code]
    printed = ["".join(line for out in cell for line in out["text"]) for cell in streams]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TMPDIR": str(tmp_path), "MPLBACKEND": "Agg"}
    words = [sys.executable, "-c", RUN, NOTEBOOK]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == printed
    row = question_table("multi_hop_3", "test", "tiny").slice(0, 1).to_pylist()[0]
    whole = "\n".join(said)
    assert row["question"] in whole
    assert len(re.findall(rf"rules: {re.escape(str(row['answers']))}\n", whole)) == 4
    assert f"gold answer: {row['answers']}" in whole and "exact_match=1.0" in whole
