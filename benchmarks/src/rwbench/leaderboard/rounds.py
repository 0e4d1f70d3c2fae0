"""Sealed rounds: a world from a secret seed whose hash is published first.

``new`` draws seed and salt and publishes their hash with the setting; ``seal`` publishes questions, rules and pools,
without answers; entries come in; ``reveal`` publishes seed and salt, and the hash of every entry so far; ``score``
compares them with the public world. Whoever doubts a round can make its world again from the seed: hash and files
must agree. A salt of 256 bits keeps the seed from being guessed from the hash.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from ruleworld_data.io import write_whole

from ..report.setting import macro
from ..score.results import Estimate
from ..spec import RunSpec, canonical_json
from .board import TRACKS, track_of
from .files import METADATA, RESULTS, read_folder
from .judge import PUBLIC_SEED, SPLITS, Judge, pool_design
from .kit import answer_kit, kit_spec, write_kit
from .metadata import Metadata
from .records import read_prediction_file
from .submit import json_bytes
from .validate import read_claimed, validate

ROUND, KIT, ENTRIES, SCORES = "round.json", "kit", "entries", "scores.json"
NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


class Secret(BaseModel):
    """What `new_round` keeps from the public: a world seed below 2**63 and 32 random bytes in hexadecimal."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    seed: int
    salt: str


class Round(BaseModel):
    """round.json: all of it public.

    Attributes
    ----------
    name, scale, split, pool_size, data
        The setting; ``data`` is the generator's version.
    commitment : str
        sha256 over the canonical JSON of the setting, seed and salt.
    opened : str
    sealed : dict or None
        Time, and sha256 of the questions, pools and rules.
    revealed : dict or None
        Time, seed, salt, and sha256 of every entry.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    scale: str
    split: str
    pool_size: int
    data: str
    commitment: str
    opened: str
    sealed: dict[str, str] | None = None
    revealed: dict[str, Any] | None = None
    schema_version: int = 1

    @property
    def setting(self) -> dict[str, Any]:
        """What is committed to, beside seed and salt."""
        return self.model_dump(include={"name", "scale", "split", "pool_size", "data"})

    @property
    def seed(self) -> int:
        """The revealed seed; a ValueError before the reveal."""
        if self.sealed is None or self.revealed is None:
            raise ValueError(f"round {self.name} is not revealed; first: rwbench round reveal")
        return self.revealed["seed"]

    def check(self, seed: Any, salt: Any) -> None:
        """Raise ValueError unless seed and salt are the ones that were committed to."""
        found = commitment(self.setting, seed, salt)
        if found != self.commitment:
            raise ValueError(
                f"seed and salt have the hash {found[:16]}..., round {self.name} was opened with "
                f"{self.commitment[:16]}...: this is not its secret, or {ROUND} was changed"
            )


def commitment(setting: dict[str, Any], seed: int, salt: str) -> str:
    """Return the hash that is published before anything else."""
    return hashlib.sha256(canonical_json({**setting, "seed": seed, "salt": salt}).encode()).hexdigest()


def new_round(folder: Path, secret_file: Path, scale: str, split: str, pool_size: int) -> Round:
    """Draw a secret, write it to ``secret_file`` and its hash to ``folder``.

    Raises
    ------
    ValueError
        If the name or setting is not allowed, or either file is there already.
    """
    if not NAME.fullmatch(folder.name):
        raise ValueError(
            f"a round is named with a-z, 0-9, dot and hyphen, got {folder.name!r}; for example 2026-1"
        )
    if split not in SPLITS:
        raise ValueError(f"split must be {' or '.join(SPLITS)}, got {split!r}")
    for path in (folder / ROUND, secret_file):
        if path.exists():
            raise ValueError(f"{path} is there already; choose another name")
    seed = PUBLIC_SEED
    while seed == PUBLIC_SEED:
        seed = secrets.randbits(63)
    data = kit_spec(pool_size, scale, split, seed=seed).data
    setting: dict[str, Any] = {
        "name": folder.name,
        "scale": scale,
        "split": split,
        "pool_size": pool_size,
        "data": data,
    }
    secret = Secret(name=folder.name, seed=seed, salt=secrets.token_hex(32))
    made = Round(**setting, commitment=commitment(setting, secret.seed, secret.salt), opened=_now())
    # The secret first: a hash without its secret would be a round that nobody can open.
    secret_file.touch(mode=0o600, exist_ok=False)
    write_whole(secret_file, json_bytes(secret.model_dump()))
    secret_file.chmod(0o600)
    folder.mkdir(parents=True, exist_ok=True)
    return _write(folder, made)


def seal_round(folder: Path, secret_file: Path) -> Round:
    """Write the round's kit (see `rwbench.leaderboard.kit`) and publish its hashes."""
    found, secret = read_round(folder), read_secret(secret_file)
    if found.sealed is not None:
        raise ValueError(
            f"round {found.name} was sealed on {found.sealed['time']}; its kit is in {folder / KIT}"
        )
    found.check(secret.seed, secret.salt)
    hashes = kit_hashes(found, secret.seed, folder / KIT)
    (folder / ENTRIES).mkdir(exist_ok=True)
    return _write(folder, found.model_copy(update={"sealed": {"time": _now(), **hashes}}))


