"""Training of finding alone, on states that are computed once: minutes where training through the model takes an hour.

The layers below the confidence layer hold no rules, so what a search knows is the same at every step of the training:
it is read once, and what is trained are the few maps between it and a bank. Reading is left to the frozen base (token
memory) or to a training of its own.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._files import exclusive, write_whole
from ..adapter import RuleAdapter
from ..bank.bank import RuleBank
from ..bank.sources import premise_of
from ..base_model import attention_blocks
from ..memory.selection import check_bank
from ..model_card import model_card
from ..search_token import SEARCH_TOKEN, search_id
from ..training.data import Encoder
from ..training.losses import stacked_step_loss, step_recall
from ..training.pools import Rows, keyed
from ..training.recipe import PAPER_MIX
from .finder import Finder
from .lookahead import Tables, planned
from .searches import READ_BATCH, KnownSearch, Searches, read_searches

LOG, STATE = "retrieval.json", ".retrieval.safetensors"
JOINT = 48
"""Searches of a batch that look ahead in the loss; the others train their parts."""
PREMISES = 4096
"""Premises of the bank, at most, that may follow a conclusion in the loss of links."""
OFFSETS = 30
"""How much faster offsets, tails and multiples are trained: single numbers that go to several units."""


@dataclass(frozen=True)
class RetrievalRecipe:
    """How finding is trained; all of it beyond the paper, which trains finding and reading at once."""

    max_steps: int = field(default=1200, metadata={"help": "of the optimizer"})
    batch_size: int = field(default=128, metadata={"help": "searches"})
    pool_size: int = field(default=1500, metadata={"help": "random rules among which a batch's are found"})
    hard_rules: int = field(default=4, metadata={"help": "rules with a gold rule's premise, for each"})
    temperature: float = field(default=0.05, metadata={"help": "of the retrieval loss (equation 5)"})
    learning_rate: float = field(default=3e-3, metadata={"help": "peak, of AdamW; falls to zero"})
    warmup_ratio: float = field(default=0.1, metadata={"help": "of the steps"})
    weight_decay: float = field(default=0.01, metadata={"help": "of AdamW"})
    link_weight: float = field(default=0.3, metadata={"help": "of the loss of links"})
    link_ends: float = field(
        default=0.25, metadata={"help": "conclusions that no chain goes on from, for each link"}
    )
    join_at: float = field(
        default=0.25, metadata={"help": "part of the steps after which searches look ahead"}
    )
    evaluate_every: int = field(default=150, metadata={"help": "steps between measurements"})
    evaluate_rules: int = field(default=10_000, metadata={"help": "rules among which they find"})
    patience: int = field(default=4, metadata={"help": "measurements without a better one, then it ends"})
    seed: int = field(default=0, metadata={"help": "of weights and batches"})
    look_up: bool = field(
        default=False, metadata={"help": "look for the text's own words, see `Finder.look_up`"}
    )
    free_rate: float = field(
        default=1.0, metadata={"help": "learning rate of what is learned beside the own words, in parts"}
    )

    def __post_init__(self) -> None:
        if type(self.look_up) is not bool:
            raise ValueError(f"look_up must be true or false, got {self.look_up!r}")
        if self.free_rate != 1 and not self.look_up:
            raise ValueError(
                f"free_rate is of what is learned beside the text's own words; set look_up, got {self.free_rate!r}"
            )
        for f in fields(self):
            value = getattr(self, f.name)
            if f.type == "bool":
                continue
            kinds: tuple[type, ...] = (int,) if f.type == "int" else (int, float)
            if type(value) not in kinds or not math.isfinite(value) or value < 0:
                raise ValueError(f"{f.name} must be {f.type}, 0 or more, got {value!r}")
        for name in ("max_steps", "batch_size", "temperature", "evaluate_every"):
            if not getattr(self, name):
                raise ValueError(f"{name} must be positive, got 0")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


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
    premises: Sequence[Any] | None = None,
    encoder: Encoder | None = None,
    resume: bool = False,
    report: Callable[[Mapping[str, float]], None] = lambda entry: None,
) -> list[dict[str, float]]:
    """Train how the confidence layer finds rules; the adapter is changed in place, and saved.

    Parameters
    ----------
    model, tokenizer : PreTrainedModel, PreTrainedTokenizerBase
        The base, which knows ``<search>``, and its tokenizer.
    adapter : RuleAdapter
        With no rules below its confidence layer. Without ``search_heads`` it asks as in the paper: with the state of
        ``<search>``, at the prompt with the mean of the question's.
    rows, held_out : datasets.Dataset or sequence of dict
        Questions, see `read_searches`. Held-out ones are searched for among ``recipe.evaluate_rules`` rules that hold
        theirs; the best weights on them are kept, and training ends when none better come.
    bank : RuleBank
        The rule table that the questions' rule ids name.
    recipe : RetrievalRecipe
        Hyper-parameters.
    folder : path
        Holds ``retrieval.json`` (recipe and log) and, in the end, the adapter and its card. A training that was killed
        goes on from its last measurement.
    premises : sequence or None
        One premise per rule of the bank, None: those of the rules' texts. Rules of one premise are hard negatives, and
        all of them follow what one of them follows.
    encoder : Encoder or None
        Rows to tokens, if prompt or target differ from the defaults.
    resume : bool
        Go on from what is in the folder, or begin.
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
        raise ValueError("training of finding alone needs an adapter with a confidence_layer")
    if not config.search_heads and hasattr(attention_blocks(model)[layer], "q_norm"):
        raise ValueError(
            "the model norms its queries, so the paper's cannot be trained alone; set search_heads"
        )
    if config.layers(adapter.num_layers)[0] != layer:
        raise ValueError(
            f"rules join from layer {config.first_layer}, below the confidence layer {layer}, so what a search knows "
            f"depends on what was read; set first_layer={layer}, or train finding with reading (stage 2)"
        )
    token = config.search_token or SEARCH_TOKEN
    search = search_id(tokenizer, token)
    encoder = encoder or Encoder(tokenizer, {name: i for i, name in enumerate(bank.ids)})
    encoder = replace(encoder, search=True, reading=config.reading, search_token=token)
    premises = [premise_of(text) for text in bank.texts] if premises is None else premises
    with exclusive(folder):
        done = _begin(folder, recipe, resume)
        torch.manual_seed(recipe.seed)
        known = read_searches(model, layer, rows, encoder, search, folder)
        held = read_searches(model, layer, held_out, encoder, search, folder) if held_out else None
        bank.to(next(model.parameters()).device)
        finder = Finder(adapter[layer], bank.keys_MP.float(), bank.values_MP.float(), known)
        if recipe.look_up:
            finder.look_up(known, recipe.temperature)
        run = _Run(finder, known, held, premises, recipe, config.lookahead, config.lookahead_width)
        log = run.train(folder, done, report)
        finder.fold_into(adapter[layer])
        config.encoder = bank.encoder
        adapter.save(folder, tokenizer if config.search_id is not None else None)
        write_whole(
            folder / LOG, json.dumps({"recipe": recipe.to_dict(), "log": log, "done": True}, indent=1) + "\n"
        )
        facts = {
            "steps": int(log[-1]["step"]),
            "questions": len(rows),
            "held_out": 0 if held_out is None else len(held_out),
            "rules": len(bank),
            "families": dict(Counter(known.families)) if all(known.families) else {},
        }
        write_whole(folder / "README.md", model_card(config, recipe, facts, log))
    return log


