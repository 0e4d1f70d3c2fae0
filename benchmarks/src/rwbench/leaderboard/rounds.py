"""Sealed rounds: a world from a secret seed whose hash is published first.

``new`` draws seed and salt, and publishes their hash with the setting, questions, rules and pools, without answers;
``enter`` hashes an entry, and only the hash is handed in, so that nobody can copy it; ``reveal`` publishes seed and
salt, and ends the list of hashes; then entries are opened, and ``score`` compares them with the public world. Whoever
doubts a round can make its world again from the seed. A salt of 256 bits keeps the seed from being guessed.
"""

import hashlib
import json
import re
import secrets
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from ruleworld_data.io import whole_folder, write_whole

from ..report.setting import macro
from ..spec import canonical_json, json_bytes
from .files import FOLDER_NAME
from .judge import METHOD, QUESTIONS, SPLITS, board_spec, judge, same_kit, write_kit
from .records import read_predictions
from .submissions import TRACKS, validate

ROUND, KIT, ENTRIES, SCORES = "round.json", "kit", "entries", "scores.json"
NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")
SETTING = ("data", "scale", "split", "pool_size")
SECRET = ("seed", "salt")


class Round(BaseModel):
    """A round: round.json is the public part, and the secret file the same with seed and salt, which end it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    scale: str
    split: str
    pool_size: int
    data: str  # the generator's version
    commitment: str = ""  # sha256 over the canonical JSON of what stands above, seed and salt
    seed: int | None = None  # of the world, below 2**63
    salt: str | None = None  # 32 random bytes in hexadecimal
    entries: dict[str, str] | None = None  # `entry_sha256` of every entry

    @property
    def digest(self) -> str:
        """The hash that is published before anything else."""
        values = self.model_dump(include={"name", *SETTING, *SECRET})
        return hashlib.sha256(canonical_json(values).encode()).hexdigest()

    def to_json(self) -> bytes:
        """Return what a file of it holds."""
        return json_bytes(self.model_dump(exclude_none=True))

    def write_kit(self, folder: Path) -> None:
        """Write the kit of the round's world."""
        assert self.seed is not None
        setting = (self.pool_size, self.scale, self.split)
        write_kit(folder, board_spec(METHOD, "nl", *setting, seed=self.seed, data=self.data))


def new_round(folder: Path, secret_file: Path, scale: str, split: str, pool_size: int) -> Round:
    """Draw a secret, write it to ``secret_file`` and its hash and kit to ``folder``; neither may be there already."""
    if not NAME.fullmatch(folder.name):
        raise ValueError(f"a round is named with a-z, 0-9, dot and hyphen, as 2026-1, got {folder.name!r}")
    if split not in SPLITS:
        raise ValueError(f"split must be {' or '.join(SPLITS)}, got {split!r}")
    for path in (folder / ROUND, secret_file):
        if path.exists() or path.is_symlink():
            raise ValueError(f"{path} is there already; choose another name")
    seed, salt = secrets.randbits(63) or 1, secrets.token_hex(32)
    data = board_spec(METHOD, "nl", pool_size, scale, split, seed=seed).data
    whole = Round(
        name=folder.name, scale=scale, split=split, pool_size=pool_size, data=data, seed=seed, salt=salt
    )
    whole = whole.model_copy(update={"commitment": whole.digest})
    public = whole.model_copy(update=dict.fromkeys(SECRET))
    # The secret first, and for its owner's eyes: a hash without its secret would be a round that nobody can open.
    secret_file.touch(0o600, exist_ok=False)
    try:
        secret_file.write_bytes(whole.to_json())
        with whole_folder(folder) as work:
            whole.write_kit(work / KIT)
            (work / ENTRIES).mkdir()
            (work / ROUND).write_bytes(public.to_json())
    except BaseException:  # such as a full disk: no secret of no round
        secret_file.unlink()
        raise
    return public


def enter_round(folder: Path, predictions: Path) -> Path:
    """Write the hash of an entry, whose file is named after its submission, to a round and return the hash's path."""
    this = read_round(folder)
    if this.entries is not None:
        raise ValueError(f"round {this.name} was revealed and takes no more entries")
    if predictions.suffix != ".jsonl" or not FOLDER_NAME.fullmatch(predictions.stem):
        raise ValueError(f"an entry is named after its submission, NAME.jsonl, got {predictions.name!r}")
    ids = Counter(record.id for record in read_predictions(predictions).values())
    asked = Counter(json.loads(line)["id"] for line in (folder / KIT / QUESTIONS).read_bytes().splitlines())
    if not ids or ids - asked:
        what = f"{next(iter(ids - asked))!r:.80} is unknown, or there twice" if ids else "it is empty"
        raise ValueError(f"{predictions} must have a line for each question of {folder / KIT}: {what}")
    if (folder / ENTRIES).is_symlink():
        raise ValueError(f"{folder / ENTRIES} is a link, so the hash would be written elsewhere; remove it")
    path = folder / ENTRIES / f"{predictions.stem}.sha256"
    write_whole(path, f"{entry_sha256(predictions)}\n")
    return path


