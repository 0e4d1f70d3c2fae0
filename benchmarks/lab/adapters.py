"""Train an adapter for a base, stage by stage: DynaRule, SR-KI, KBLaM or DynaRule+ on RuleWorld's questions.

    python benchmarks/lab/adapters.py benchmarks/adapters/dynarule.toml --method dynarule --form nl --out runs/nl

Questions and their order are the same for all methods. ``OUT/1``, ``OUT/2`` ... hold the stages' checkpoints, from
which a killed training goes on; ``OUT/adapter`` is what comes of them.
"""

import json
import shutil
import tomllib
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from dynarule.bank import EmbeddingCache
from dynarule.plus import RetrievalRecipe, train_retrieval
from dynarule.search_token import begin_as_header
from dynarule.training import Encoder, LogLines, RulePools, paper_recipe, recipe_steps, train
from peft.utils import SAFETENSORS_WEIGHTS_NAME as WEIGHTS
from plain import plain_questions
from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass
from ruleworld_data.io import whole_folder, write_whole
from ruleworld_data.questions import training_text
from ruleworld_data.spec import SUBTASKS
from rwbench.backends.local import load_fresh
from rwbench.cache import cache_root
from rwbench.models import base_folder, fingerprint, step_mark
from rwbench.run.data import DataSource, select
from rwbench.run.folder import exclusive
from rwbench.spec import DATA_VERSION
from safetensors.torch import load_file, save

import dynarule

Form = Literal["nl", "fol"]
PLUS, FINDING = "dynarule-plus", "retrieval"
CONFIGS = {
    "dynarule": dynarule.dynarule_config,
    "srki": dynarule.srki_config,
    "kblam": dynarule.kblam_config,
    PLUS: dynarule.dynarule_config,
}
EVALUATIONS = 8  # measurements of held-out questions in a stage, each with a checkpoint
ENTROPY_QUESTIONS, ENTROPY_RULES = 200, 100  # that choose the confidence layer, and rules of each


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class AdapterRecipe:
    """Everything that decides an adapter's weights, besides base, method and form."""

    stages: tuple[dict[str, Any], ...]  # stage 1 or 2 and changes of the paper's recipe, or "retrieval"
    begin: str | None = None  # an adapter beside the base whose search is taken, such as dynarule-plus
    dtype: str = "float32"  # of the base in training; what is trained is float32
    scale: str = "paper"  # world of the training questions
    data: str = DATA_VERSION  # version of the data that the base knows the words of
    training_seed: int = 0  # of first weights, batches and pools
    per_subtask: int | None = None  # most questions per sub-task
    held_out: int = 20  # validation questions per sub-task, for the log
    plain: int = 0  # questions in plain English besides, where rules are in English
    top_k: int = 100  # rules kept in every layer (DynaRule, SR-KI)
    memory: dict[str, Any] = field(default_factory=dict)  # other settings of the rule memory
    arguments: dict[str, Any] = field(default_factory=dict)  # of transformers' TrainingArguments
    confidence_layer: int | None = None  # of the retrieval loss; None: by entropy after stage 1
    encoder: str = "minilm"  # of the rules: minilm, a sentence encoder, or layers:N of the base