def answer_round(folder: Path, submission: Path) -> tuple[Path, int]:
    """Answer a round's kit with the method of a submission of ours; return the entry's file and its answers."""
    read_round(folder)
    files = read_folder(submission)
    # Not every ceiling would fail: one that puts the gold rules in the prompt would go on with none.
    if Metadata.from_yaml(files[METADATA]).kind == "ceiling":
        raise ValueError(
            f"{submission.name} is a ceiling: it looks at gold data, which a kit does not hold; enter a contender "
            "or a floor"
        )
    spec = Judge().check_spec(read_claimed(files[RESULTS])["spec"])
    out = folder / ENTRIES / f"{submission.name}.jsonl"
    return out, answer_kit(folder / KIT, spec, out)


def reveal_round(folder: Path, secret_file: Path) -> Round:
    """Publish seed and salt, and the hashes of the entries: what comes later does not count."""
    found, secret = read_round(folder), read_secret(secret_file)
    if found.sealed is None:
        raise ValueError(f"round {found.name} is not sealed; first: rwbench round seal {folder}")
    if found.revealed is not None:
        raise ValueError(f"round {found.name} was revealed on {found.revealed['time']}")
    found.check(secret.seed, secret.salt)
    entries = {path.stem: _sha256(path) for path in entry_files(folder)}
    revealed = {"time": _now(), "seed": secret.seed, "salt": secret.salt, "entries": entries}
    return _write(folder, found.model_copy(update={"revealed": revealed}))


def verify_round(folder: Path) -> Round:
    """Make a revealed round's world again and return the round.

    Raises
    ------
    ValueError
        If seed and salt are not those of the published hash, the kit is not that world's, or an entry was changed or
        came after the reveal.
    """
    found = read_round(folder)
    seed, revealed, sealed = found.seed, found.revealed or {}, found.sealed or {}
    found.check(seed, revealed["salt"])
    with tempfile.TemporaryDirectory() as place:
        hashes = kit_hashes(found, seed, Path(place))
    for name, value in hashes.items():
        if sealed.get(name) != value:
            raise ValueError(
                f"{name} of round {found.name} was published with sha256 {str(sealed.get(name))[:16]}..., "
                f"its seed gives {value[:16]}...: entrants answered another world"
            )
    for path in entry_files(folder):
        if revealed["entries"].get(path.stem) != _sha256(path):
            raise ValueError(
                f"{path} was changed or added after the reveal and cannot count; restore its bytes, or move it away"
            )
    return found


