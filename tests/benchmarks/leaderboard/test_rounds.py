"""Sealed rounds: what is published when, what a cheating organiser or entrant meets, and the column on the board."""

import hashlib
import json
import shutil
import stat
from dataclasses import replace

import pytest
from rwbench.leaderboard import rounds
from rwbench.leaderboard.board import build_board
from rwbench.leaderboard.rounds import enter_round, new_round, reveal_round, score_round
from rwbench.leaderboard.submissions import validate
from rwbench.methods.retrieve import Retrieve
from rwbench.retrievers.bm25 import BM25 as Searcher
from rwbench.run.data import DataSource
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples

from ..command import rwbench

BM25 = "2026-11-28_bm25"


@pytest.fixture(scope="module")
def played(submissions, small_spec, tmp_path_factory):
    """A round from start to end, by its commands; how the folder stood after each."""
    place = tmp_path_factory.mktemp("leaderboard")
    shutil.copytree(submissions, place / "submissions")
    folder, secret = place / "rounds" / "2026-1", place / "2026-1.secret.json"
    stages = {}

    def run(*words):
        done = rwbench("round", *words)
        assert done.exit_code == 0, done.output
        stages[words[0]] = (done.stdout, {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()})

    patch = pytest.MonkeyPatch()
    patch.chdir(place)
    # The same world every time, so that no test fails by chance.
    patch.setattr("secrets.randbits", lambda bits: 6_172_839_450_617_283_945)
    run("new", folder, "--scale", "tiny", "--pool-size", 100)
    seed = json.loads(secret.read_text())["seed"]
    spec = replace(small_spec(Retrieve(Searcher())), world_seed=seed)
    ran = run_spec(spec, DataSource("tiny", seed), place / "runs")
    samples = read_samples(place / "runs" / ran["run_id"] / "samples.jsonl")
    lines = [json.dumps({"id": sample["id"], "retrieved": sample["retrieved"]}) + "\n" for sample in samples]
    (place / f"{BM25}.jsonl").write_text("".join(lines))
    run("enter", folder, place / f"{BM25}.jsonl")
    run("reveal", folder)
    shutil.copy(place / f"{BM25}.jsonl", folder / "entries")
    run("score", folder)
    patch.undo()
    return folder, json.loads(secret.read_text()), secret, stages


@pytest.fixture
def folder(played, tmp_path):
    """A copy of the round that may be spoilt, before it was scored."""
    copy = shutil.copytree(played[0].parent.parent, tmp_path / "leaderboard") / "rounds" / "2026-1"
    (copy / "scores.json").unlink()
    return copy


def test_the_hash_is_published_first_and_the_secret_only_at_the_end(played):
    _, secret, path, stages = played
    known = [str(secret["seed"]).encode(), secret["salt"].encode()]
    for stage in ("new", "enter"):
        text, files = stages[stage]
        assert not any(part in body for body in files.values() for part in known), stage
        assert not any(part.decode() in text for part in known), stage
    assert all(part in stages["reveal"][1]["round.json"] for part in known)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # The commitment, by hand.
    said = json.loads(stages["new"][1]["round.json"])
    text = (
        f'{{"data":"{said["data"]}","name":"2026-1","pool_size":100,"salt":"{secret["salt"]}","scale":"tiny",'
        f'"seed":{secret["seed"]},"split":"mini"}}'
    )
    assert said["commitment"] == hashlib.sha256(text.encode()).hexdigest()
    assert json.loads(stages["reveal"][1]["round.json"])["commitment"] == said["commitment"]


def test_the_kit_is_of_the_secret_world_and_holds_no_gold(played):
    folder, secret, _, _ = played
    rows = [json.loads(line) for line in (folder / "kit/questions.jsonl").read_text().splitlines()]
    assert len(rows) == 550
    assert all(set(row) == {"id", "subtask", "question", "pool"} for row in rows)
    pools = [json.loads(line)["rules"] for line in (folder / "kit/pools.jsonl").read_text().splitlines()]
    ours = {q.id: q for q in DataSource("tiny", secret["seed"]).questions("multi_hop_3", "mini")}
    public = {q.text for q in DataSource("tiny", 0).questions("multi_hop_3", "mini")}
    asked = [row for row in rows if row["subtask"] == "multi_hop_3"]
    for row in asked:
        assert row["question"] == ours[row["id"]].text
        assert set(ours[row["id"]].gold) <= set(pools[row["pool"]])
        assert pools[row["pool"]] == sorted(pools[row["pool"]])
    assert sum(row["question"] in public for row in asked) < len(asked) / 2


def test_scores_are_those_of_the_method_on_the_revealed_world(played, submissions):
    folder = played[0]
    (score,) = json.loads((folder / "scores.json").read_text())["scores"]
    (results,) = (folder.parent.parent / "runs").glob("*/results.json")
    ran = json.loads(results.read_text())
    assert score["sealed_score"] == ran["metrics"]["recall@1"]["macro"]
    public = validate(submissions / BM25).results["metrics"]["recall@1"]["macro"]
    assert score["public_score"] == public


@pytest.mark.parametrize(
    "body", ["null", "{}", json.dumps({"scores": [{"public": BM25, "sealed_score": {"value": 1}}]})]
)
def test_the_board_scores_a_round_again_whatever_its_file_says(body, played, folder):
    (folder / "scores.json").write_text(body)
    shutil.copytree(folder, folder.with_name("2026-10"))
    folder = folder.rename(folder.with_name("2026-9"))  # the earlier one
    root = folder.parent.parent / "submissions"
    true = json.loads((played[0] / "scores.json").read_text())["scores"]
    sealed = {row["submission"]: row["sealed"] for row in build_board(root)["rows"]}
    assert sealed[BM25] == {"round": "2026-10", **true[0]}
    (folder / "round.json").unlink()  # a badge for whoever writes one file
    with pytest.raises(FileNotFoundError, match="open a round first"):
        build_board(root)


