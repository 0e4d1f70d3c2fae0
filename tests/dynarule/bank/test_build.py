"""Banks built in parts: the same bytes for any shards, order and kill; what is missing or foreign is named."""

import multiprocessing
import os
import re
import signal

import pytest
import torch
from dynarule.bank import build as bank_build
from dynarule.bank.build import build_parts, merge_parts, parse_shard, plan_bank
from dynarule.bank.encoders import PREMISE_KEYS
from dynarule.bank.sources import conclusion_of, make_rules, premise_of
from safetensors.torch import load_file, save_file

from dynarule import RuleBank

WIDTH = 12
RULES = make_rules([f"If A is in place {i}, it has {i % 5} horns." for i in range(50)] + ["All is well."])


def encode(texts):
    """Another vector for every text; the last bits depend on what is encoded together, as they do in a model."""
    rows = [
        torch.randn(WIDTH, generator=torch.Generator().manual_seed(sum(map(ord, text)) * len(text)))
        for text in texts
    ]
    return torch.stack(rows) * (1 + 1e-3 * len(texts))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(bank_build, "BLOCK", 8)


def built(folder, shards, dtype="fp16", rules=RULES):
    plan = plan_bank(rules, folder, "characters", dtype)
    for shard in shards:
        build_parts(plan, encode, parse_shard(shard))
    return merge_parts(plan_bank(rules, folder))


def content(folder):
    return (folder / "bank.safetensors").read_bytes()


def test_any_shards_in_any_order_make_the_same_bytes(tmp_path):
    expected = built(tmp_path / "one", [""])
    # 51 rules and 5 conclusions that are no rules make 7 blocks of 8.
    for number, shards in enumerate((["2/2", "1/2"], ["3/3", "1/3", "2/3"], ["5/9", "2/9", "1/2", "2/2"])):
        bank = built(tmp_path / str(number), shards)
        assert content(tmp_path / str(number)) == content(tmp_path / "one")
        assert torch.equal(bank.keys_MP, expected.keys_MP)
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == [".lock", "bank.safetensors"]


def test_the_bank_holds_each_text_once_and_is_that_of_its_texts(tmp_path, monkeypatch):
    asked = []
    plan = plan_bank(RULES, tmp_path, "characters", "fp32")
    monkeypatch.setattr(bank_build, "BLOCK", 1000)
    build_parts(plan, lambda texts: asked.extend(texts) or encode(texts))
    bank = merge_parts(plan)
    assert len(asked) == len(set(asked)) == 51 + 5  # "All is well." is its own conclusion
    assert len(bank.values.different) == 6 and len(bank) == 51
    places = {text: row for row, text in enumerate(asked)}
    rows = encode(asked)
    assert torch.equal(bank.keys_MP, rows[[places[text] for text in RULES.texts]])
    assert torch.equal(bank.values_MP, rows[[places[text] for text in RULES.conclusions]])


def test_a_merged_bank_changes_like_any_other_and_saves_what_is_left(tmp_path):
    bank = built(tmp_path / "bank", [""])
    before = content(tmp_path / "bank")
    more = RuleBank(torch.ones(1, WIDTH), torch.full((1, WIDTH), 2.0), ["new"], ["new rule"], "characters")
    expected = dict(zip(bank.ids, bank.values_MP, strict=True)) | {"new": more.values_MP[0].half()}
    bank.add(more)
    for name in ("0", "5", "10", "50"):
        bank.remove([name])
        del expected[name]
    bank.save(tmp_path / "other")
    again = RuleBank.load(tmp_path / "other")
    for held in (bank, again):
        assert held.ids == bank.ids and set(held.ids) == set(expected)
        assert torch.equal(held.values_MP, torch.stack([expected[name] for name in held.ids]))
    assert (
        len(again.values.different) == 6
    )  # five of horns, one of "new rule"; that of "All is well." has gone with it
    assert content(tmp_path / "bank") == before  # mapped, and never written to


