"""Training data: questions with stepwise answers and gold rules, as batches with one pool of rules each.

Rows come from anywhere (a ``datasets.Dataset``, a list of dicts): ``question``, ``steps`` (each ``text``, in RuleWorld
``nl``, and ``rule_ids``), ``answers``, and ``family`` or ``subtask`` if families are to be mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..base_model import padded
from ..config import DynaRuleConfig, SearchPlace
from ..search_token import SEARCH_TOKEN, in_clause, search_id
from ..tokenizer import encode_prompt, question_prompts
from .losses import IGNORE
from .pools import Rows, RulePools

WIDTH = 32  # batches are as long as a multiple of it: kernels that are compiled for a shape take long for many shapes
CUE_LETTERS = 16  # behind a <search>, of which the first token is what it stands before

Row = Mapping[str, Any]
Gold = list[list[int]]


def target_text(row: Row, search_token: str = SEARCH_TOKEN, place: SearchPlace = "behind") -> str:
    r"""Return what the model is trained to write: steps, all but the first with ``<search>``, the boxed answers.

    It stands before a step's header or ``"behind"`` it: ``[Step 2]<search> ...``. Without it nothing else changes.
    Steps that have it in their own texts, behind the premise of each rule, stay as they are.
    """
    lines, texts = [], [step["text"] if "text" in step else step["nl"] for step in row["steps"]]
    placed = bool(search_token) and any(search_token in text for text in texts)
    for number, text in enumerate(texts, 1):
        search = search_token if number > 1 and not placed else ""
        before, behind = (search, "") if place == "before" else ("", search)
        lines.append(f"{before}[Step {number}]{behind} {text}")
    return "\n".join([*lines, f"[Answer] \\boxed{{{', '.join(row['answers'])}}}"])


def encoder_for(
    config: DynaRuleConfig,
    tokenizer: Any,
    ids: Sequence[str],
    rows: Rows,
    encoder: Encoder | None,
    search: bool = True,
) -> Encoder:
    """Return an encoder, given or made for rules of some ids, of texts as an adapter reads them.

    The adapter's configuration is told where ``<search>`` stands in them, and behind a premise, what follows it.
    """
    encoder = replace(
        encoder or Encoder(tokenizer, {name: row for row, name in enumerate(ids)}),
        search=search,
        question_opening=config.question_opening,
        search_token=config.search_token or SEARCH_TOKEN,
        search_place=config.search_place,
    )
    if search:
        config.search_place = place_of(encoder, rows)
    if search and config.search_place == "premise":
        config.search_cues = cues_of(encoder, rows)
    for number in range(len(rows)):  # before hours of training
        encoder.check(rows[number])
    return replace(encoder, search_place=config.search_place)


def cues_of(encoder: Encoder, rows: Rows) -> list[int]:
    """Return the tokens that follow ``<search>`` in a training's texts; refuse it where decoding could not write it."""
    begun, token = set(), encoder.search_token
    for number in range(len(rows)):
        before, *pieces = encoder.text(rows[number]).split(token)
        for piece in pieces:
            if not in_clause(before, token):
                raise ValueError(
                    f"{token} behind a premise is written once a clause, in lines that begin with [Step 1] and so on; "
                    f"one stands behind {before[-60:]!r}"
                )
            before += token + piece
            begun.add(piece[:CUE_LETTERS])
    firsts = (encoder.tokenizer(text, add_special_tokens=False)["input_ids"][:1] for text in begun)
    return sorted({cue for first in firsts for cue in first})


def place_of(encoder: Encoder, rows: Rows) -> SearchPlace:
    """Return where a training's texts have ``<search>``: in texts of one's own, where these have it."""
    both = ((encoder.text(row), row) for row in map(rows.__getitem__, range(len(rows))))
    text, row = next(((text, row) for text, row in both if encoder.search_token in text), ("", {"steps": []}))
    if encoder.target is None and not text:
        return encoder.search_place
    header = text.rpartition(encoder.search_token)[0].rpartition("\n")[2]
    if not header.strip():
        return "before"
    rules = sum(len({*map(str, step["rule_ids"])}) for step in row["steps"])
    first, *others = text.split(encoder.search_token)
    own = first.strip() and "\n" not in first  # within the first step: it does not open the answer
    return "premise" if own and len(others) == rules else "behind"


