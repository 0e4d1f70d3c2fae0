"""Something to try the commands on: 36 rules of a depot, questions on them, and a small random model.

The model has never read a text, so its answers are noise; what its adapter learns is which rules a question and each
of its steps need, and a trace shows that. Its tokenizer knows the words of the example.

Beside it, a rule book of the real world to ask a language model: the lending rules of a town library. They and their
questions were written before any training on plain English, and nothing is trained on them.
"""

import re
import shutil
from pathlib import Path

from .._files import part_of

DATA = Path(__file__).parent
FILES = ("rules.txt", "train.jsonl", "held_out.jsonl")
BOOKS = {"library": ("rules.txt", "questions.jsonl")}


def write_example(folder: str | Path, book: str | None = None) -> Path:
    """Write ``rules.txt``, ``train.jsonl``, ``held_out.jsonl`` and ``model`` into a new folder, and return it.

    With a name of `BOOKS`, that book's ``rules.txt`` and ``questions.jsonl`` instead, and no model.
    """
    if book is not None and book not in BOOKS:
        raise ValueError(f"there is no book {book!r}; type one of {sorted(BOOKS)}, or leave it out")
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        raise FileExistsError(f"{folder} exists already; choose a new folder")
    with part_of(folder, folder=True) as work:
        for name in FILES if book is None else BOOKS[book]:
            text = (DATA / (book or "") / name).read_text(encoding="utf-8")
            if book is not None:  # there rules count from 0, in a file of a user from 1: its lines
                text = re.sub(r'"rule_ids": \["(\d+)"\]', lambda m: f'"rule_ids": ["{int(m[1]) + 1}"]', text)
            (work / name).write_text(text, encoding="utf-8", newline="")
        if book is None:
            _write_model(work / "model")
        work.replace(folder)
    return folder


def _write_model(folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shutil.copytree(DATA / "model", folder)
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
