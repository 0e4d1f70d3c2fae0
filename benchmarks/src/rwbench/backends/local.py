"""Local models through transformers: batched, padded on the left, greedy.

Questions on one pool share the rules before them, so the rules' keys and values are computed once, copied per batch,
and only the questions are read anew; the next line of a conversation goes on from those of the one before
(`KeptStates`). A row whose answer has ended leaves the batch. The texts are those of reading every
prompt whole and alone (tests say so), but for near ties that other shapes round in another way.
"""

import copy
import hashlib
import importlib.util
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import lru_cache
from itertools import dropwhile
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field
from ruleworld_data.prompts import Prompt, Template, answer_template

from ..models import base_folder, fingerprint, model_template
from ..registry import Positive, check_same
from ..spec import DATA_VERSION
from . import Backend, Completion, Decoding, Finish, component, cut
from .rows import KeptStates, NoRequest, Row, as_written, encoded, marked, parts_of, release_memory

DEVICE = "_RWBENCH_DEVICE"
"""Variable of the environment that says where models run; where nothing does, on the accelerator there is."""

SMALL = 1 << 31
"""Bytes of weights up to which a model runs in float32 everywhere."""

PIECE = 64
"""Tokens after which rows whose answer has ended leave the batch: else all are computed until the longest ends."""

MOST_ANSWERED = 1 << 12
"""Batches whose answers are remembered; the oldest goes first."""

_ANSWERED: dict[bytes, tuple[Completion, ...]] = {}


