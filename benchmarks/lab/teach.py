"""Teach a pretrained model to follow rules by LoRA, from changes that it has or from none.

    python benchmarks/lab/teach.py benchmarks/base/smollm2-next.toml --out runs/smollm2-next

``OUT/last`` is the checkpoint: the changes in float16, and where the training stands. One that was killed goes on from
it, here or where the folder was copied to, after some steps of rising rate. ``OUT/model`` is what comes of it, which
`rwbench models add` joins with its model. Every minute a line of ``OUT/log.jsonl`` has the loss by kind of answer, the
share of answers of which every token was the likeliest, tokens a second of computing time, and the hours left.
"""

import json
import time
import tomllib
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import torch
import typer
from documents import STRICT, Writer
from drills import Ingredient, draw_trees
from network import add_lora, answer_losses
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass
from ruleworld_data.io import write_whole
from rwbench.models import PROMPT_FILE, STEP, base_folder, fingerprint, replaced_folder
from rwbench.models.added import taught_base
from rwbench.run.environment import environment
from rwbench.run.folder import exclusive
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

TWIN = 0.1  # part of a row's length within which another row is its twin
WEIGHTS, CONFIG, RECORD = "adapter_model.safetensors", "adapter_config.json", "training.json"
SAVE_SECONDS, LOG_SECONDS = 120.0, 60.0
Told = dict[str, list[tuple[float, bool]]]  # kind -> loss of each answer, and whether all of it was right


@dataclass(frozen=True, config=STRICT)
class Recipe:
    """Everything that decides the weights."""

    model: str  # name or folder
    mark: str  # one of its special tokens, which opens every step
    ingredients: dict[str, Ingredient]
    tokens: int  # of the whole training, padding included
    begin: str | None = None  # a folder of changes to go on from, of which rank and layers are then
    rank: int = 16
    first_layer: int = 0  # layers before it stay as they are
    seed: int = 0  # names weights and data
    step_tokens: int = 12_000
    rate: float = 5e-4  # of AdamW, from which it falls to zero along a line
    warmup: int = 10  # steps of rising rate
    clip: float = 1.0  # largest norm of the gradient


def read_recipe(path: Path) -> Recipe:
    """Read a recipe, such as benchmarks/base/smollm2-next.toml."""
    return TypeAdapter(Recipe).validate_python(tomllib.loads(path.read_text(encoding="utf-8")))


def check_mark(output_VC: Tensor, mark: str, tokenizer: Any) -> None:
    """Refuse a mark whose output row another token has, too: of n such twins none gets more than 1 / n.

    Special tokens that a pretraining never used have one row in common.
    """

    def alone(token: int) -> bool:
        apart_V = (output_VC - output_VC[token]).norm(dim=-1)
        return int((apart_V < TWIN * output_VC[token].norm()).sum()) == 1

    free = [token.content for i, token in tokenizer.added_tokens_decoder.items() if alone(i)]
    if mark not in free:
        raise ValueError(f"mark must be a special token that stands alone, one of {free}, got {mark!r}")


