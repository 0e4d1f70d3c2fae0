"""What a base must be able to do before anything is trained for it.

    python benchmarks/lab/gates.py models/mine/base --text some-english.txt

Rules recited out of lists (goal 0.95), questions with only the rules that they need (0.98), the same with others beside
them, and both in plain English of domains that nothing is trained on. An answer counts if every token of it is the most
likely one, which is what greedy decoding would write. The perplexity of a text tells what was forgotten.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from documents import Mixture, Writer, batches, draw_block
from ruleworld_data.io import write_whole
from rwbench.models import GATES_FILE, base_folder, step_mark
from transformers import AutoModelForCausalLM, AutoTokenizer

SEED = 2**31 - 1  # names the worlds of the gates; no training may use it
WINDOW = 4096
GATES = {"lookup": {"recital": 1.0, "same_type": 1.0, "recited": 32}}
GATES |= {f"questions, {n} beside": {"questions": 1.0, "asked": 1, "beside": n} for n in (0, 8, 32)}
GATES |= {f"plain, {n} beside": {"plain": 1.0, "plain_beside": n, "held_out": True} for n in (0, 8, 32)}


@torch.no_grad()
def success(model: Any, writer: Writer, mixture: Mixture, tokens: int) -> dict[str, list[bool]]:
    """Return by kind which answers in fresh documents of a mixture come out right."""
    right = defaultdict(list)
    for batch in batches(draw_block(writer, SEED, 0, mixture, tokens), WINDOW, WINDOW, "gates"):
        written_BT = model(batch.ids_BT.to(model.device)).logits.argmax(-1).cpu()
        for row, start, stop, kind in batch.spans:
            right[kind].append(
                bool((written_BT[row, start - 1 : stop - 1] == batch.ids_BT[row, start:stop]).all())
            )
    return dict(sorted(right.items()))


@torch.no_grad()
def perplexity(model: Any, tokenizer: Any, text: str) -> float:
    """Return the perplexity of a text's first tokens."""
    ids_1T = torch.tensor(
        [tokenizer(text, add_special_tokens=False)["input_ids"][:WINDOW]], device=model.device
    )
    return float(model(ids_1T, labels=ids_1T).loss.exp())


def main(
    model: Annotated[str, typer.Argument(help="A model's name, or its folder.")],
    tokens: Annotated[int, typer.Option(help="Tokens of documents for each gate.")] = 100_000,
    text: Annotated[Path | None, typer.Option(help="A file of ordinary English.")] = None,
) -> None:
    """Measure, print, and write gates.json into the base's folder."""
    folder = base_folder(model)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    base: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=False
    ).eval()
    base.to("cuda" if torch.cuda.is_available() else "cpu")
    writer, rows = Writer(tokenizer, step_mark(model, tokenizer), 0.0), []
    for gate, settings in GATES.items():
        for form, share in (("fol", 1.0), ("nl", 0.0)) if "plain" not in settings else [("nl", 0.0)]:
            for kind, right in success(base, writer, Mixture(**settings, fol=share), tokens).items():
                row = {
                    "gate": gate,
                    "kind": kind,
                    "form": form,
                    "n": len(right),
                    "success": sum(right) / len(right),
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
    if text:
        rows.append(
            {"gate": "perplexity", "success": perplexity(base, tokenizer, text.read_text(encoding="utf-8"))}
        )
        print(json.dumps(rows[-1]))
    write_whole(folder / GATES_FILE, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