@dataclass(frozen=True)
class Encoded:
    """One row as tokens."""

    ids: list[int]  # prompt, answer and end of sequence
    prompt: int  # length of the prompt: the question as it is asked when serving
    search: list[int]  # positions of <search> in the answer
    gold: list[list[int]]  # rows of the rule table, by retrieval: at the prompt, then at each <search>


@dataclass(frozen=True)
class Encoder:
    """Turns rows into tokens.

    Attributes
    ----------
    tokenizer : PreTrainedTokenizerBase
        Knows ``<search>`` (`dynarule.prepare_search`).
    rule_rows : mapping of str to int
        Row of the rule table for each rule id.
    target : callable or None
        row -> answer text with ``<search>`` in all steps but the first; None: `target_text`. One more ``<search>`` may
        open the answer: it looks for the first step, and the mean of the prompt for the rules of any.
    search : bool
        Write ``<search>`` in steps. False (stage 1, SR-KI, KBLaM): no such token, all gold rules are of one step.
    question_opening : str
        See `dynarule.question_prompts`.
    search_token : str
        What stands for ``<search>``, such as a mark that the base writes before each step anyway.
    search_place : {"before", "behind", "premise"}
        Where it stands in a step, see `target_text`. Training sets these four as the adapter says.
    """

    tokenizer: Any
    rule_rows: Mapping[str, int]
    target: Callable[[Row], str] | None = None
    search: bool = True
    question_opening: str = ""
    search_token: str = SEARCH_TOKEN
    search_place: SearchPlace = "behind"

    def __call__(self, row: Row) -> Encoded:
        """Encode a row; refuse what `check` does, steps that lack their ``<search>``, and a text without tokens."""
        gold = self.check(row)
        (prompt,) = question_prompts(self.tokenizer, [row["question"]], self.question_opening)
        prompt_ids = encode_prompt(self.tokenizer, prompt)
        answer = self.text(row)
        ids = self.tokenizer(answer, add_special_tokens=False)["input_ids"]
        if not ids:
            raise ValueError(
                f"the {type(self.tokenizer).__name__} reads no token in {answer!r}; load the tokenizer that belongs to "
                "the model (dynarule.load_tokenizer)"
            )
        search, gold = self._retrievals(gold, ids, answer)
        end = [] if self.tokenizer.eos_token_id is None else [self.tokenizer.eos_token_id]
        length = len(prompt_ids)
        return Encoded([*prompt_ids, *ids, *end], length, [length + place for place in search], gold)

    def text(self, row: Row) -> str:
        """Return the answer that a row teaches."""
        if self.target is not None:
            return self.target(row)
        text = target_text(row, self.search_token, self.search_place)
        return text if self.search else text.replace(self.search_token, "")

    def check(self, row: Row) -> Gold:
        """Return the rules of each step, as rows of the rule table; refuse what is missing, or of another kind."""
        missing = [name for name in ("question", "steps", "answers") if name not in row]
        if missing or not row["steps"]:
            raise ValueError(
                f"a training row needs question, steps and answers, and one step at least; missing or empty: "
                f"{missing or ['steps']} (columns: {sorted(row)})"
            )
        answers, gold = row["answers"], Gold()
        texts = isinstance(answers, list | tuple) and len(answers) and all(map(_is_text, answers))
        if self.target is None and not texts:
            raise ValueError(f"answers of {row['question']!r:.80} are a list of texts, got {answers!r:.60}")
        for number, step in enumerate(row["steps"], 1):
            given = step if isinstance(step, Mapping) else {}
            text, rules = given.get("text", given.get("nl")), given.get("rule_ids")
            if not (isinstance(rules, list | tuple) and (self.target or _is_text(text))):
                raise ValueError(
                    "every step needs 'text' (or 'nl', as RuleWorld calls it) and a list 'rule_ids', step "
                    f"{number} of {row['question']!r:.80} is {step!r:.120}"
                )
            names = list(dict.fromkeys(map(str, rules)))
            if unknown := [name for name in names if name not in self.rule_rows]:
                raise ValueError(
                    f"rule {unknown[0]!r} is not in the rule table of {len(self.rule_rows)} rules; "
                    "pass the table (or bank) whose ids the questions use"
                )
            gold.append([self.rule_rows[name] for name in names])
        return gold

    def _retrievals(self, gold: Gold, ids: list[int], answer: str) -> tuple[list[int], Gold]:
        """Return the places of ``<search>`` in the answer, and the gold rules at the prompt and at each of them."""
        together = list(dict.fromkeys(rule for step in gold for rule in step))
        if not self.search:
            return [], [together]
        token = search_id(self.tokenizer, self.search_token)
        search = [place for place, id in enumerate(ids) if id == token]
        if ids[0] == token and len(search) == len(gold):
            # The opening <search> looks for the first step, the prompt for anything.
            return search, [together, *gold]
        if self.search_place == "premise":
            rules = [[rule] for step in gold for rule in step]  # in a step's order
            if len(search) == len(rules):
                return search, [together, *rules]
            raise ValueError(
                f"{len(rules)} rules of the steps need as many {self.search_token}, one behind the premise of each, as "
                f"other rows have them; the answer has {len(search)}: {answer!r}"
            )
        if len(search) != len(gold) - 1:
            raise ValueError(
                f"{len(gold)} steps need {len(gold) - 1} {self.search_token} tokens, in all but the first (and may "
                f"have one that opens the answer), the answer has {len(search)}: {answer!r}; steps must not contain "
                f"{self.search_token}"
            )
        return search, gold


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


