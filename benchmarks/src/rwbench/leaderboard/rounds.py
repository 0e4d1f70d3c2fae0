"""Sealed rounds: a world from a secret seed whose hash is published first.

``new`` draws seed and salt and publishes their hash with the setting; ``seal`` publishes questions, rules and pools,
without answers; ``enter`` hashes an entry, and only the hash is handed in, so that nobody can copy it; ``reveal``
publishes seed and salt, and ends the list of hashes; then entries are opened, and ``score`` compares them with the
public world. Whoever doubts a round can make its world again from the seed: hash and files
must agree. A salt of 256 bits keeps the seed from being guessed from the hash.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from ruleworld_data.io import whole_file, write_whole

from ..report.setting import macro
from ..score.results import Estimate
from ..spec import canonical_json
from .board import TRACKS, track_of
from .files import FOLDER_NAME, json_bytes
from .judge import PUBLIC_SEED, SPLITS, Judge, board_spec
from .kit import METHOD, write_kit
from .problems import Model
from .records import read_predictions
from .submissions import validate

ROUND, KIT, ENTRIES, SCORES = "round.json", "kit", "entries", "scores.json"
NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Secret(_File):
    """What `new_round` keeps from the public: a world seed below 2**63 and 32 random bytes in hexadecimal."""

    seed: int
    salt: str


class Reveal(Secret):
    """What ends a round: its secret, and the `entry_sha256` of every entry."""

    time: str
    entries: dict[str, str]


class Round(_File):
    """round.json: all of it public."""

    name: str
    scale: str
    split: str
    pool_size: int
    data: str  # the generator's version
    commitment: str  # sha256 over the canonical JSON of what stands above, seed and salt
    opened: str
    sealed: dict[str, str] | None = None  # time, and sha256 of questions, pools and rules
    revealed: Reveal | None = None
    schema_version: int = 1

    def check(self, secret: Secret) -> None:
        """Raise ValueError unless seed and salt are the ones that were committed to."""
        setting = self.model_dump(include={"name", "scale", "split", "pool_size", "data"})
        if (digest := commitment(setting, secret)) != self.commitment:
            raise ValueError(
                f"seed and salt have the hash {digest[:16]}..., round {self.name} was opened with "
                f"{self.commitment[:16]}...: this is not its secret, or {ROUND} was changed"
            )

    def write_kit(self, seed: int, folder: Path) -> dict[str, str]:
        """Write the kit of the round's world and return its hashes."""
        spec = board_spec(METHOD, "nl", self.pool_size, self.scale, self.split, seed=seed, data=self.data)
        return write_kit(folder, Judge((seed,)), spec)


def commitment(setting: dict[str, Any], secret: Secret) -> str:
    """Return the hash that is published before anything else."""
    hidden = {"seed": secret.seed, "salt": secret.salt}
    return hashlib.sha256(canonical_json(setting | hidden).encode()).hexdigest()


