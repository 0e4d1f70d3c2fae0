"""Rules from texts, tables and files, and the conclusions found in them."""

import time
import tomllib
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from dynarule.bank.clauses import split_rule
from dynarule.bank.sources import read_rules
from ruleworld_data.generate import table
from ruleworld_data.spec import WorldSpec

from dynarule import RuleBank

from ..conftest import FakeEncoder

CASES = tomllib.loads(Path(__file__).with_name("rule_files.toml").read_text(encoding="utf-8"))
encode = FakeEncoder()


LONG = {"a": " b", "If a,": "\n", "If a": ",", "In case of a": ", in case of a", "In winter b": " “; "}


@pytest.mark.parametrize(("start", "piece"), LONG.items())
def test_the_time_of_a_split_grows_with_the_length_of_a_rule(start, piece):
    """Eight times as long: 64 times the seconds where it grew with the square, of some shapes 512."""

    def seconds(pieces):
        begun = time.process_time()
        assert split_rule(start + piece * pieces).conclusion
        return time.process_time() - begun

    assert min(seconds(1_600) for _ in range(3)) < 24 * min(seconds(200) for _ in range(3)) + 0.005


def test_every_rule_of_ruleworld_has_its_premise_and_conclusion_found():
    rules = table("rules", WorldSpec("tiny")).to_pydict()
    for form, start in (("nl", "If "), ("fol", "")):
        assert [split_rule(rule).conclusion for rule in rules[form]] == rules[f"conclusion_{form}"]
        assert [split_rule(rule).premise for rule in rules[form]] == [
            start + text for text in rules[f"premise_{form}"]
        ]
    assert (
        split_rule("If only").premise == "If only"
        and split_rule(" All are closed. ").premise == "All are closed."
    )


def test_a_bank_from_a_dataset_and_parquet_is_the_same(tmp_path):
    rules = table("rules", WorldSpec("tiny")).slice(0, 60)
    pq.write_table(rules, tmp_path / "rules.parquet")
    data = datasets.Dataset(rules)
    banks = [
        RuleBank.from_texts(data["nl"], data["conclusion_nl"], encode, data["id"]),
        RuleBank.from_file(tmp_path / "rules.parquet", encode),
    ]
    for bank in banks:
        assert [*bank.ids] == [str(i) for i in rules["id"].to_pylist()]
        assert [*bank.texts] == rules["nl"].to_pylist()
        assert bank.encoder == "minilm@1"
        assert torch.equal(bank.values_MP, encode(rules["conclusion_nl"].to_pylist()))
        assert torch.equal(bank.keys_MP, encode(bank.texts))


@pytest.mark.parametrize(("name", "content", "expected"), CASES["read"])
def test_tables_are_read_by_their_columns(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content.encode())
    assert list(map(list, zip(*read_rules(tmp_path / name)[:3], strict=True))) == expected


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        *CASES["refused"],
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.txt", "x" * 8_001, "rule '1' has 8,001 characters; .* 8,000 bytes at most: split it"),
    ],
)
def test_bad_rule_files_are_refused(tmp_path, name, content, complaint):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=complaint):
        read_rules(tmp_path / name)


def test_a_missing_file_and_a_missing_column_say_what_is_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="one rule per line"):
        RuleBank.from_file(tmp_path / "none.txt", encode)
    pq.write_table(pa.table({"phrase": ["If a, b."]}), tmp_path / "rules.parquet")
    with pytest.raises(ValueError, match=r"is called nl, rule, text, only \['phrase'\] .* --text COLUMN"):
        RuleBank.from_file(tmp_path / "rules.parquet", encode)


def test_one_text_is_no_list_of_rules():
    for given in (("If a, b.", None), (["If a, b."], "b"), (["If a, b."], None, encode, "1")):
        with pytest.raises(ValueError, match="must be a list of texts, got the one text"):
            RuleBank.from_texts(*(given if len(given) > 2 else (*given, encode)))
    bank = RuleBank.from_texts(["x", "y"], None, encode, ["1", "2"])
    with pytest.raises(ValueError, match="ids must be a list of texts, got the one text '12'"):
        bank.remove("12")
    with pytest.raises(ValueError, match="rule 1, counted from 0, has no id"):
        RuleBank.from_texts(["x", "y"], None, encode, ["1", None])
    with pytest.raises(ValueError, match="rule '0' has no text, got None"):
        RuleBank.from_texts([None], None, encode)
