"""Training of finding alone, on states that are computed once: minutes where training through the model takes an hour.

What a search knows is read once, and what is trained are the few maps between it and a bank. Reading is left to the
frozen base (token memory), or it is trained before, since rules that are read below the confidence layer change what a
search knows; then both are trained together for a while (stage 2).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn

from .._files import exclusive, write_whole
from ..adapter import RuleAdapter
from ..bank.bank import RuleBank
from ..base_model import attention_blocks, check_fields
from ..memory.selection import check_bank
from ..model_card import model_card
from ..search_token import SEARCH_TOKEN, search_id
from ..training.data import Encoder, encoder_for
from ..training.pools import Rows
from ..training.run_folder import run_settings, same_run
from .finder import Finder
from .retrieval_loop import RetrievalLoop
from .searches import read_searches

CARD, STATE = "README.md", ".retrieval.safetensors"


@dataclass(frozen=True)
class RetrievalRecipe:
    """How finding is trained; all of it beyond the paper, which trains finding and reading at once."""

    max_steps: Annotated[int, "of the optimizer"] = 1200
    batch_size: Annotated[int, "searches"] = 128
    pool_size: Annotated[int, "random rules among which a batch's are found"] = 1500
    hard_rules: Annotated[int, "rules with a gold rule's premise, for each"] = 4
    temperature: Annotated[float, "of the retrieval loss (equation 5)"] = 0.05
    learning_rate: Annotated[float, "peak, of AdamW; falls to zero"] = 3e-3
    link_ends: Annotated[float, "conclusions that no chain goes on from, for each link"] = 0.25
    evaluate_every: Annotated[int, "steps between measurements"] = 150
    evaluate_rules: Annotated[int, "rules among which they find"] = 10_000
    patience: Annotated[int, "measurements without a better one, then it ends"] = 4
    seed: Annotated[int, "of weights and batches"] = 0
    look_up: Annotated[bool, "look for the text's own words, see `Finder.look_up`"] = False
    free_rate: Annotated[float, "of what is learned beside those words, times the learning rate"] = 1.0

    def __post_init__(self) -> None:
        positive = {"max_steps", "batch_size", "temperature", "evaluate_every"}
        check_fields(self, asdict(self).keys() - positive)
        if self.free_rate != 1 and not self.look_up:
            raise ValueError(
                f"free_rate is of what is learned beside the text's own words; set look_up, got {self.free_rate!r}"
            )


def train_retrieval(
    model: nn.Module,
    tokenizer: Any,
    adapter: RuleAdapter,
    rows: Rows,
    bank: RuleBank,
    recipe: RetrievalRecipe,
    folder: str | Path,
    *,
    held_out: Rows | None = None,
    encoder: Encoder | None = None,
    resume: bool = False,
    report: Callable[[Mapping[str, float]], None] = lambda entry: None,
) -> list[dict[str, float]]:
    """Train how the confidence layer finds rules; the adapter is changed in place, and saved.

    Parameters
    ----------
    model, tokenizer, bank, encoder, resume
        As for `dynarule.training.train`; the tokenizer knows ``<search>``.
    adapter : RuleAdapter
        With a confidence layer; where layers below it hold rules, trained to read. Without ``search_heads`` it asks as
        in the paper: with the state of ``<search>``, at the prompt with the mean of the question's.
    rows, held_out : datasets.Dataset or sequence of dict
        Questions, see `read_searches`. Held-out ones are searched for among ``recipe.evaluate_rules`` rules that hold
        theirs; the best weights on them are kept, and training ends when none better come.
    recipe : RetrievalRecipe
        Hyper-parameters.
    folder : path
        Holds in the end the adapter, ``retrieval.json`` (recipe and log) and the card. A training that was killed
        goes on from its last measurement.
    report : callable
        Gets every entry of the log.

    Returns
    -------
    list of dict
        The log: ``step``, losses, and of held-out questions ``recall`` (Recall@1 of a search, with as many rules as are
        gold), ``recall_state`` (without the look-ahead) and ``recall_later`` (later steps of chains).

    Raises
    ------
    FileExistsError
        If the folder holds a training, which is not to be resumed.
    ValueError
        If adapter, bank and recipe do not fit each other.
    """
    folder, config = Path(folder), adapter.config
    check_bank(adapter, bank)
    layer = config.confidence_layer
    if layer is None:
        raise ValueError(
            "finding is trained at the confidence layer, which the adapter does not name; measure it (dynarule "
            "confidence --write, dynarule.measure_confidence), or set confidence_layer"
        )
    projection = adapter[layer]
    asks_as_paper = getattr(projection, "reader", None) is None
    if asks_as_paper and hasattr(attention_blocks(model)[layer], "q_norm"):
        raise ValueError("the model norms queries, so the paper's cannot be trained alone; set search_heads")
    search = search_id(tokenizer, config.search_token or SEARCH_TOKEN)
    encoder = encoder_for(config, tokenizer, bank.ids, rows, encoder)
    premises = [bank.parts_of(text)[0] for text in bank.texts]
    with exclusive(folder):
        if (folder / CARD).is_file():
            raise FileExistsError(f"{folder} holds a training that is done; choose a new folder")
        if (folder / STATE).is_file() and not resume:
            raise FileExistsError(f"{folder} holds a training; go on with resume, or choose a new folder")
        torch.manual_seed(recipe.seed)
        if config.search_token is None:
            adapter.train_search(search)  # its row, which later trainings change, is saved with the adapter
        asks: Any = (bank, encoder, search, folder, recipe.seed)
        known = read_searches(adapter, rows, *asks)
        held = read_searches(adapter, held_out, *asks) if held_out else None
        families = dict(Counter(known.families)) if all(known.families) else {}
        if asks_as_paper:
            known, held = known.as_paper(), None if held is None else held.as_paper()
        bank.to(next(model.parameters()).device)
        finder = Finder(projection, bank.keys_MP.float(), bank.values_MP.float(), known)
        if recipe.look_up:
            finder.look_up(known, recipe.temperature)
        levels = () if finder.ahead is None else (config.lookahead, config.lookahead_width)  # type: ignore[attr-defined]
        loop = RetrievalLoop(finder, known, held, premises, recipe, *levels)
        below = [value for name, value in adapter.named_parameters() if int(name.split(".")[1]) < layer]
        settings = run_settings(recipe, config, bank, [rows, held_out or []], encoder, below)
        same_run(folder, settings, begun=(folder / STATE).is_file())
        log = loop.train(folder / STATE, report)
        finder.fold_into(projection)
        config.encoder = bank.encoder
        adapter.save(folder, tokenizer if config.search_id is not None else None)
        facts = {
            "steps": int(log[-1]["step"]),
            "questions": len(rows),
            "held_out": 0 if held_out is None else len(held_out),
            "rules": len(bank),
            "families": families,
        }
        summary = {"recipe": asdict(recipe), "log": log}
        write_whole(folder / "retrieval.json", json.dumps(summary, indent=1) + "\n")
        write_whole(folder / CARD, model_card(config, recipe, facts, log))
        (folder / STATE).unlink()
    return log