def new_round(folder: Path, secret_file: Path, scale: str, split: str, pool_size: int) -> Round:
    """Draw a secret, write it to ``secret_file`` and its hash to ``folder``; neither file may be there already."""
    if not NAME.fullmatch(folder.name):
        raise ValueError(
            f"a round is named with a-z, 0-9, dot and hyphen, got {folder.name!r}; for example 2026-1"
        )
    if split not in SPLITS:
        raise ValueError(f"split must be {' or '.join(SPLITS)}, got {split!r}")
    for path in (folder / ROUND, secret_file):
        if path.exists():
            raise ValueError(f"{path} is there already; choose another name")
    secret = Secret(seed=secrets.randbits(63) or 1, salt=secrets.token_hex(32))
    data = board_spec(METHOD, "nl", pool_size, scale, split, seed=secret.seed).data
    setting: dict[str, Any] = {
        "name": folder.name,
        "scale": scale,
        "split": split,
        "pool_size": pool_size,
        "data": data,
    }
    public = commitment(setting, secret)
    this = Round(**setting, commitment=public, opened=_now())
    # The secret first: a hash without its secret would be a round that nobody can open.
    with os.fdopen(os.open(secret_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(json_bytes(secret.model_dump()))
        file.flush()
        os.fsync(file.fileno())
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / ROUND, json_bytes(this.model_dump()))
    return this


def seal_round(folder: Path, secret_file: Path) -> Round:
    """Write the round's kit (see `rwbench.leaderboard.kit`) and publish its hashes."""
    with _step(folder, secret_file) as (this, secret):
        if this.sealed is not None:
            raise ValueError(
                f"round {this.name} was sealed on {this.sealed['time']}; its kit is in {folder / KIT}"
            )
        this.check(secret)
        hashes = this.write_kit(secret.seed, folder / KIT)
        (folder / ENTRIES).mkdir(exist_ok=True)
        this.sealed = {"time": _now(), **hashes}
    return this


def enter_round(folder: Path, predictions: Path) -> Path:
    """Write the hash of an entry, whose file is named after its submission, to a round and return the hash's path."""
    this = read_round(folder)
    if this.sealed is None or this.revealed is not None:
        raise ValueError(f"round {this.name} takes entries after it is sealed and before it is revealed")
    if predictions.suffix != ".jsonl" or not FOLDER_NAME.fullmatch(predictions.stem):
        raise ValueError(
            f"an entry is named after its submission, SUBMISSION.jsonl, got {predictions.name!r}"
        )
    read_predictions(predictions)
    path = folder / ENTRIES / f"{predictions.stem}.sha256"
    write_whole(path, f"{entry_sha256(predictions)}\n".encode())
    return path


def entry_sha256(path: Path) -> str:
    """Return the hash of an entry's name and bytes: with the name, another's hash is of no use."""
    return hashlib.sha256(f"{path.stem}\n".encode() + path.read_bytes()).hexdigest()


def reveal_round(folder: Path, secret_file: Path) -> Reveal:
    """Publish seed and salt, and end the list of hashes: what comes later does not count."""
    with _step(folder, secret_file) as (this, secret):
        if this.sealed is None:
            raise ValueError(f"round {this.name} is not sealed; first: rwbench round seal {folder}")
        if this.revealed is not None:
            raise ValueError(f"round {this.name} was revealed on {this.revealed.time}")
        this.check(secret)
        for path in entry_files(folder):
            raise ValueError(
                f"{path} is open before the reveal, for all to copy; keep it, and hand in its hash"
            )
        hashes = sorted((folder / ENTRIES).glob("*.sha256"))
        entries = {path.stem: path.read_bytes()[:80].decode("ascii", "replace").strip() for path in hashes}
        for path in hashes:
            if not re.fullmatch("[0-9a-f]{64}", entries[path.stem]):
                raise ValueError(f"{path} is no hash; write it with rwbench round enter, or move it away")
        this.revealed = Reveal(time=_now(), seed=secret.seed, salt=secret.salt, entries=entries)
    return this.revealed


def verify_round(folder: Path) -> tuple[Round, Reveal]:
    """Make a revealed round's world again and return the round.

    A ValueError if seed and salt are not those of the published hash, the kit is not that world's, or an entry was
    changed or its hash came after the reveal.
    """
    this = read_round(folder)
    sealed, revealed = this.sealed, this.revealed
    if sealed is None or revealed is None:
        raise ValueError(f"round {this.name} is not revealed; first: rwbench round reveal {folder}")
    this.check(revealed)
    with tempfile.TemporaryDirectory() as place:
        hashes = this.write_kit(revealed.seed, Path(place))
    for name, value in hashes.items():
        if sealed.get(name) != value:
            raise ValueError(
                f"{name} of round {this.name} was published with sha256 {str(sealed.get(name))[:16]}..., "
                f"its seed gives {value[:16]}...: entrants answered another world"
            )
    for path in entry_files(folder):
        if revealed.entries.get(path.stem) != entry_sha256(path):
            raise ValueError(
                f"{path} is not what a hash was handed in of before the reveal, and cannot count; restore its bytes, "
                "or move it away"
            )
    return this, revealed


def score_round(folder: Path, submissions: Path) -> dict[str, Any]:
    """Score every entry of a revealed round against the submission that it is named after, and write scores.json.

    Returns
    -------
    dict
        ``round``, ``seed``, ``unopened`` (submissions of which there is a hash alone) and ``scores``:
        per entry ``public`` (the submission), ``metric``, the estimates
        ``public_score`` and ``sealed_score``, and ``drop`` (public minus sealed, with its 95 % interval).
    """
    this, revealed = verify_round(folder)
    judge = Judge((PUBLIC_SEED, revealed.seed))
    opened = entry_files(folder)
    scores = [_score(this, revealed.seed, path, submissions, judge) for path in opened]
    unopened = sorted(revealed.entries.keys() - {path.stem for path in opened})
    scores.sort(key=lambda score: (-score["sealed_score"]["value"], score["public"]))
    done = {"round": this.name, "seed": revealed.seed, "unopened": unopened, "scores": scores}
    write_whole(folder / SCORES, json_bytes(done))
    return done


def drop(public: Estimate, sealed: Estimate) -> dict[str, float]:
    """Return public minus sealed with its 95 % interval, from two independent estimates and their intervals.

    Newcombe's square-and-add rule (1998, method 10): the two worlds share no question, so nothing is paired. Unlike a
    normal interval it has a width where both estimates are 0 or 1.
    """
    value = public["value"] - sealed["value"]
    low = math.hypot(public["value"] - public["ci_low"], sealed["ci_high"] - sealed["value"])
    high = math.hypot(public["ci_high"] - public["value"], sealed["value"] - sealed["ci_low"])
    values = {"value": value, "ci_low": value - low, "ci_high": value + high}
    return {name: round(number, 6) for name, number in values.items()}


def entry_files(folder: Path) -> list[Path]:
    """Return the opened entries of a round: one file per submission, named like it."""
    return sorted((folder / ENTRIES).glob("*.jsonl"))


def read_round(folder: Path) -> Round:
    """Read a round's public file; a ValueError or FileNotFoundError says what is wrong."""
    return _read(Round, folder / ROUND, f"open a round first: rwbench round new {folder}")


@contextmanager
def _step(folder: Path, secret_file: Path) -> Iterator[tuple[Round, Secret]]:
    """Give a round and its secret, and write the round down as the block leaves it; two steps at once take turns."""
    secret = _read(Secret, secret_file, "give the file that `rwbench round new` wrote with --secret")
    read_round(folder)  # before a temporary file is made beside it
    with whole_file(folder / ROUND) as part:
        this = read_round(folder)
        yield this, secret
        part.write_bytes(json_bytes(this.model_dump()))


def _read(model: type[Model], path: Path, hint: str) -> Model:
    name = model.__name__.lower()
    if not path.is_file():
        raise FileNotFoundError(f"no {name} at {path}; {hint}")
    try:
        return model.model_validate_json(path.read_bytes())
    except ValueError:
        # Without the cause: its text would show a secret.
        raise ValueError(f"{path} is not a {name} as `rwbench round` writes it; restore the file") from None


def _score(this: Round, seed: int, path: Path, submissions: Path, judge: Judge) -> dict[str, Any]:
    if not (submissions / path.stem).is_dir():
        raise ValueError(f"{path} is named after no submission; there is no {submissions / path.stem}")
    public = validate(submissions / path.stem, judge)
    setting = (public.spec.data, public.spec.scale, public.spec.split, public.spec.pool_size)
    if setting != (this.data, this.scale, this.split, this.pool_size):
        raise ValueError(
            f"{path.stem} has data, scale, split and pool size {setting}, round {this.name} has "
            f"{(this.data, this.scale, this.split, this.pool_size)}; enter with a submission of the same setting"
        )
    spec = replace(public.spec, world_seed=seed)
    try:
        samples = judge.samples(spec, read_predictions(path), path.name)
    except ValueError as error:
        raise ValueError(f"{path} cannot be scored:\n{error}") from None
    metric = TRACKS[track_of(public)]
    before = macro(public.results, metric)
    after = macro(judge.results(spec, samples, public.entry.name), metric)
    if before is None or after is None:
        raise ValueError(f"{public.folder}: the entry has no {metric}, which its submission is ranked by")
    scores = {"public_score": before, "sealed_score": after, "drop": drop(before, after)}
    return {"public": public.folder, "metric": metric, **scores}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
