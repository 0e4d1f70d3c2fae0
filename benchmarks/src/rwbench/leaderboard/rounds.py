"""Sealed rounds: a world from a secret seed whose hash is published first.

``new`` draws seed and salt and publishes their hash with the setting; ``seal`` publishes questions, rules and pools,
without answers; entries come in; ``reveal`` publishes seed and salt, and the hash of every entry so far. Whoever
doubts a round can make its world again from the seed: hash and files must agree. A salt of 256 bits keeps the
seed from being guessed from the hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole
from ruleworld_data.spec import SCALES, check_name

from ..run.data import DataSource
from ..spec import canonical_json
from .kit import write_kit
from .rescore import PUBLIC_SEED, SPLITS, Judge, pool_design

ROUND, KIT, ENTRIES, SCORES = "round.json", "kit", "entries", "scores.json"
COMMITTED = ("name", "scale", "split", "pool_size", "data")
NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


@dataclass(frozen=True)
class Secret:
    """What `new_round` keeps from the public: a world seed below 2**63 and 32 random bytes in hexadecimal."""

    name: str
    seed: int
    salt: str


@dataclass(frozen=True)
class Round:
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

    name: str
    scale: str
    split: str
    pool_size: int
    data: str
    commitment: str
    opened: str
    sealed: dict[str, Any] | None = None
    revealed: dict[str, Any] | None = None
    schema_version: int = field(default=1)

    def check(self, seed: Any, salt: Any) -> None:
        """Raise ValueError unless seed and salt are the ones that were committed to."""
        setting = {name: getattr(self, name) for name in COMMITTED}
        found = commitment(setting, seed, salt)
        if found != self.commitment:
            raise ValueError(
                f"seed and salt give the hash {found[:16]}..., round {self.name} was opened with "
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
    check_name("scale", scale, SCALES)
    check_name("split", split, SPLITS)
    pool_design(pool_size, scale)
    for path in (folder / ROUND, secret_file):
        if path.exists():
            raise ValueError(f"{path} is there already; choose another name")
    seed = PUBLIC_SEED
    while seed == PUBLIC_SEED:
        seed = secrets.randbits(63)
    secret = Secret(folder.name, seed, secrets.token_hex(32))
    setting: dict[str, Any] = {
        "name": folder.name,
        "scale": scale,
        "split": split,
        "pool_size": pool_size,
        "data": DataSource(scale, seed).version,
    }
    made = Round(**setting, commitment=commitment(setting, secret.seed, secret.salt), opened=_now())
    # The secret first: a hash without its secret would be a round that nobody can open.
    secret_file.touch(mode=0o600, exist_ok=False)
    write_whole(secret_file, _indented(dataclasses.asdict(secret)))
    secret_file.chmod(0o600)
    folder.mkdir(parents=True, exist_ok=True)
    write_round(folder, made)
    return made


def seal_round(folder: Path, secret_file: Path) -> Round:
    """Write the round's kit (see `rwbench.leaderboard.kit`) and publish its hashes."""
    found, secret = read_round(folder), read_secret(secret_file)
    if found.sealed is not None:
        raise ValueError(
            f"round {found.name} was sealed on {found.sealed['time']}; its kit is in {folder / KIT}"
        )
    found.check(secret.seed, secret.salt)
    hashes = kit_hashes(found, secret.seed, folder / KIT)
    sealed = dataclasses.replace(found, sealed={"time": _now(), **hashes})
    (folder / ENTRIES).mkdir(exist_ok=True)
    write_round(folder, sealed)
    return sealed


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
    done = dataclasses.replace(found, revealed=revealed)
    write_round(folder, done)
    return done


def verify_round(folder: Path) -> Round:
    """Make a revealed round's world again and return the round.

    Raises
    ------
    ValueError
        If seed and salt are not those of the published hash, the kit is not that world's, or an entry was changed or
        came after the reveal.
    """
    found = read_round(folder)
    if found.revealed is None or found.sealed is None:
        raise ValueError(f"round {found.name} is not revealed; first: rwbench round reveal {folder}")
    found.check(found.revealed["seed"], found.revealed["salt"])
    with tempfile.TemporaryDirectory() as place:
        hashes = kit_hashes(found, found.revealed["seed"], Path(place))
    for name, value in hashes.items():
        if found.sealed.get(name) != value:
            raise ValueError(
                f"{name} of round {found.name} was published with sha256 {str(found.sealed.get(name))[:16]}..., "
                f"its seed gives {value[:16]}...: entrants answered another world"
            )
    for path in entry_files(folder):
        if found.revealed["entries"].get(path.stem) != _sha256(path):
            raise ValueError(
                f"{path} was changed or added after the reveal; give it back its bytes, or move it away: "
                "it cannot count"
            )
    return found


def kit_hashes(found: Round, seed: int, folder: Path) -> dict[str, str]:
    """Write the kit of a round's world and return its hashes."""
    judge = Judge((seed,))
    version = judge.workspace(found.scale, seed).source.version
    if version != found.data:
        raise ValueError(
            f"round {found.name} is of generator version {found.data}, this is {version}; install that version"
        )
    return write_kit(folder, judge, found.scale, found.split, found.pool_size, seed)


def entry_files(folder: Path) -> list[Path]:
    """Return the entries of a round: one file per submission, named like it."""
    return sorted((folder / ENTRIES).glob("*.jsonl"))


def read_round(folder: Path) -> Round:
    """Read a round's public file; a ValueError or FileNotFoundError says what is wrong."""
    path = folder / ROUND
    if not path.is_file():
        raise FileNotFoundError(f"no {ROUND} in {folder}; open a round first: rwbench round new {folder}")
    try:
        return Round(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a round's file ({error})") from None


def write_round(folder: Path, found: Round) -> None:
    """Write a round's public file."""
    write_whole(folder / ROUND, _indented(dataclasses.asdict(found)))


def read_secret(path: Path) -> Secret:
    """Read a secret file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"no secret at {path}; give the file that `rwbench round new` wrote with --secret"
        )
    try:
        return Secret(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise ValueError(f"{path} is not a secret that `rwbench round new` wrote") from None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _indented(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
