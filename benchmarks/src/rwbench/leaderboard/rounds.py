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
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict
from ruleworld_data.io import file_digest, whole_file, write_whole

from ..backends import Backend
from ..report.setting import macro
from ..score.results import Estimate
from ..spec import RunSpec, canonical_json
from .board import TRACKS, track_of
from .files import METADATA, RESULTS, read_folder
from .judge import PUBLIC_SEED, SPLITS, Judge, pool_design
from .kit import answer_kit, kit_spec, write_kit
from .metadata import Metadata
from .parsing import quote
from .records import read_prediction_file
from .submit import json_bytes
from .validate import read_claimed, validate

ROUND, KIT, ENTRIES, SCORES = "round.json", "kit", "entries", "scores.json"
NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Secret(_File):
    """What `new_round` keeps from the public: a world seed below 2**63 and 32 random bytes in hexadecimal."""

    name: str
    seed: int
    salt: str


class Reveal(_File):
    """What ends a round: its secret, and the sha256 of every entry."""

    time: str
    seed: int
    salt: str
    entries: dict[str, str]


class Round(_File):
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
    revealed : Reveal or None
    """

    name: str
    scale: str
    split: str
    pool_size: int
    data: str
    commitment: str
    opened: str
    sealed: dict[str, str] | None = None
    revealed: Reveal | None = None
    schema_version: int = 1

    def check(self, secret: Secret | Reveal) -> None:
        """Raise ValueError unless seed and salt are the ones that were committed to."""
        setting = self.model_dump(include={"name", "scale", "split", "pool_size", "data"})
        found = commitment(setting, secret.seed, secret.salt)
        if found != self.commitment:
            raise ValueError(
                f"seed and salt have the hash {found[:16]}..., round {self.name} was opened with "
                f"{self.commitment[:16]}...: this is not its secret, or {ROUND} was changed"
            )


def commitment(setting: dict[str, Any], seed: int, salt: str) -> str:
    """Return the hash that is published before anything else."""
    return hashlib.sha256(canonical_json({**setting, "seed": seed, "salt": salt}).encode()).hexdigest()


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
    secret = Secret(name=folder.name, seed=secrets.randbits(63) or 1, salt=secrets.token_hex(32))
    data = kit_spec(pool_size, scale, split, seed=secret.seed).data
    setting = {"name": folder.name, "scale": scale, "split": split, "pool_size": pool_size, "data": data}
    public = commitment(setting, secret.seed, secret.salt)
    made = Round.model_validate({**setting, "commitment": public, "opened": _now()})
    # The secret first: a hash without its secret would be a round that nobody can open.
    secret_file.touch(mode=0o600, exist_ok=False)
    try:
        write_whole(secret_file, json_bytes(secret.model_dump()))
        secret_file.chmod(0o600)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / ROUND, json_bytes(made.model_dump()))
        return made
    except OSError:  # a full disk: nothing was published, so the name stays free
        secret_file.unlink()
        raise


def seal_round(folder: Path, secret_file: Path) -> Round:
    """Write the round's kit (see `rwbench.leaderboard.kit`) and publish its hashes."""
    secret = read_secret(secret_file)

    def seal(found: Round) -> Round:
        if found.sealed is not None:
            raise ValueError(
                f"round {found.name} was sealed on {found.sealed['time']}; its kit is in {folder / KIT}"
            )
        found.check(secret)
        hashes = kit_hashes(found, secret.seed, folder / KIT)
        (folder / ENTRIES).mkdir(exist_ok=True)
        return found.model_copy(update={"sealed": {"time": _now(), **hashes}})

    return _change(folder, seal)


def answer_round(
    folder: Path, submission: Path, model: Backend | None = None, encoder: str = "minilm"
) -> tuple[Path, int]:
    """Answer a round's kit with the method of a submission; return the entry's file and its answers.

    ``model`` and ``encoder`` are what the method asks and embeds with. A submission is a stranger's: a folder or a
    server that it names is never used, and gets no key and no question. A ValueError if it is a ceiling, or of another
    model.
    """
    read_round(folder)
    files = read_folder(submission)
    # Not every ceiling would fail: one that puts the gold rules in the prompt would go on with none.
    if Metadata.from_yaml(files[METADATA]).kind == "ceiling":
        raise ValueError(
            f"{submission.name} is a ceiling: it looks at gold data, which a kit does not hold; enter a contender "
            "or a floor"
        )
    spec = Judge().check_spec(read_claimed(files[RESULTS])["spec"])
    spec = replace(spec, method=_with_own(spec.method, model, encoder))
    out = folder / ENTRIES / f"{submission.name}.jsonl"
    return out, answer_kit(folder / KIT, spec, out)


def reveal_round(folder: Path, secret_file: Path) -> Round:
    """Publish seed and salt, and the hashes of the entries: what comes later does not count."""
    secret = read_secret(secret_file)

    def reveal(found: Round) -> Round:
        if found.sealed is None:
            raise ValueError(f"round {found.name} is not sealed; first: rwbench round seal {folder}")
        if found.revealed is not None:
            raise ValueError(f"round {found.name} was revealed on {found.revealed.time}")
        found.check(secret)
        entries = {path.stem: file_digest(path) for path in entry_files(folder)}
        told = Reveal(time=_now(), seed=secret.seed, salt=secret.salt, entries=entries)
        return found.model_copy(update={"revealed": told})

    return _change(folder, reveal)