class Teaching:
    """A model that is taught in a folder, from the beginning or from its ``last``."""

    def __init__(self, recipe: Recipe, out: Path, device: str) -> None:
        self.recipe, self.out = recipe, out
        self.at: dict[str, Any] = {"step": 0, "tokens": 0, "seconds": 0.0, "warm": 0}
        last = out / "last" if (out / "last" / RECORD).is_file() else None
        folder = base_folder(recipe.model)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, trust_remote_code=False)
        check_mark(model.get_output_embeddings().weight.float(), recipe.mark, tokenizer)
        layers, rank = [*range(recipe.first_layer, model.config.num_hidden_layers)], recipe.rank
        begin = last or (None if recipe.begin is None else Path(recipe.begin))
        if begin is not None:
            if taught_base(begin) != folder:
                raise ValueError(f"{begin} was taught to another model than {recipe.model}")
            said = json.loads((begin / CONFIG).read_text(encoding="utf-8"))
            layers, rank = said["layers_to_transform"], said["r"]
        if last is not None:
            self.go_on(json.loads((last / RECORD).read_text(encoding="utf-8")), last)
        torch.manual_seed(recipe.seed)
        self.model, self.writer = model.to(device), Writer(tokenizer, recipe.mark)
        self.changed = add_lora(self.model, layers, rank)
        self.weights: dict[str, Tensor] = {
            f"{name}.{side}.weight": getattr(linear, own)
            for name, linear in self.changed.items()
            for side, own in (("lora_A", "down"), ("lora_B", "up"))
        }
        if begin is not None:
            values = load_file(begin / WEIGHTS)
            for name, weight in self.weights.items():
                weight.data.copy_(values[name])
        self.optimizer = torch.optim.AdamW([*self.weights.values()], betas=(0.9, 0.98), weight_decay=0.0)
        self.join()

    @property
    def done(self) -> float:
        """Return which part of the tokens lies behind."""
        return self.at["tokens"] / self.recipe.tokens

    def go_on(self, said: dict[str, Any], last: Path) -> None:
        """Stand where a checkpoint does; a ValueError if it is of another recipe, but for how long it is."""
        ours = json.loads(json.dumps(asdict(self.recipe)))
        if said["recipe"] | {"tokens": ours["tokens"]} != ours:
            raise ValueError(f"{last} is of another recipe; give it, or another --out")
        self.at = {name: said[name] for name in self.at} | {"warm": said["step"]}

    def join(self) -> None:
        """Let the model compute with what the thin matrices are now."""
        for linear in self.changed.values():
            linear.join()

    def run(self) -> None:
        """Train to the end, and write ``model``."""
        self.out.mkdir(parents=True, exist_ok=True)
        with exclusive(self.out):
            told: Told = defaultdict(list)
            begun = saved = logged = time.monotonic()
            first, tokens, seconds = self.done, self.at["tokens"], self.at["seconds"]
            while self.done < 1:
                started = time.process_time()
                for kind, answers in self.step().items():
                    told[kind] += answers
                self.at["seconds"] += time.process_time() - started
                ends, now = self.done >= 1, time.monotonic()
                if ends or now - logged >= LOG_SECONDS:
                    speed = round((self.at["tokens"] - tokens) / (self.at["seconds"] - seconds))
                    left = (1 - self.done) * (now - begun) / (self.done - first) / 3600
                    self.log({"tokens_a_second": speed, "hours_left": round(left, 2)}, told)
                    told, logged = defaultdict(list), now
                if ends or now - saved >= SAVE_SECONDS:
                    self.write(self.out / "last")
                    saved = now
            self.write(self.out / "model")

    def step(self) -> Told:
        """Train on one batch of trees; kinds of answers are ingredients."""
        recipe, at, optimizer = self.recipe, self.at, self.optimizer
        trees = draw_trees(self.writer, str(recipe.seed), at["step"], recipe.ingredients, recipe.step_tokens)
        count = sum(sum(branch.wanted) for tree in trees for branch in tree.branches)
        told = defaultdict(list)
        for tree in trees:
            losses_N, right_N, branch_N = answer_losses(self.model, tree)
            (losses_N.sum() / count).backward()
            for row in range(len(tree.branches)):
                mine = branch_N == row
                told[tree.ingredient].append(
                    (float(losses_N[mine].detach().mean()), bool(right_N[mine].all()))
                )
        torch.nn.utils.clip_grad_norm_([*self.weights.values()], recipe.clip, error_if_nonfinite=True)
        left = max(0.0, 1 - self.done)
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * left * min(1.0, (at["step"] - at["warm"] + 1) / recipe.warmup)
        optimizer.step()
        optimizer.zero_grad()
        self.join()
        at["step"] += 1
        at["tokens"] += sum(tree.size for tree in trees)
        return told

    def log(self, entry: dict[str, Any], told: Told) -> None:
        """Add a line to the log."""
        kinds = sorted(told.items())
        entry = {"step": self.at["step"], "tokens": self.at["tokens"]} | entry
        entry["loss"] = {kind: round(mean(loss for loss, _ in answers), 4) for kind, answers in kinds}
        entry["right"] = {kind: round(mean(right for _, right in answers), 3) for kind, answers in kinds}
        line = json.dumps(entry | {"answers": {kind: len(answers) for kind, answers in kinds}})
        print(line, flush=True)
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def write(self, folder: Path) -> None:
        """Write the changes in float16 as PEFT loads them, how the model is asked, and how it was trained."""
        layers, names = zip(*(name.split(".")[4::2] for name in self.changed), strict=True)
        rank = len(next(iter(self.changed.values())).down)
        config = {
            "peft_type": "LORA",
            "task_type": None,
            "base_model_name_or_path": Path(self.recipe.model).name,
            "r": rank,
            "lora_alpha": 2 * rank,
            "bias": "none",
            "layers_to_transform": sorted({*map(int, layers)}),
            "target_modules": sorted({*names}),
        }
        record = {"recipe": asdict(self.recipe)} | self.at | {"environment": environment()}
        record["base"] = fingerprint(base_folder(self.recipe.model))
        prompt = (base_folder("tiny") / PROMPT_FILE).read_text(encoding="utf-8")
        halves = {name: weight.detach().half().cpu().contiguous() for name, weight in self.weights.items()}
        with replaced_folder(folder) as new:
            write_whole(new / WEIGHTS, save(halves, {"format": "pt"}))
            write_whole(new / CONFIG, json.dumps(config, indent=1) + "\n")
            write_whole(new / PROMPT_FILE, prompt.replace(STEP, self.writer.mark))
            write_whole(new / RECORD, json.dumps(record, indent=1) + "\n")


def main(
    recipe: Path,
    out: Annotated[Path, typer.Option(help="Folder of the training; if it holds one, that goes on.")],
    device: str = "cpu",
    threads: Annotated[int, typer.Option(help="One gives the same weights every time.")] = 1,
) -> None:
    """Teach, or go on with it; a kill costs two minutes at most."""
    torch.set_num_threads(threads)
    Teaching(read_recipe(recipe), out, device).run()
    print(f"wrote {out / 'model'}")


if __name__ == "__main__":
    typer.run(main)