@component
class Local(Backend):
    """A causal language model in a folder."""

    name = "local"

    model: str = ""  # a shipped model's name or a folder; see `rwbench.models`
    weights: str = ""  # fingerprint of the folder, from `of`: other files are another run
    prompt: str = ""  # id of its prompt template, likewise
    batch_size: Positive = 16  # prompts per forward
    temperature: Annotated[float, Field(ge=0, le=0)] = 0.0  # greedy, the one way that a local model decodes
    # In which numbers it runs; empty: see `load_fresh`.
    dtype: Literal["", "float32", "bfloat16", "float16"] = field(default="", metadata={"later": True})

    @classmethod
    def of(cls, model: str, version: str = DATA_VERSION, **changes: Any) -> Self:
        """Return the backend of a model, with fingerprints of its files, to be asked about a version of the data."""
        prompt = model_template(model, answer_template(version).id).id
        return cls(model, fingerprint(base_folder(model)), prompt, **changes)

    @property
    def label(self) -> str:
        """Name in reports."""
        return self.model.rstrip("/").split("/")[-1]

    @property
    def batch(self) -> int:
        """Prompts per forward."""
        return self.batch_size

    @property
    def template(self) -> Template:
        """The model's own prompt template, else this package's."""
        return model_template(self.model, self.prompt)

    def missing(self) -> str | None:
        """What to install, if anything."""
        found = all(importlib.util.find_spec(package) for package in ("torch", "transformers"))
        return None if found else 'pip install "rwbench[models]"'

    def prepare(self) -> None:
        """Check the files and load the model."""
        self.check()
        load(self.model, self.dtype)

    def check(self) -> None:
        """Raise a ValueError if the files are not those that the spec names."""
        check_same("prompt template", self.prompt, self.template.id)
        check_same(f"model {self.model!r} with weights", self.weights, fingerprint(base_folder(self.model)))

    def as_text(self, text: str) -> str:
        """Return a text with marks at the control tokens that it spells."""
        from dynarule.tokenizer import as_text

        return as_text(load_tokenizer(base_folder(self.model)), text)

    def without_marks(self, begun: str) -> str:
        """Return a text without such marks."""
        from dynarule.tokenizer import without_marks

        return without_marks(begun)

    def excess(self, prompt: Prompt, decoding: Decoding) -> int:
        """Return how many tokens a prompt and its answer have too many for the model."""
        return self._excess(self._encode(prompt), decoding)

    def _excess(self, row: Row, decoding: Decoding) -> int:
        tokens = len(row.ids) + decoding.max_new_tokens
        return max(0, tokens - (_positions(self.model) or tokens))

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yield the answers of one batch.

        A batch that this process has answered before, such as the gold rules alone for pools of another size, is not
        answered again; its answers come with the seconds that they took.
        """
        batch = repr((self, decoding, *prompts)).encode()
        digest = hashlib.blake2b(batch, digest_size=16).digest()  # the prompts themselves may be megabytes
        if digest not in _ANSWERED:
            while len(_ANSWERED) >= MOST_ANSWERED:
                del _ANSWERED[next(iter(_ANSWERED))]
            _ANSWERED[digest] = tuple(self._complete(prompts, decoding))
        yield from _ANSWERED[digest]

    def _complete(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        start = time.perf_counter()
        encodings = [self._encode(prompt) for prompt in prompts]
        fits = [not self._excess(row, decoding) for row in encodings]
        rows = [row for row, fit in zip(encodings, fits, strict=True) if fit]
        written = iter([done for part in parts_of(rows) for done in self._answers(part, decoding)])
        if decoding.requests:
            _kept_states(self.model, self.dtype).turn()
        share = (time.perf_counter() - start) / max(len(rows), 1)
        release_memory()
        for row, fit in zip(encodings, fits, strict=True):
            if not fit:
                yield Completion(finish="context", prompt_tokens=len(row.ids))
                continue
            yield replace(next(written), prompt_tokens=len(row.ids), seconds=share)

    def _encode(self, prompt: Prompt) -> Row:
        tokenizer = load_tokenizer(base_folder(self.model))
        text = marked(tokenizer, prompt)
        chat = bool(self.template.chat and getattr(tokenizer, "chat_template", None))
        if chat:
            turn = [{"role": "user", "content": text}]
            text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        return Row(encoded(tokenizer, text + prompt.begun, special=not chat), bool(prompt.begun))

    def _answers(self, rows: Sequence[Row], decoding: Decoding) -> list[Completion]:
        """Return what is written to each row."""
        import torch

        from dynarule import growing_cache

        model, tokenizer = load(self.model, self.dtype)
        cache, known = growing_cache(model), [0] * len(rows)
        if cache is not None:  # what was read and written is not read again
            known = _kept_states(self.model, self.dtype).fill(model, cache, rows, decoding.requests)
        head, longest = max(known), max(len(row.ids) - n for row, n in zip(rows, known, strict=True))
        pad = _pad_id(tokenizer)
        padded, mask = [], []
        for row, n in zip(rows, known, strict=True):
            before, fill = head - n, longest - len(row.ids) + n
            padded.append([pad] * before + row.ids[:n] + [pad] * fill + row.ids[n:])
            mask.append([0] * before + [1] * n + [0] * fill + [1] * (len(row.ids) - n))
        options: dict[str, Any] = {"do_sample": False}
        if self.template.request and not decoding.requests:
            opening = [place for place, row in enumerate(rows) if not row.begun]
            options["logits_processor"] = [NoRequest(self.template.request, tokenizer, opening)]
        if decoding.stop:
            options |= {"stop_strings": list(decoding.stop), "tokenizer": tokenizer}
        options |= {"pad_token_id": pad} | ({} if cache is None else {"past_key_values": cache})
        with torch.no_grad():
            ids_BT, mask_BT = (torch.tensor(each, device=model.device) for each in (padded, mask))
            written = self._written(ids_BT, mask_BT, decoding, options)
        return [self._read(new, decoding) for new in written]

    def _written(
        self, ids_BT: Any, mask_BT: Any, decoding: Decoding, options: dict[str, Any]
    ) -> list[list[int]]:
        """Return each row's new tokens; rows whose answer has ended leave the batch, and the cache, on the way."""
        import torch
        from torch import nn

        model, _ = load(self.model, self.dtype)
        written: list[list[int]] = [[] for _ in ids_BT]
        going, left = list(range(len(written))), decoding.max_new_tokens
        piece = PIECE if "past_key_values" in options else left
        while going:
            before, most = ids_BT.shape[1], min(piece, left)
            ids_BT = model.generate(ids_BT, attention_mask=mask_BT, max_new_tokens=most, **options)
            for row, new in zip(going, ids_BT[:, before:].tolist(), strict=True):
                written[row] += new
            count = ids_BT.shape[1] - before
            mask_BT, left = nn.functional.pad(mask_BT, (0, count), value=1), left - count
            over = count < most or not left
            answers = [self._read(written[row], decoding) for row in going]
            stay = [at for at, done in enumerate(answers) if done.finish == "length" and not over]
            if decoding.requests and (cache := options.get("past_key_values")) is not None:
                for at in range(len(going)):
                    if at not in stay:
                        _kept_states(self.model, self.dtype).keep(cache, at, ids_BT[at], mask_BT[at])
            if stay and len(stay) < len(going):
                stay_B = torch.tensor(stay, dtype=torch.long, device=model.device)
                ids_BT, mask_BT = ids_BT[stay_B], mask_BT[stay_B]
                options["past_key_values"].batch_select_indices(stay_B)
            going = [going[at] for at in stay]
        return written

    def _read(self, tokens: list[int], decoding: Decoding) -> Completion:
        model, tokenizer = load(self.model, self.dtype)
        own = model.generation_config.eos_token_id
        ends = {*(own if isinstance(own, list) else [own]), tokenizer.eos_token_id}
        length = next((place + 1 for place, token in enumerate(tokens) if token in ends), len(tokens))
        ended = length < len(tokens) or (tokens and tokens[-1] in ends)
        kept = tokens[:length]
        text = tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        whole = as_written(tokenizer, kept, text)
        # A stop string may hold special tokens, which the text does not show.
        short, before = cut(text, decoding.stop), cut(whole, decoding.stop)
        stopped = before != whole or short != text
        if stopped:  # what fills a row behind a stop string was not written
            pad = _pad_id(tokenizer)
            length = len(list(dropwhile(lambda token: token == pad, reversed(kept))))
        finish: Finish = "stop" if ended or stopped else "length"
        return Completion(short, finish, completion_tokens=length, marked=before)