def verify_round(folder: Path) -> Round:
    """Make a revealed round's world again and return the round.

    A ValueError if seed and salt are not those of the published hash, the kit is not that world's, or an entry was
    changed or came after the reveal.
    """
    found = read_round(folder)
    sealed, revealed = found.sealed, found.revealed
    if sealed is None or revealed is None:
        raise ValueError(f"round {found.name} is not revealed; first: rwbench round reveal {folder}")
    found.check(revealed)
    with tempfile.TemporaryDirectory() as place:
        hashes = kit_hashes(found, revealed.seed, Path(place))
    for name, value in hashes.items():
        if sealed.get(name) != value:
            raise ValueError(
                f"{name} of round {found.name} was published with sha256 {str(sealed.get(name))[:16]}..., "
                f"its seed gives {value[:16]}...: entrants answered another world"
            )
    for path in entry_files(folder):
        if revealed.entries.get(path.stem) != file_digest(path):
            raise ValueError(
                f"{path} was changed or added after the reveal and cannot count; restore its bytes, or move it away"
            )
    return found


def score_round(folder: Path, submissions: Path) -> dict[str, Any]:
    """Score every entry of a revealed round and write scores.json.

    An entry is named like the submission, in ``submissions``, that it is compared with; method, representation and pool
    size are that submission's.

    It holds ``round``, ``seed`` and ``scores``: per entry ``public`` (the submission), ``metric``, the estimates
    ``public_score`` and ``sealed_score``, and ``drop`` (public minus sealed, with its 95 % interval). A ValueError
    names file and line of an entry that cannot be scored.
    """
    found = verify_round(folder)
    assert found.revealed is not None
    seed = found.revealed.seed
    judge = Judge((PUBLIC_SEED, seed))
    scores = [_score(found, seed, path, submissions, judge) for path in entry_files(folder)]
    scores.sort(key=lambda score: (-score["sealed_score"]["value"], score["public"]))
    done = {"round": found.name, "seed": seed, "scores": scores}
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
    return _read(Round, folder / ROUND, f"open a round first: rwbench round new {folder}")


def read_secret(path: Path) -> Secret:
    """Read a secret file."""
    return _read(Secret, path, "give the file that `rwbench round new` wrote with --secret")


Kind = TypeVar("Kind", bound=_File)


def _read(kind: type[Kind], path: Path, hint: str) -> Kind:
    if not path.is_file():
        raise FileNotFoundError(f"no {kind.__name__.lower()} at {path}; {hint}")
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValueError:
        # Without the cause: its text would show a secret.
        name = kind.__name__.lower()
        raise ValueError(f"{path} is not a {name} as `rwbench round` writes it; restore the file") from None


def _score(found: Round, seed: int, path: Path, submissions: Path, judge: Judge) -> dict[str, Any]:
    if not (submissions / path.stem).is_dir():
        raise ValueError(f"{path} is named after no submission; there is no {submissions / path.stem}")
    public = validate(submissions / path.stem, judge)
    setting = (public.spec.scale, public.spec.split, public.spec.pool_size)
    if setting != (found.scale, found.split, found.pool_size):
        raise ValueError(
            f"{path.stem} has scale, split and pool size {setting}, round {found.name} has "
            f"{(found.scale, found.split, found.pool_size)}; enter with a submission of the same setting"
        )
    sealed = pool_design(found.pool_size, found.scale) | {"world_seed": seed}
    spec = RunSpec.from_dict(public.spec.to_dict() | sealed)
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


def _with_own(value: Any, model: Backend | None, encoder: str) -> Any:
    """Return a method's dict with models and encoders that were chosen here, wherever it names one."""
    if isinstance(value, list):
        return [_with_own(part, model, encoder) for part in value]
    if not isinstance(value, dict):
        return value
    made = {name: _with_own(part, model, encoder) for name, part in value.items() if name != "model"}
    made |= {"encoder": encoder} if "encoder" in made else {}
    if "model" in value:
        theirs = value["model"] if isinstance(value["model"], dict) else {"model": value["model"]}
        ours = {} if model is None else model.to_dict()
        wanted = str(theirs.get("model")).rstrip("/").split("/")[-1]
        if str(ours.get("model")).rstrip("/").split("/")[-1] != wanted:
            raise ValueError(
                f"the submission asks the model {quote(wanted)}, and only a model of your choice is used: add --model "
                f"(its name or your folder), and --endpoint URL if it is on a server; got {quote(ours.get('model'))}"
            )
        warmth = theirs.get("temperature")
        made["model"] = ours | ({"temperature": warmth} if isinstance(warmth, int | float) else {})
    return made


def _change(folder: Path, change: Callable[[Round], Round]) -> Round:
    """Replace a round's public file by what ``change`` makes of it; two commands at once take turns."""
    read_round(folder)
    with whole_file(folder / ROUND) as part:
        made = change(read_round(folder))
        part.write_bytes(json_bytes(made.model_dump()))
    return made


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