def entry_sha256(path: Path) -> str:
    """Return the hash of an entry's name and bytes: with the name, another's hash is of no use."""
    return hashlib.sha256(f"{path.stem}\n".encode() + path.read_bytes()).hexdigest()


def reveal_round(folder: Path, secret_file: Path) -> Round:
    """Publish seed and salt, and end the list of hashes: what comes later does not count."""
    this = read_round(folder)
    secret = _read(secret_file, "go to where `rwbench round new` was typed, which wrote it")
    if this.entries is not None:
        raise ValueError(f"round {this.name} was revealed already; score it: rwbench round score {folder}")
    for path in (folder / ENTRIES).glob("*.jsonl"):
        raise ValueError(f"{path} is open before the reveal, for all to copy; keep it, and hand in its hash")
    entries = {p.stem: p.read_text(errors="replace") for p in sorted((folder / ENTRIES).glob("*.sha256"))}
    for name, text in entries.items():
        if not re.fullmatch("[0-9a-f]{64}\n", text):
            raise ValueError(f"{name}.sha256 is no hash; write it with rwbench round enter, or move it away")
    entries = {name: text.strip() for name, text in entries.items()}
    done = this.model_copy(update={"seed": secret.seed, "salt": secret.salt, "entries": entries})
    _check(done)
    write_whole(folder / ROUND, done.to_json())
    return done


def score_round(folder: Path) -> dict[str, Any]:
    """Write `round_scores` to scores.json, for people to read, and return them."""
    done = round_scores(folder)
    write_whole(folder / SCORES, json_bytes(done))
    return done


def round_scores(folder: Path) -> dict[str, Any]:
    """Score every entry of a revealed round against the submission that it is named after.

    Submissions lie in ``submissions``, beside the folder of rounds. The round's world is made again first. ``unopened``
    are submissions of which there is a hash alone. A ValueError if the secret is not the published one, the kit is not
    that world's, or an entry was changed or its hash came after the reveal.
    """
    this = read_round(folder)
    if this.entries is None:
        raise ValueError(f"round {this.name} is not revealed; first: rwbench round reveal {folder}")
    _check(this)
    with tempfile.TemporaryDirectory() as place:
        this.write_kit(Path(place))
        if not same_kit(folder / KIT, Path(place)):
            raise ValueError(f"{folder / KIT} is not what the seed gives: entrants answered another world")
    opened = sorted((folder / ENTRIES).glob("*.jsonl"))
    for path in opened:
        if this.entries.get(path.stem) != entry_sha256(path):
            raise ValueError(
                f"{path} is not what a hash was handed in of before the reveal, and cannot count; restore its bytes, "
                "or move it away"
            )
    scores = [_score(this, path, folder.parent.parent / "submissions") for path in opened]
    scores.sort(key=lambda score: (-score["sealed_score"]["value"], score["public"]))
    unopened = sorted(this.entries.keys() - {path.stem for path in opened})
    return {"round": this.name, "seed": this.seed, "unopened": unopened, "scores": scores}


def read_round(folder: Path) -> Round:
    """Read a round's public file; a ValueError or FileNotFoundError says what is wrong."""
    return _read(folder / ROUND, f"open a round first: rwbench round new {folder}")


def _read(path: Path, hint: str) -> Round:
    if not path.is_file():
        raise FileNotFoundError(f"no {path}; {hint}")
    try:
        return Round.model_validate_json(path.read_bytes())
    except ValueError:
        # Without the cause: its text would show a secret.
        raise ValueError(f"{path} is not as `rwbench round` writes it; restore the file") from None


def _check(this: Round) -> None:
    """Raise ValueError unless seed and salt are the ones that were committed to."""
    if this.digest != this.commitment:
        raise ValueError(
            f"seed and salt have the hash {this.digest[:16]}..., round {this.name} was opened with "
            f"{this.commitment[:16]}...: this is not its secret, or {ROUND} was changed"
        )


def _score(this: Round, path: Path, submissions: Path) -> dict[str, Any]:
    if not (submissions / path.stem).is_dir():
        raise ValueError(f"{path} is named after no submission; there is no {submissions / path.stem}")
    public = validate(submissions / path.stem)
    ours, theirs = ([getattr(part, name) for name in SETTING] for part in (this, public.spec))
    if ours != theirs:
        raise ValueError(
            f"{path.stem} has {', '.join(SETTING)} {theirs}, round {this.name} has {ours}; enter with a submission "
            "of the same setting"
        )
    assert this.seed is not None
    sealed = replace(public.spec, world_seed=this.seed)
    _, results = judge(sealed, read_predictions(path), public.entry.name, path.name)
    metric = TRACKS[public.track]
    before, after = macro(public.results, metric), macro(results, metric)
    if before is None or after is None:
        raise ValueError(f"{public.folder}: the entry has no {metric}, which its submission is ranked by")
    return {"public": public.folder, "metric": metric, "public_score": before, "sealed_score": after}