def test_a_missing_part_is_named(tmp_path):
    plan = plan_bank(RULES, tmp_path, "characters", "fp16")
    build_parts(plan, encode, (1, 2))
    with pytest.raises(ValueError, match=r"3 of 7 parts are missing .* such as 00002-of-00007\.safetensors"):
        merge_parts(plan)
    build_parts(plan, encode, (2, 2))
    assert len(merge_parts(plan)) == 51


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"encoder": "other"}, "encoder is 'characters' there and 'other' here"),
        ({"dtype": "fp32"}, "dtype is 'fp16' there and 'fp32' here"),
        ({"rules": make_rules(["a", "b"])}, "rules is '[0-9a-f]{64}' there and '[0-9a-f]{64}' here"),
    ],
)
def test_parts_of_another_bank_are_refused_with_both_named(tmp_path, change, complaint):
    given = {"rules": RULES, "encoder": "characters", "dtype": "fp16"}
    build_parts(plan_bank(given["rules"], tmp_path, given["encoder"], given["dtype"]), encode, (1, 3))
    given |= change
    with pytest.raises(ValueError, match=complaint):
        plan_bank(given["rules"], tmp_path, given["encoder"], given["dtype"])


def test_a_part_that_strayed_in_or_was_cut_is_named(tmp_path):
    plan = plan_bank(RULES, tmp_path, "characters", "fp16")
    build_parts(plan, encode)
    rows = load_file(plan.path(2))
    save_file(
        rows, plan.path(2), {name: str(value) for name, value in (plan.head | {"encoder": "x"}).items()}
    )
    with pytest.raises(ValueError, match=r"00003-of-00007\.safetensors is of another bank: encoder is 'x'"):
        merge_parts(plan)
    plan.path(2).write_bytes(b"cut")
    with pytest.raises(ValueError, match=r"00003-of-00007\.safetensors is damaged .*delete it"):
        merge_parts(plan)
    with pytest.raises(FileNotFoundError, match="no parts of a bank"):
        plan_bank(RULES, tmp_path / "elsewhere")
    assert not (tmp_path / "bank.safetensors").exists()


@pytest.mark.parametrize("text", ["0/2", "3/2", "x", "1", "1/", "-1/2", "1/2/3"])
def test_shards_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="--shard must be i/n"):
        parse_shard(text)


def build_two_parts(folder):
    def encode_twice(texts, calls=[]):  # noqa: B006 - counts the calls
        calls.append(1)
        if len(calls) > 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(texts)

    build_parts(plan_bank(RULES, folder, "characters", "fp16"), encode_twice)


def test_a_killed_build_goes_on_to_the_same_bytes(tmp_path):
    built(tmp_path / "one", [""])
    child = multiprocessing.get_context("fork").Process(target=build_two_parts, args=(tmp_path / "killed",))
    child.start()
    child.join()
    parts = tmp_path / "killed" / ".parts"
    there = {path: path.stat().st_mtime_ns for path in parts.glob("0*.safetensors")}
    assert child.exitcode == -signal.SIGKILL and len(there) == 2
    build_parts(plan_bank(RULES, tmp_path / "killed", "characters", "fp16"), encode)
    assert {path: path.stat().st_mtime_ns for path in there} == there  # none is made twice
    merge_parts(plan_bank(RULES, tmp_path / "killed"))
    assert content(tmp_path / "killed") == content(tmp_path / "one")


def test_a_text_whose_embedding_does_not_fit_is_named(tmp_path):
    def large(texts):
        rows = encode(texts)
        rows[texts.index(RULES.texts[4])] = 1e6
        return rows

    with pytest.raises(
        ValueError, match=re.escape(repr(RULES.texts[4])) + " does not fit fp16; .* --dtype fp32"
    ):
        build_parts(plan_bank(RULES, tmp_path, "characters", "fp16"), large)


def test_a_premise_is_embedded_once_by_any_shards(tmp_path):
    texts = [f"If A is w{i % 4}, it has {i} horns." for i in range(20)]
    rules, encoder, read = make_rules(texts), "characters" + PREMISE_KEYS, []

    def alone(few):
        read.extend(few)
        return torch.cat([encode([text]) for text in few])

    for name, shards in (("one", [""]), ("two", ["2/2", "1/2"])):
        plan = plan_bank(rules, tmp_path / name, encoder)
        for shard in shards:
            build_parts(plan, alone, parse_shard(shard))
        bank = merge_parts(plan_bank(rules, tmp_path / name))
        assert len(read) == len(set(read)) == 4 + 20
        assert len(bank.keys.different) == 4 and bank.encoder == encoder
        read.clear()
        assert torch.equal(bank.keys_MP, alone([premise_of(text) for text in texts]))
        assert torch.equal(bank.values_MP, alone([conclusion_of(text) for text in texts]))
        read.clear()
    assert content(tmp_path / "one") == content(tmp_path / "two")