def test_another_secret_or_kit_after_the_fact_is_found_out(folder):
    path = folder / "round.json"
    public = json.loads(path.read_text())
    for change in ({"seed": 1}, {"seed": None}, {"salt": "00"}, {"pool_size": 500}):
        path.write_text(json.dumps(public | change))
        with pytest.raises(ValueError, match="this is not its secret"):
            score_round(folder)
    path.write_text(json.dumps(public))
    score_round(folder)
    for name in ("questions.jsonl", "pools.jsonl"):
        body = (folder / "kit" / name).read_bytes()
        (folder / "kit" / name).write_bytes(body.replace(b"1", b"2", 1))
        with pytest.raises(ValueError, match="entrants answered another world"):
            score_round(folder)
        (folder / "kit" / name).write_bytes(body)


def test_an_entry_is_a_hash_that_no_other_can_open_until_the_reveal(played, folder):
    """Whoever copies another's hash, or after the reveal its bytes, has nothing that counts."""
    _, _, secret, stages = played
    place = folder.parent.parent
    assert not any(b"retrieved" in body for body in stages["enter"][1].values())
    public = json.loads((folder / "round.json").read_text())
    (folder / "round.json").write_text(json.dumps(public | dict.fromkeys(("seed", "salt", "entries"))))
    with pytest.raises(ValueError, match="is open before the reveal, for all to copy"):
        reveal_round(folder, secret)
    mine = (folder / "entries" / f"{BM25}.jsonl").rename(place / f"{BM25}.jsonl")
    theirs = (folder / "entries" / f"{BM25}.sha256").read_text()
    for no_hash in ("", "0" * 63, "é" * 64):
        (folder / "entries" / "2026-11-28_naive.sha256").write_text(no_hash, encoding="latin-1")
        with pytest.raises(ValueError, match=r"naive\.sha256 is no hash"):
            reveal_round(folder, secret)
    (folder / "entries" / "2026-11-28_naive.sha256").write_text(theirs)
    with pytest.raises(ValueError, match="named after its submission"):
        enter_round(folder, mine.rename(place / "bm25.txt"))
    whole = (place / "bm25.txt").read_text()
    for body, what in (("", "it is empty"), (whole * 2, "twice"), (whole.replace("hop", "hip"), "unknown")):
        (place / f"{BM25}.jsonl").write_text(body)  # found after the reveal it would be too late
        with pytest.raises(ValueError, match=what):
            enter_round(folder, place / f"{BM25}.jsonl")
    (folder / "entries").rename(folder / "hashes")
    (folder / "entries").symlink_to(folder / "hashes")
    with pytest.raises(ValueError, match="entries is a link"):
        enter_round(folder, shutil.copy(place / "bm25.txt", place / f"{BM25}.jsonl"))
    (folder / "entries").unlink()
    (folder / "hashes").rename(folder / "entries")
    assert set(reveal_round(folder, secret).entries) == {BM25, "2026-11-28_naive"}
    with pytest.raises(ValueError, match="takes no more entries"):
        enter_round(folder, place / "bm25.txt")
    copied = shutil.copy(place / "bm25.txt", folder / "entries" / "2026-11-28_naive.jsonl")
    with pytest.raises(ValueError, match=r"2026-11-28_naive\.jsonl is not what a hash was handed in of"):
        score_round(folder)
    (folder / "entries" / copied.name).rename(folder / "entries" / f"{BM25}.jsonl")
    scored = score_round(folder)
    assert [score["public"] for score in scored["scores"]] == [BM25]
    assert scored["unopened"] == ["2026-11-28_naive"]


def test_steps_have_an_order_and_are_taken_once(folder, played, tmp_path):
    secret = played[2]
    with pytest.raises(ValueError, match="was revealed already"):
        reveal_round(folder, secret)
    for name, size, said in (("2026-1", 100, "is there already"), ("Round One", 100, "named with a-z")):
        with pytest.raises(ValueError, match=said):
            new_round(folder.with_name(name), tmp_path / "s.json", "tiny", "mini", size)
    with pytest.raises(ValueError, match="the board has pools of"):
        new_round(tmp_path / "r", tmp_path / "s.json", "tiny", "mini", 7)
    assert not (tmp_path / "s.json").exists()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="space left"):
        patch.setattr(rounds, "write_kit", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        new_round(tmp_path / "r0", tmp_path / "0.json", "tiny", "mini", 100)
    assert [*tmp_path.glob("r0/*"), *tmp_path.glob("*.json")] == []  # no half a round
    made = [new_round(tmp_path / f"r{n}", tmp_path / f"{n}.json", "tiny", "mini", 100) for n in range(2)]
    secrets = [json.loads((tmp_path / f"{n}.json").read_text()) for n in range(2)]
    assert len({round.commitment for round in made}) == len({secret["salt"] for secret in secrets}) == 2
    assert all(0 < secret["seed"] < 2**63 and len(secret["salt"]) == 64 for secret in secrets)
    with pytest.raises(ValueError, match="not revealed"):
        score_round(tmp_path / "r0")
    with pytest.raises(ValueError, match="this is not its secret"):
        reveal_round(tmp_path / "r0", secret)
    with pytest.raises(FileNotFoundError, match="rwbench round new"):
        reveal_round(tmp_path / "r0", tmp_path / "nothing.json")
