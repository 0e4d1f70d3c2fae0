"""What a base can do before anything is trained for it: answers written out, greedily, and scored as the benchmark's.

    python benchmarks/lab/gates.py smollm2-next --before smollm2-rules --only plain

RuleWorld's kinds with only the rules that they need, plain English of domains that nothing is trained on with only
those and in lists of 40, and how much worse ordinary English is predicted than by another model. The 550 questions of
``mini`` are asked by ``rwbench run smollm2 --model NAME``, whose rows with gold rules only are the first gate.
"""

import json
import pydoc_data.topics
import random
from collections import defaultdict
from dataclasses import replace
from typing import Annotated, Any

import torch
import typer
from documents import Writer
from drills import GATE_CHAPTER, Ingredient, draw_tree
from ruleworld_data.io import write_whole
from ruleworld_data.scoring import parse_boxed, score_output
from rwbench.backends import Decoding
from rwbench.backends.local import Local
from rwbench.models import GATES_FILE, base_folder, step_mark
from transformers import AutoModelForCausalLM, AutoTokenizer

SEED = 2**31 - 1  # names the worlds of the gates; no training may use it
WINDOW, LONGEST = 2048, 400
GOLD = Ingredient(1.0, dials="", version="1.1", rules=(1, 1), asked=1)
NEW = replace(GOLD, version="1.2")
PLAIN = Ingredient(1.0, rules=(1, 1), asked=1, held_out=True)
GATES = {
    "ruleworld, logic": (replace(GOLD, fol=1.0), 0.99),
    "ruleworld, english": (GOLD, 0.99),
    "words": (replace(NEW, dials="words=1"), 0.9),
    "compare": (replace(NEW, dials="compare=true", only=("compare",)), 0.9),
    "exceptions": (replace(NEW, dials="exceptions=2", only=("exceptions",)), 0.9),
    "unknown": (replace(NEW, dials="unknown=true", only=("unknown",)), 0.9),
    "plain, gold rules only": (PLAIN, 0.95),
    "plain, lists of 40": (replace(PLAIN, rules=(40, 40), asked=4), 0.9),
}


def ask(backend: Local, writer: Writer, name: str, plan: Ingredient, count: int) -> dict[str, list[float]]:
    """Return by kind which of some fresh questions are answered right."""
    draw, asked, decode = random.Random(f"{SEED}/{name}"), [], writer.tokenizer.decode
    while len(asked) < count:
        tree = draw_tree(writer, draw, f"{SEED}/{draw.randrange(2)}", name, plan)
        rules = decode(tree.prefix).strip().split("\n")
        for branch in tree.branches:
            start = branch.wanted.index(True)
            question, proof = decode(branch.ids[:start]).strip(), decode(branch.ids[start:])
            prompt = backend.template.render("answer", "fol" if plan.fol else "nl", question, rules)
            asked.append((branch.kind, prompt, str(parse_boxed(proof))))
    told = defaultdict(list)
    for at in range(0, count, backend.batch):
        some = asked[at : min(at + backend.batch, count)]
        written = backend.generate([prompt for _, prompt, _ in some], Decoding(LONGEST))
        for (kind, _, gold), answer in zip(some, written, strict=True):
            told[kind].append(score_output(answer.text, gold).strict_match)
    return dict(sorted(told.items()))


@torch.no_grad()
def perplexity(model: str) -> float:
    """Return the perplexity of the first tokens of an English text."""
    folder = base_folder(model)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    base: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    text = pydoc_data.topics.topics[GATE_CHAPTER]
    ids_1T = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"][:WINDOW]])
    return float(base(ids_1T, labels=ids_1T).loss.exp())


def main(
    model: Annotated[str, typer.Argument(help="A model's name, or its folder.")],
    questions: Annotated[int, typer.Option(help="Of each gate.")] = 100,
    only: Annotated[str, typer.Option(help="Gates whose names begin so.")] = "",
    before: Annotated[str | None, typer.Option(help="A model whose English is compared.")] = None,
    threads: int = 1,
) -> None:
    """Measure, print, and write gates.json into the base's folder."""
    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(base_folder(model), trust_remote_code=False)
    writer, rows = Writer(tokenizer, step_mark(model, tokenizer)), []
    for name, (plan, goal) in GATES.items():
        if name.startswith(only):
            told = ask(Local.of(model), writer, name, plan, questions)
            right = [value for values in told.values() for value in values]
            kinds = {kind: f"{sum(values):.0f} of {len(values)}" for kind, values in told.items()}
            rows.append({"gate": name, "goal": goal, "right": sum(right) / len(right), "kinds": kinds})
            print(json.dumps(rows[-1]), flush=True)
    if before:
        rows.append({"gate": "english", "goal": 1.1, "ratio": perplexity(model) / perplexity(before)})
        print(json.dumps(rows[-1]))
    write_whole(base_folder(model) / GATES_FILE, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