def score_round(folder: Path, submissions: Path) -> dict[str, Any]:
    """Score every entry of a revealed round and write scores.json.

    Parameters
    ----------
    folder : Path
        The round.
    submissions : Path
        Folder of submissions. An entry is named like the submission that it is compared with; method, representation
        and pool size are that submission's.

    Returns
    -------
    dict
        ``round``, ``seed`` and ``scores``: per entry ``public`` (the submission), ``metric``, the estimates
        ``public_score`` and ``sealed_score``, and ``drop`` (public minus sealed, with its 95 % interval).

    Raises
    ------
    ValueError
        If the round does not verify, or an entry cannot be scored; the message names file and line.
    """
    found = verify_round(folder)
    judge = Judge((PUBLIC_SEED, found.seed))
    scores = [_score(found, path, submissions, judge) for path in entry_files(folder)]
    scores.sort(key=lambda score: (-score["sealed_score"]["value"], score["public"]))
    done = {"round": found.name, "seed": found.seed, "scores": scores}
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


def kit_hashes(found: Round, seed: int, folder: Path) -> dict[str, str]:
    """Write the kit of a round's world and return its hashes."""
    spec = kit_spec(found.pool_size, found.scale, found.split, seed=seed)
    if spec.data != found.data:
        raise ValueError(
            f"round {found.name} is of generator version {found.data}, this is {spec.data}; install that version"
        )
    return write_kit(folder, Judge((seed,)), spec)


def entry_files(folder: Path) -> list[Path]:
    """Return the entries of a round: one file per submission, named like it."""
    return sorted((folder / ENTRIES).glob("*.jsonl"))


def read_round(folder: Path) -> Round:
    """Read a round's public file; a ValueError or FileNotFoundError says what is wrong."""
    path = folder / ROUND
    if not path.is_file():
        raise FileNotFoundError(f"no {ROUND} in {folder}; open a round first: rwbench round new {folder}")
    try:
        return Round.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not a round's file ({error})") from None


def read_secret(path: Path) -> Secret:
    """Read a secret file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"no secret at {path}; give the file that `rwbench round new` wrote with --secret"
        )
    try:
        return Secret.model_validate_json(path.read_bytes())
    except ValueError:
        # Without the cause: its text would show the secret.
        raise ValueError(f"{path} is not a secret that `rwbench round new` wrote") from None


def _score(found: Round, path: Path, submissions: Path, judge: Judge) -> dict[str, Any]:
    if not (submissions / path.stem).is_dir():
        raise ValueError(f"{path} is named after no submission; there is no {submissions / path.stem}")
    public = validate(submissions / path.stem, judge)
    setting = (public.spec.scale, public.spec.split, public.spec.pool_size)
    if setting != (found.scale, found.split, found.pool_size):
        raise ValueError(
            f"{path.stem} has scale, split and pool size {setting}, round {found.name} has "
            f"{(found.scale, found.split, found.pool_size)}; enter with a submission of the same setting"
        )
    spec = RunSpec.from_dict(
        public.spec.to_dict() | pool_design(found.pool_size, found.scale) | {"world_seed": found.seed}
    )
    try:
        samples = judge.samples(spec, read_prediction_file(path), path.name)
    except ValueError as error:
        raise ValueError(f"{path} cannot be scored:\n{error}") from None
    metric = TRACKS[track_of(public)]
    before = macro(public.results, metric)
    after = macro(judge.results(spec, samples, public.results["method"]), metric)
    if before is None or after is None:
        raise ValueError(f"{public.folder}: the entry has no {metric}, which its submission is ranked by")
    scores = {"public_score": before, "sealed_score": after, "drop": drop(before, after)}
    return {"public": public.folder, "metric": metric, **scores}


def _write(folder: Path, found: Round) -> Round:
    write_whole(folder / ROUND, json_bytes(found.model_dump()))
    return found


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