def _pad_id(tokenizer: Any) -> int:
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0


@lru_cache(maxsize=1)
def _kept_states(name: str, dtype: str) -> KeptStates:
    """Return what a model's latest batches have kept."""
    return KeptStates()


@lru_cache(maxsize=1)
def load(name: str, dtype: str = "") -> tuple[Any, Any]:
    """Return a model and its tokenizer, on the accelerator where there is one; the one before is let go."""
    return load_fresh(base_folder(name), dtype=dtype)


def load_fresh(folder: Path, tokenizer_folder: Path | None = None, dtype: str = "") -> tuple[Any, Any]:
    """Load a model and a tokenizer from folders: on a CPU, and where it is small, in float32, or raise a ValueError.

    Many CPUs have no arithmetic in bfloat16, which made prompts five times as slow there, and those that have it differ
    in more near ties of greedy decoding. What float32 costs a small model on an accelerator is little, and it answers
    there as it does on a CPU.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)  # of transformers to PEFT
    tokenizer = copy.deepcopy(load_tokenizer(tokenizer_folder or folder))  # an adapter adds a token
    device = os.environ.get(DEVICE) or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or usual_dtype(folder, device != "cpu")
    options: dict[str, Any] = {"dtype": dtype, "output_loading_info": True}
    with _mistakes_named(folder):
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False, **options)
    model, report = loaded
    if missing := sorted(report["missing_keys"]):  # they would be drawn at random
        raise ValueError(f"{folder} lacks {len(missing)} weights, such as {missing[0]}; copy the model again")
    # Of how a checkpoint wants to be decoded only its ends count: all models decode alike.
    ends = ("bos_token_id", "eos_token_id", "pad_token_id")
    kept = {name: getattr(model.generation_config, name) for name in ends}
    model.generation_config = GenerationConfig(**kept)
    try:
        return model.to(device).eval(), tokenizer
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(
            f"no model runs on the device {device!r} here ({first:.200}); type --device cpu"
        ) from None


def usual_dtype(folder: Path, gpu: bool) -> Any:
    """Return in which numbers a model runs: its own if it is large and on an accelerator."""
    import torch

    small = sum(path.stat().st_size for path in folder.glob("*.safetensors")) <= SMALL
    return torch.float32 if small or not gpu else "auto"


@lru_cache(maxsize=4)
def load_tokenizer(folder: Path) -> Any:
    """Load a tokenizer; a ValueError if that is not possible."""
    from dynarule.tokenizer import load_tokenizer as load_saved

    with _mistakes_named(folder):
        return load_saved(folder)


@contextmanager
def _mistakes_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(
            f"cannot load the model in {folder} ({first}); give a causal model and tokenizer saved by transformers"
        ) from None


@lru_cache(maxsize=4)
def _positions(name: str) -> int | None:
    """Read the context length without loading weights."""
    from transformers import AutoConfig

    with _mistakes_named(folder := base_folder(name)):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return getattr(config, "max_position_embeddings", None)
