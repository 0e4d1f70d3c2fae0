"""The loop of `train_retrieval`: batches, losses, measurements and its checkpoint."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from .._files import write_whole
from ..bank.rows import SharedRows
from ..training.losses import stacked_step_loss, step_recall
from ..training.pools import keyed
from ..training.recipe import PAPER_MIX
from .finder import Finder
from .lookahead import Tables, planned
from .reader import SearchInput
from .searches import READ_BATCH, KnownSearch, Searches

if TYPE_CHECKING:
    from .retrieval import RetrievalRecipe

Log = list[dict[str, float]]
WARMUP, WEIGHT_DECAY = 0.1, 0.01  # warmup: part of the steps
LINK_WEIGHT = 0.3  # of the loss of links
JOIN_AT = 0.25  # part of the steps after which searches look ahead in the loss
JOINT_SEARCHES = 48  # of a batch look ahead in the loss; the others train their parts
LINK_PREMISES = 4096  # of the bank, at most, may follow a conclusion in the loss of links
SCALAR_RATE = 30  # times the learning rate, for offsets, tails and multiples: scalars that many units share


class RetrievalLoop:
    """Trains a finder; a batch depends on seed and step alone, so a resumed training is the same one."""

    def __init__(
        self,
        finder: Finder,
        known: Searches,
        held_out: Searches | None,
        premises: Sequence[Any],
        recipe: RetrievalRecipe,
        levels: int = 0,
        width: int = 0,
    ) -> None:
        self.finder, self.known, self.held_out, self.recipe = finder, known, held_out, recipe
        self.levels, self.width = levels, width
        numbers: dict[Any, int] = {}
        self.premise_M = torch.tensor([numbers.setdefault(premise, len(numbers)) for premise in premises])
        self.order_M = self.premise_M.argsort(stable=True)  # rules of one premise stand together
        self.counts_U = self.premise_M.bincount().numpy()
        self.same_premise = self.order_M.split(self.counts_U.tolist())
        self.chain_ends = _chain_ends(known, finder.values_MP) if known.links else []
        self.shares = _shares(known)
        self.optimizer = torch.optim.AdamW(_parameter_groups(finder, recipe))
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        if finder.ahead is not None:
            finder.ahead.weight.data.fill_(recipe.temperature)  # a log-probability counts as one

    def train(self, state: Path, report: Callable[[Mapping[str, float]], None]) -> Log:
        """Train to the end, or go on from the file of the last measurement; the finder then has its best weights."""
        recipe = self.recipe
        log, best = self._load(state) if state.is_file() else ([], {})
        for step in range(int(log[-1]["step"]) + 1 if log else 1, recipe.max_steps + 1):
            qualities = [_quality(entry) for entry in log]
            if log and len(log) - qualities.index(max(qualities)) > recipe.patience:
                break
            losses = self.step(step - 1)
            if step % recipe.evaluate_every and step < recipe.max_steps:
                continue
            log.append({"step": step, **losses, **self.measure()})
            report(log[-1])
            if log[-1] is max(log, key=_quality):
                best = {name: value.detach().clone() for name, value in self.finder.state_dict().items()}
            self._save(state, best, log)
        self.finder.load_state_dict(best)
        return log

    def _save(self, state: Path, best: Mapping[str, Tensor], log: Log) -> None:
        parts = {"now": self.finder.state_dict(), "best": best, **self.optimizer.state_dict()["state"]}
        tensors = {
            f"{part}/{name}": torch.as_tensor(value).clone()
            for part, values in parts.items()
            for name, value in values.items()
        }
        write_whole(state, save(tensors, {"log": json.dumps(log)}))

    def _load(self, state: Path) -> tuple[Log, dict[str, Tensor]]:
        """Go to where a training was; return its log, and the best weights so far."""
        parts: dict[str, dict[str, Tensor]] = {}
        with safe_open(state, "pt") as file:
            log = json.loads(file.metadata()["log"])
            for key in file.keys():  # noqa: SIM118 (no mapping)
                part, _, name = key.partition("/")
                parts.setdefault(part, {})[name] = file.get_tensor(key)
        self.finder.load_state_dict(parts.pop("now"))
        best = parts.pop("best")
        moments = {int(number): values for number, values in parts.items()}
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
        return log, best

    def step(self, step: int) -> dict[str, float]:
        """Train on one batch."""
        recipe, progress = self.recipe, step / self.recipe.max_steps
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * min(1.0, progress / WARMUP) * (1 + math.cos(math.pi * progress)) / 2
        losses = self._losses(keyed(recipe.seed, 5, step), joint=progress >= JOIN_AT)
        self.optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        nn.utils.clip_grad_norm_(self.finder.parameters(), 1.0)
        self.optimizer.step()
        return {name: round(float(value.detach()), 4) for name, value in losses.items()}

    def _losses(self, draw: np.random.Generator, joint: bool) -> dict[str, Tensor]:
        recipe, finder, ahead = self.recipe, self.finder, self.finder.ahead
        numbers = draw.choice(len(self.known.items), size=recipe.batch_size, p=self.shares).tolist()
        searches = [self.known.items[number] for number in numbers]
        some_links = draw.integers(max(1, len(self.known.links)), size=recipe.batch_size)
        wanted = [rule for item in searches for rule in (*item.gold, *item.ends)]
        hard = self.hard_rules(searches, draw)
        random = draw.integers(len(self.premise_M), size=recipe.pool_size).tolist()
        pool_M = torch.tensor([*wanted, *hard, *random]).unique()
        keys_MP, values_MP = finder.keys_MP[pool_M], finder.values_MP[pool_M]
        known = finder.white(self.known.inputs(numbers, keys_MP.device))
        scores_BM = finder.scores(known, keys_MP)
        gold_BM = _marks([item.gold for item in searches], pool_M, keys_MP.device)
        losses = {"state": stacked_step_loss(scores_BM[:, None], gold_BM[:, None], recipe.temperature)}
        if ahead is None:
            return losses
        goal_BM = ahead.goal(known) @ values_MP.T
        ends_BM = _marks([item.ends for item in searches], pool_M, keys_MP.device)
        losses["goal"] = stacked_step_loss(goal_BM[:, None], ends_BM[:, None], 1.0)
        if self.known.links:
            losses["link"] = LINK_WEIGHT * self.link_loss([self.known.links[i] for i in some_links], draw)
        if joint:
            part = slice(JOINT_SEARCHES)
            planned_BM = self._planned(scores_BM[part], goal_BM[part], keys_MP, values_MP)
            losses["joint"] = stacked_step_loss(planned_BM[:, None], gold_BM[part, None], recipe.temperature)
        return losses

    def _planned(self, scores_BM: Tensor, goal_BM: Tensor, keys_MP: Tensor, values_MP: Tensor) -> Tensor:
        """Return what searches of a pool go by: their own scores and the backward levels."""
        ahead = self.finder.ahead
        assert ahead is not None
        tables = Tables(SharedRows(keys_MP), SharedRows(values_MP))
        levels = ahead.levels(goal_BM, tables, self.levels, self.width)
        return planned(scores_BM, levels, ahead.weight)

    def hard_rules(self, searches: Sequence[KnownSearch], draw: np.random.Generator) -> list[int]:
        """Return ``hard_rules`` rules for each search that share a premise with its gold rules, these in turn."""
        chances = draw.random((len(searches), self.recipe.hard_rules))
        hard = []
        for item, chances_of_item in zip(searches, chances, strict=True):
            for gold, chance in zip(itertools.cycle(item.gold), chances_of_item, strict=False):
                rules = self.same_premise[int(self.premise_M[gold])]
                hard.append(int(rules[int(chance * len(rules))]))
        return hard

    def link_loss(self, links: Sequence[tuple[int, int]], draw: np.random.Generator) -> Tensor:
        """Return the binary cross-entropy of which premises follow a conclusion.

        Those of the rules that come next in chains follow, and none follows where no chain goes on: conclusions of
        nearly the same words differ in that, and among many rules there is one that would go on from each.
        """
        ahead = self.finder.ahead
        assert ahead is not None
        first_N, next_N = torch.tensor(links).T
        if self.chain_ends:
            some = draw.integers(len(self.chain_ends), size=round(self.recipe.link_ends * len(links)))
            ends = torch.tensor([self.chain_ends[i] for i in some], dtype=torch.long)
            first_N = torch.cat([first_N, ends])
        # One rule of each of some premises, and the rules that come next.
        drawn_U = draw.permutation(len(self.counts_U))[:LINK_PREMISES]
        starts_U = self.counts_U.cumsum() - self.counts_U
        places_U = starts_U[drawn_U] + (draw.random(len(drawn_U)) * self.counts_U[drawn_U]).astype(np.int64)
        rules_U = torch.cat([self.order_M[torch.from_numpy(places_U)], next_N])
        logits_UN = ahead.link_logits(self.finder.keys_MP[rules_U], self.finder.values_MP[first_N])
        follows_UN = torch.zeros_like(logits_UN)
        same_UN = self.premise_M[rules_U][:, None] == self.premise_M[next_N]
        follows_UN[:, : len(links)] = same_UN.to(logits_UN)
        total = nn.functional.binary_cross_entropy_with_logits(logits_UN, follows_UN, reduction="sum")
        return total / len(links)

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Return Recall@1 of held-out searches; nothing without any."""
        if self.held_out is None:
            return {}
        finder, items = self.finder, self.held_out.items
        needed = {rule for item in items for rule in (*item.gold, *item.ends)}
        others = keyed(self.recipe.seed, 6).permutation(len(self.premise_M)).tolist()
        rest = [rule for rule in others if rule not in needed]
        pool_M = torch.tensor(sorted([*needed, *rest[: max(0, self.recipe.evaluate_rules - len(needed))]]))
        keys_MP, values_MP = finder.keys_MP[pool_M], finder.values_MP[pool_M]
        recalls: dict[str, list[float]] = {"recall": [], "recall_state": [], "recall_later": []}
        for start in range(0, len(items), READ_BATCH):
            part = items[start : start + READ_BATCH]
            numbers = range(start, start + len(part))
            known: SearchInput = finder.white(self.held_out.inputs(numbers, keys_MP.device))
            state_BM = planned_BM = finder.scores(known, keys_MP)
            if finder.ahead is not None:
                goal_BM = finder.ahead.goal(known) @ values_MP.T
                planned_BM = self._planned(state_BM, goal_BM, keys_MP, values_MP)
            gold_BM = _marks([item.gold for item in part], pool_M, keys_MP.device)
            for item, *scores_2M, gold_M in zip(part, planned_BM, state_BM, gold_BM, strict=True):
                one_M = gold_M[None, None]
                with_plan, state = (float(step_recall(s[None, None], one_M)[0]) for s in scores_2M)
                recalls["recall"].append(with_plan)
                recalls["recall_state"].append(state)
                if item.later:
                    recalls["recall_later"].append(with_plan)
        return {name: round(sum(values) / len(values), 4) for name, values in recalls.items() if values}