def _begin(folder: Path, recipe: RetrievalRecipe, resume: bool) -> list[dict[str, float]]:
    """Return the log so far of the folder's training: that of its weights, which were written first."""
    from safetensors import safe_open

    path = folder / LOG
    if not path.is_file():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    if not resume:
        raise FileExistsError(f"{folder} holds a training already; go on with resume, or choose a new folder")
    for name, value in recipe.to_dict().items():
        if found["recipe"].get(name) != value:
            raise ValueError(
                f"{folder} was started with {name} {found['recipe'].get(name)!r}, now it is {value!r}; resume with "
                "the recipe of the start, or train in a new folder"
            )
    with safe_open(folder / STATE, framework="pt") as file:
        return list(json.loads(file.metadata()["log"]))


class _Run:
    """The loop: what a batch holds is a function of seed and step, so a resumed training is the same one."""

    def __init__(
        self,
        finder: Finder,
        known: Searches,
        held: Searches | None,
        premises: Sequence[Any],
        recipe: RetrievalRecipe,
        levels: int,
        width: int,
    ) -> None:
        self.finder, self.known, self.held, self.recipe = finder, known, held, recipe
        self.levels, self.width = levels, width
        names: dict[Any, int] = {}
        self.premise_M = torch.tensor([names.setdefault(each, len(names)) for each in premises])
        self.order_M = self.premise_M.argsort(stable=True)
        self.counts_U = self.premise_M.bincount().numpy()
        self.same = dict(enumerate(self.order_M.split(self.counts_U.tolist())))
        self.last = _last_rules(known, finder.values_MP) if known.links else []
        names_of = [known.families[item.question] for item in known.items]
        mix = PAPER_MIX if set(names_of) == set(PAPER_MIX) else dict.fromkeys(names_of, 1.0)
        shares_N = np.array([mix[name] / names_of.count(name) for name in mix])
        by_name = dict(zip(mix, shares_N / sum(mix.values()), strict=True))
        self.shares = np.array([by_name[name] for name in names_of])
        self.shares /= self.shares.sum()
        rate, weight = recipe.learning_rate, [finder.ahead.weight] if finder.ahead is not None else []
        named = [(name, each) for name, each in finder.named_parameters() if each.requires_grad]
        offsets = [each for name, each in named if name.endswith((".offset", ".tail", ".multiple"))]
        maps = [each for name, each in named if ".out." in name or ".link." in name]
        apart = {id(each) for each in offsets}
        free = [each for each in maps if id(each) not in apart] if recipe.look_up else []
        apart |= {id(each) for each in (*weight, *free)}
        groups: list[dict[str, Any]] = [
            {"params": [each for _, each in named if id(each) not in apart]},
            {"params": weight, "lr": rate * recipe.temperature, "weight_decay": 0.0},
            {"params": offsets, "lr": rate * OFFSETS, "weight_decay": 0.0},
            {"params": free, "lr": rate * recipe.free_rate},
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=rate, weight_decay=recipe.weight_decay
        )
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        if finder.ahead is not None:
            finder.ahead.weight.data.fill_(recipe.temperature)  # a log-probability counts as one

    def train(
        self, folder: Path, log: list[dict[str, float]], report: Callable[[Mapping[str, float]], None]
    ) -> list[dict[str, float]]:
        """Train to the end; the finder then has its best weights."""
        recipe = self.recipe
        best: dict[str, Tensor] = {}
        step = int(log[-1]["step"]) if log else 0
        if step:
            best = self._load(folder)
        while step < recipe.max_steps and not self._stalled(log):
            losses = self._step(step)
            step += 1
            if step % recipe.evaluate_every and step < recipe.max_steps:
                continue
            log.append({"step": step, **losses, **self.measure()})
            report(log[-1])
            if log[-1] is max(log, key=lambda entry: entry.get("recall", entry["step"])):
                best = {name: value.detach().clone() for name, value in self.finder.state_dict().items()}
            self._save(folder, best, log)
            write_whole(folder / LOG, json.dumps({"recipe": recipe.to_dict(), "log": log}, indent=1) + "\n")
        self.finder.load_state_dict(best)
        return log

    def _stalled(self, log: Sequence[Mapping[str, float]]) -> bool:
        recalls = [entry.get("recall", entry["step"]) for entry in log]
        return len(recalls) - recalls.index(max(recalls)) > self.recipe.patience if recalls else False

    def _step(self, step: int) -> dict[str, float]:
        """Train on one batch."""
        recipe, part = self.recipe, step / self.recipe.max_steps
        warm = min(1.0, part / recipe.warmup_ratio) if recipe.warmup_ratio else 1.0
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * warm * (1 + math.cos(math.pi * part)) / 2
        losses = self._losses(keyed(recipe.seed, 5, step), joined=part >= recipe.join_at)
        self.optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        nn.utils.clip_grad_norm_(self.finder.parameters(), 1.0)
        self.optimizer.step()
        return {name: round(float(value.detach()), 4) for name, value in losses.items()}

    def _losses(self, draw: Any, joined: bool) -> dict[str, Tensor]:
        recipe, finder, items = self.recipe, self.finder, self.known.items
        numbers = draw.choice(len(items), size=recipe.batch_size, p=self.shares).tolist()
        chosen = [items[number] for number in numbers]
        links = [self.known.links[i] for i in draw.integers(len(self.known.links), size=recipe.batch_size)]
        links = links if finder.ahead is not None and self.known.links else []
        wanted = [rule for item in chosen for rule in (*item.gold, *item.ends)]
        hard = self._rivals(chosen, draw)
        random = draw.integers(len(self.premise_M), size=recipe.pool_size).tolist()
        pool_M = torch.tensor([*wanted, *hard, *random]).unique()
        keys_MP, values_MP = finder.keys_MP[pool_M], finder.values_MP[pool_M]
        asked = finder.white(self.known.asked(numbers, keys_MP.device))
        scores_BM = finder.scores(asked, keys_MP)
        gold_BM = _marks([item.gold for item in chosen], pool_M, keys_MP.device)
        losses = {"state": stacked_step_loss(scores_BM[:, None], gold_BM[:, None], recipe.temperature)}
        if finder.ahead is None:
            return losses
        goal_BM = finder.ahead.goal(asked) @ values_MP.T
        ends_BM = _marks([item.ends for item in chosen], pool_M, keys_MP.device)
        losses["goal"] = stacked_step_loss(goal_BM[:, None], ends_BM[:, None], 1.0)
        if links:
            losses["link"] = recipe.link_weight * self._link_loss(links, draw)
        if joined:
            levels = finder.ahead.levels(goal_BM[:JOINT], Tables(keys_MP, values_MP), self.levels, self.width)
            planned_BM = planned(scores_BM[:JOINT], levels, finder.ahead.weight)
            losses["joint"] = stacked_step_loss(
                planned_BM[:, None], gold_BM[:JOINT, None], recipe.temperature
            )
        return losses

    def _rivals(self, chosen: Sequence[KnownSearch], draw: Any) -> list[int]:
        """Return ``hard_rules`` rules for each search that have the premise of one of its gold rules, in turn."""
        return [
            int(rules[int(part * len(rules))])
            for item, parts in zip(chosen, draw.random((len(chosen), self.recipe.hard_rules)), strict=True)
            for gold, part in zip(itertools.cycle(item.gold), parts, strict=False)
            for rules in [self.same[int(self.premise_M[gold])]]
        ]

    def _link_loss(self, links: Sequence[tuple[int, int]], draw: Any) -> Tensor:
        """Return the binary cross-entropy of which premises follow a conclusion.

        Those of the rules that come next in chains follow, and none follows where no chain goes on: what a creature has
        is told by the same words as what it loses, and among many rules there is one that goes on from every loss.
        """
        ahead, ends = self.finder.ahead, self.last
        assert ahead is not None
        first_N, next_N = torch.tensor(links).T
        if ends:
            some = draw.integers(len(ends), size=round(self.recipe.link_ends * len(links)))
            first_N = torch.cat([first_N, torch.tensor([ends[i] for i in some], dtype=torch.long)])
        drawn_U = draw.permutation(len(self.counts_U))[:PREMISES]
        starts_U = self.counts_U.cumsum() - self.counts_U
        places_U = starts_U[drawn_U] + (draw.random(len(drawn_U)) * self.counts_U[drawn_U]).astype(np.int64)
        rules_U = torch.cat([self.order_M[torch.from_numpy(places_U)], next_N])
        logits_UN = ahead.link_logits(self.finder.keys_MP[rules_U], self.finder.values_MP[first_N])
        follows_UN = torch.zeros_like(logits_UN)
        follows_UN[:, : len(links)] = (self.premise_M[rules_U][:, None] == self.premise_M[next_N]).to(
            logits_UN
        )
        every = nn.functional.binary_cross_entropy_with_logits(logits_UN, follows_UN, reduction="sum")
        return every / len(links)

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Return Recall@1 of held-out searches; nothing without any."""
        if self.held is None:
            return {}
        finder, items = self.finder, self.held.items
        gold = {rule for item in items for rule in (*item.gold, *item.ends)}
        others = keyed(self.recipe.seed, 6).permutation(len(self.premise_M)).tolist()
        rest = [rule for rule in others if rule not in gold][: max(0, self.recipe.evaluate_rules - len(gold))]
        pool_M = torch.tensor(sorted([*gold, *rest]))
        keys_MP, values_MP = finder.keys_MP[pool_M], finder.values_MP[pool_M]
        hits = {"recall": [], "recall_state": [], "recall_later": []}  # type: dict[str, list[float]]
        for start in range(0, len(items), READ_BATCH):
            chosen = items[start : start + READ_BATCH]
            numbers = range(start, start + len(chosen))
            asked = finder.white(self.held.asked(numbers, keys_MP.device))
            state_BM = planned_BM = finder.scores(asked, keys_MP)
            if finder.ahead is not None:
                goal_BM = finder.ahead.goal(asked) @ values_MP.T
                levels = finder.ahead.levels(goal_BM, Tables(keys_MP, values_MP), self.levels, self.width)
                planned_BM = planned(state_BM, levels, finder.ahead.weight)
            gold_BM = _marks([item.gold for item in chosen], pool_M, keys_MP.device)
            for item, planned_M, state_M, gold_M in zip(chosen, planned_BM, state_BM, gold_BM, strict=True):
                found, alone = (
                    float(step_recall(each[None, None], gold_M[None, None])[0])
                    for each in (planned_M, state_M)
                )
                hits["recall"].append(found)
                hits["recall_state"].append(alone)
                if item.later:
                    hits["recall_later"].append(found)
        return {name: round(sum(each) / len(each), 4) for name, each in hits.items() if each}

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        for name, value in self.finder.state_dict().items():
            yield f"now/{name}", value
        for number, values in self.optimizer.state_dict()["state"].items():
            for name, value in values.items():
                yield f"optimizer/{number}.{name}", torch.as_tensor(value)

    def _save(self, folder: Path, best: Mapping[str, Tensor], log: Sequence[Mapping[str, float]]) -> None:
        from safetensors.torch import save

        tensors = dict(self._tensors()) | {f"best/{name}": value for name, value in best.items()}
        own = {name: value.contiguous().clone() for name, value in tensors.items()}
        write_whole(folder / STATE, save(own, {"log": json.dumps(log)}))

    def _load(self, folder: Path) -> dict[str, Tensor]:
        """Go on from what was saved; return the best weights so far."""
        from safetensors.torch import load_file

        parts: dict[str, dict[str, Tensor]] = {"now": {}, "best": {}, "optimizer": {}}
        for key, value in load_file(folder / STATE).items():
            part, _, name = key.partition("/")
            parts[part][name] = value
        self.finder.load_state_dict(parts["now"])
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in parts["optimizer"].items():
            number, _, name = key.partition(".")
            moments.setdefault(int(number), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        return parts["best"]


def _last_rules(known: Searches, values_MP: Tensor) -> list[int]:
    """Return the gold rules with whose conclusions no chain goes on, ascending."""
    gold = sorted({rule for item in known.items for rule in item.gold})
    same_N = values_MP[gold].unique(dim=0, return_inverse=True)[1].tolist()
    conclusion = dict(zip(gold, same_N, strict=True))
    followed = {conclusion[first] for first, _ in known.links}
    return [rule for rule in gold if conclusion[rule] not in followed]


def _marks(rules: Sequence[Sequence[int]], pool_M: Tensor, device: torch.device) -> Tensor:
    """Return which rules of a sorted pool are among some: (B, M) bool."""
    marks_BM = torch.zeros(len(rules), len(pool_M), dtype=torch.bool)
    for row, each in enumerate(rules):
        marks_BM[row, torch.searchsorted(pool_M, torch.tensor(each))] = True
    return marks_BM.to(device)