@dataclass(frozen=True)
class Collator:
    """Turns draws of a `TrainingStream` into a batch."""

    encoder: Encoder  # rows to tokens
    pools: RulePools  # rules to choose from
    pool_size: int | tuple[int, int]  # M, or its range, drawn per batch

    def __call__(self, draws: Sequence[tuple[int, Row]]) -> dict[str, Tensor]:
        """Return input_ids, attention_mask, labels, question_BT, search_BS, gold_BSG, pool_M.

        ``pool_M`` holds rows of the rule table, ``gold_BSG`` places in the pool.
        """
        rows = [self.encoder(row) for _, row in draws]
        gold = [rule for row in rows for step in row.gold for rule in step]
        pool = self.pools.draw(gold, self.pool_size, draws[0][0])
        place = {int(rule): i for i, rule in enumerate(pool)}
        steps = max(len(row.gold) for row in rows)
        widest = max(len(step) for row in rows for step in row.gold)
        pad = self.encoder.tokenizer.pad_token_id
        if pad is None:
            pad = self.encoder.tokenizer.eos_token_id or 0
        ids_BT, mask_BT = padded([row.ids for row in rows], pad)
        more = (0, -ids_BT.shape[1] % WIDTH)
        ids_BT, mask_BT = nn.functional.pad(ids_BT, more, value=pad), nn.functional.pad(mask_BT, more)
        prompt_B1 = torch.tensor([[row.prompt] for row in rows])
        question_BT = torch.arange(ids_BT.shape[1]) < prompt_B1
        batch = {
            "input_ids": ids_BT,
            "attention_mask": mask_BT,
            "labels": ids_BT.masked_fill(question_BT | (mask_BT == 0), IGNORE),
            "question_BT": question_BT,
            "search_BS": torch.full((len(rows), steps - 1), -1),
            "gold_BSG": torch.full((len(rows), steps, widest), -1),
            "pool_M": torch.from_numpy(pool),
        }
        for b, row in enumerate(rows):
            batch["search_BS"][b, : len(row.search)] = torch.tensor(row.search, dtype=torch.long)
            if self.encoder.search_place == "premise":  # decoding writes it, see `SearchWriter`
                batch["labels"][b, row.search] = IGNORE
            for s, step in enumerate(row.gold):
                batch["gold_BSG"][b, s, : len(step)] = torch.tensor([place[rule] for rule in step])
        return batch