def read_recipe(path: Path, form: Form) -> AdapterRecipe:
    """Read a recipe with what it says of one form: its stages, and for logic the table ``fol``."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    changes = values.pop("fol", {})
    if form == "fol":
        values |= changes | {"memory": values.get("memory", {}) | changes.get("memory", {})}
    values["stages"] = [stage for stage in values["stages"] if stage.pop("representation", form) == form]
    return TypeAdapter(AdapterRecipe).validate_python(values)


def plans_of(recipe: AdapterRecipe, method: str) -> list[Any]:
    """Return the training of each stage, a `Recipe` or of finding alone a `RetrievalRecipe`."""
    stages = [{"seed": recipe.training_seed} | stage for stage in recipe.stages]
    return [
        RetrievalRecipe(**{k: v for k, v in stage.items() if k != "stage"})
        if stage["stage"] == FINDING
        else paper_recipe("dynarule" if method == PLUS else method, **stage)
        for stage in stages
    ]


def train_adapter(recipe: AdapterRecipe, model_name: str, method: str, form: Form, out: Path) -> Path:
    """Train an adapter, or go on with a training; return its folder, ``out/adapter``."""
    plans, memory = plans_of(recipe, method), dict(recipe.memory)
    if method != "kblam":
        memory |= {"top_k": recipe.top_k, "confidence_layer": recipe.confidence_layer}
    CONFIGS[method](1, **memory)  # refuses an impossible setting before rules are encoded
    base = base_folder(model_name)
    model, tokenizer = load_fresh(base)
    model.float()
    # no card names a folder of this machine, nor takes it for a name on a hub
    model.name_or_path = model.config.name_or_path = f"./{Path(model_name).name}"
    mark = step_mark(model_name, tokenizer)
    own = mark if mark in tokenizer.get_vocab() else ""  # what the base writes before each step
    if method == PLUS and not own:
        raise ValueError(f"{PLUS} searches where a step begins, and {model_name} was taught no mark for it")
    out.mkdir(parents=True, exist_ok=True)
    with exclusive(out):
        settings = asdict(recipe) | {"method": method, "form": form, "base": fingerprint(base)}
        started, text = out / "started.json", json.dumps(settings, indent=1) + "\n"
        if started.is_file() and started.read_text(encoding="utf-8") != text:
            raise ValueError(f"{out} holds another training, see {started}; give another --out")
        write_whole(started, text)
        bank, rows, held_out = training_data(recipe, form, model, tokenizer)
        model.to(getattr(torch, recipe.dtype))  # rules are embedded in float32, as when it serves
        row_of = {name: row for row, name in enumerate(bank.ids)}
        data = {"held_out": held_out, "resume": True}
        torch.manual_seed(recipe.training_seed)
        adapter = dynarule.RuleAdapter(model, CONFIGS[method](bank.encoder_dim, **memory))
        if method == PLUS:
            adapter.config.search_token = mark
        if recipe.begin is not None:
            adapter.float()  # a base in halves would round what finds rules
            adapter.load(base.parent / f"{recipe.begin}-{form}")
        curve, searching = None, False
        for number, plan in enumerate(plans, 1):
            finding = isinstance(plan, RetrievalRecipe)
            if (finding or plan.retrieves) and adapter.config.confidence_layer is None:
                curve = confidence_curve(model, tokenizer, bank, held_out)
                adapter.config.confidence_layer = curve["confidence_layer"]
            if method != PLUS and (finding or plan.searches) and not searching:
                place, like = adapter.config.search_place, None
                if place == "premise":  # as what a text goes on with behind it
                    behind = training_text(rows[0], form, place=place).split(dynarule.SEARCH_TOKEN)[1]
                    like = tokenizer(behind, add_special_tokens=False)["input_ids"][0]
                begin_as_header(model, tokenizer, like)
                searching = True
            folder = out / str(number)
            if (folder / "README.md").is_file():  # what a stage writes last
                adapter.load(folder)
                continue
            token, place = dynarule.SEARCH_TOKEN if searching else None, adapter.config.search_place
            target = partial(training_text, representation=form, search_token=token, place=place, mark=own)
            encoder = Encoder(tokenizer, row_of, target=target)
            stage = (model, tokenizer, adapter, rows, bank, plan, folder)
            if finding:
                train_retrieval(*stage, **data, encoder=encoder, report=partial(print, flush=True))
                continue
            every = max(1, -(-recipe_steps(plan, len(rows)) // EVALUATIONS))
            when = {"eval_strategy": "steps", "eval_steps": every, "save_steps": every}
            options = (
                when | {"callbacks": [LogLines()], "use_cpu": model.device.type == "cpu"} | recipe.arguments
            )
            train(*stage, **data, encoder=encoder, curve=curve, **options)
        with whole_folder(out / "adapter", replace=True) as new:
            for path in (out / str(len(plans))).iterdir():
                if path.is_file() and path.name[0] != ".":
                    shutil.copy2(path, new / path.name)
            halves = {name: value.half() for name, value in load_file(new / WEIGHTS).items()}
            write_whole(new / WEIGHTS, save(halves, {"format": "pt"}))
            write_whole(new / "adapters.json", text)
    return out / "adapter"


def training_data(recipe: AdapterRecipe, form: Form, model: Any, tokenizer: Any) -> tuple[Any, list, list]:
    """Return all rules, and questions to train on and to measure, with rule ids as text.

    The whole rule is the key, its conclusion the value.
    """
    source, count = DataSource(recipe.scale, 0, version=recipe.data), recipe.plain if form == "nl" else 0
    table, texts, both = source.rules("train"), {}, []
    parts = (("train", recipe.per_subtask, count), ("validation", recipe.held_out, count // 20))
    for split, most, plain in parts:
        more, plain_rows = plain_questions("finding", split == "validation", plain)
        texts |= more
        rows = [q.row for name in SUBTASKS for q in select(source.questions(name, split), most)]
        for number, row in enumerate(rows):
            steps = [step | {"rule_ids": [*map(str, step["rule_ids"])]} for step in row["steps"]]
            rows[number] = row | {"steps": steps}
        both.append(rows + plain_rows)
    encoder = dynarule.open_encoder(recipe.encoder, model, tokenizer)
    bank = dynarule.RuleBank.from_texts(
        [*table.texts(table.ids, form), *(text for text, _ in texts.values())],
        [*table.texts(table.ids, f"conclusion_{form}"), *(conclusion for _, conclusion in texts.values())],
        EmbeddingCache(encoder, cache_root() / "rules"),
        [*map(str, table.ids.tolist()), *texts],
    )
    return bank, *both


def confidence_curve(model: Any, tokenizer: Any, bank: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Measure the entropy of layers on validation questions, each with some rules that hold its gold ones."""
    chosen = rows[:: max(1, len(rows) // ENTROPY_QUESTIONS)]
    pools, banks = RulePools(len(bank), seed=0), []
    for number, row in enumerate(chosen):
        gold = [bank.row(rule) for step in row["steps"] for rule in step["rule_ids"]]
        kept = pools.draw(gold, min(ENTROPY_RULES, len(bank)), number).tolist()
        ids, texts = ([column[i] for i in kept] for column in (bank.ids, bank.texts))
        pool = dynarule.RuleBank(bank.keys_MP[kept], bank.values_MP[kept], ids, texts, bank.encoder)
        banks.append(pool.to(model.device))
    prompts = dynarule.question_prompts(tokenizer, [row["question"] for row in chosen])
    curve = dynarule.measure_confidence(model, tokenizer, banks, prompts, batch_size=1).to_dict()
    print(f"entropy by layer {curve}", flush=True)
    return curve


def main(
    recipe: Path,
    method: Annotated[str, typer.Option(help=", ".join(CONFIGS))],
    form: Annotated[str, typer.Option(help="fol or nl.")],
    out: Annotated[Path, typer.Option(help="Folder of the training; if it holds one, that goes on.")],
    model: str = "tiny",
    seed: Annotated[int, typer.Option(help="Of first weights, batches and pools.")] = 0,
    encoder: Annotated[str, typer.Option(help="Another one of rules, such as minilm+premise.")] = "",
    threads: int = 1,
) -> None:
    """Train one adapter."""
    torch.set_num_threads(threads)
    plan = read_recipe(recipe, form)
    plan = replace(plan, training_seed=seed, encoder=encoder or plan.encoder)
    print(f"wrote {train_adapter(plan, model, method, form, out)}")


if __name__ == "__main__":
    typer.run(main)