def _quality(entry: Mapping[str, float]) -> float:
    """Return what the best weights are chosen by; without held-out questions the last are the best."""
    return entry.get("recall", entry["step"])


def _parameter_groups(finder: Finder, recipe: RetrievalRecipe) -> list[dict[str, Any]]:
    groups = []
    ahead_weight = None if finder.ahead is None else finder.ahead.weight
    for name, parameter in finder.named_parameters():
        factor, decay = 1.0, WEIGHT_DECAY
        if parameter is ahead_weight:
            factor, decay = recipe.temperature, 0.0
        elif name.endswith((".offset", ".tail", ".multiple")):
            factor, decay = SCALAR_RATE, 0.0
        elif recipe.look_up and (".out." in name or ".link." in name):
            factor = recipe.free_rate
        if parameter.requires_grad:
            rate = recipe.learning_rate * factor
            groups.append({"params": [parameter], "lr": rate, "weight_decay": decay})
    return groups


def _shares(known: Searches) -> np.ndarray:
    """Return how often each search is drawn: the paper's mix of families where there are these, else all alike."""
    names = [known.families[item.question] for item in known.items]
    mix = PAPER_MIX if set(names) == set(PAPER_MIX) else dict.fromkeys(names, 1.0)
    total = sum(mix.values())
    by_name = {name: share / names.count(name) / total for name, share in mix.items()}
    shares = np.array([by_name[name] for name in names])
    return shares / shares.sum()


def _chain_ends(known: Searches, values_MP: Tensor) -> list[int]:
    """Return the gold rules with whose conclusions no chain goes on, ascending."""
    gold = sorted({rule for item in known.items for rule in item.gold})
    same_N = values_MP[gold].unique(dim=0, return_inverse=True)[1].tolist()
    conclusion = dict(zip(gold, same_N, strict=True))
    followed = {conclusion[first] for first, _ in known.links}
    return [rule for rule in gold if conclusion[rule] not in followed]


def _marks(rules: Sequence[Sequence[int]], pool_M: Tensor, device: torch.device) -> Tensor:
    """Return which rules of a sorted pool each row has: (B, M) bool."""
    marks_BM = torch.zeros(len(rules), len(pool_M), dtype=torch.bool)
    for row, rules_of_row in enumerate(rules):
        marks_BM[row, torch.searchsorted(pool_M, torch.tensor(rules_of_row))] = True
    return marks_BM.to(device)
