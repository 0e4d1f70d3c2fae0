"""Rules from texts, tables and files, and the conclusions found in them."""

import pytest
import torch
from dynarule.bank.sources import conclusion_of, premise_of, read_rules

from dynarule import RuleBank


def encode(texts):
    """Another vector for every text."""
    return torch.tensor(
        [[len(t), sum(ord(c) * i for i, c in enumerate(t, 1))] for t in texts], dtype=torch.float32
    )


encode.fingerprint = "characters"


@pytest.mark.parametrize(
    ("rule", "conclusion"),
    [
        ("If A chases B, B will enter the bridge.", "B will enter the bridge"),
        ("if it rains, then the road, too, is wet.", "the road, too, is wet"),
        ("Chase(A, B) => Drop_Floral_paw(B, 1)", "Drop_Floral_paw(B, 1)"),
        ("p(x), q(x) -> r(x)", "r(x)"),
        ("All bridges, old or new, are closed.", "All bridges, old or new, are closed."),
        ("If only", "If only"),
        ("Iffy weather, stay home", "Iffy weather, stay home"),
    ],
)
def test_conclusions_are_found_in_rules(rule, conclusion):
    assert conclusion_of(rule) == conclusion


def test_every_rule_of_ruleworld_has_its_conclusion_found():
    from ruleworld_data.generate import rule_table

    table = rule_table("train", "tiny")
    for text, conclusion in (("nl", "conclusion_nl"), ("fol", "conclusion_fol")):
        found = [conclusion_of(rule) for rule in table[text].to_pylist()]
        assert found == table[conclusion].to_pylist()


def test_every_rule_of_ruleworld_has_its_premise_found():
    from ruleworld_data.generate import rule_table

    table = rule_table("train", "tiny")
    assert [premise_of(rule) for rule in table["fol"].to_pylist()] == table["premise_fol"].to_pylist()
    expected = [f"If {premise}" for premise in table["premise_nl"].to_pylist()]
    assert [premise_of(rule) for rule in table["nl"].to_pylist()] == expected
    assert premise_of("If only") == "If only" and premise_of(" All are closed. ") == "All are closed."


def test_a_bank_from_a_dataset_and_parquet_is_the_same(tmp_path):
    import datasets
    import pyarrow.parquet as pq
    from ruleworld_data.generate import rule_table

    table = rule_table("train", "tiny").slice(0, 60)
    pq.write_table(table, tmp_path / "rules.parquet")
    data = datasets.Dataset(table)
    banks = [
        RuleBank.from_texts(data["nl"], data["conclusion_nl"], encode, data["id"]),
        RuleBank.from_file(tmp_path / "rules.parquet", encode),
    ]
    for bank in banks:
        assert bank.ids == [str(i) for i in table["id"].to_pylist()]
        assert bank.texts == table["nl"].to_pylist()
        assert bank.encoder == "characters"
        assert torch.equal(bank.values_MP, encode(table["conclusion_nl"].to_pylist()))
        assert torch.equal(bank.keys_MP, encode(bank.texts))
    logic = RuleBank.from_file(tmp_path / "rules.parquet", encode, text="fol", conclusion="conclusion_fol")
    assert torch.equal(logic.values_MP, encode(table["conclusion_fol"].to_pylist()))


def test_text_files_have_line_numbers_as_ids_and_tsv_explicit_conclusions(tmp_path):
    (tmp_path / "rules.txt").write_text(
        "If it rains, the road is wet.\n\n  P(x) => Q(x)\r\n", encoding="utf-8"
    )
    rules = read_rules(tmp_path / "rules.txt")
    assert rules.ids == ["1", "3"]
    assert rules.texts == ["If it rains, the road is wet.", "P(x) => Q(x)"]
    assert rules.conclusions == ["the road is wet", "Q(x)"]
    (tmp_path / "rules.tsv").write_text("If it rains, the road is wet.\twet road\n", encoding="utf-8")
    assert read_rules(tmp_path / "rules.tsv").conclusions == ["wet road"]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.txt", "\n \n", "holds no rules"),
        ("a.txt", "same\nsame\n", "rules '1' and '2' are the same text"),
        ("a.tsv", "rule\n", "line 1 has 1 columns, expected 2"),
        ("a.tsv", "rule\t\n", "line 1 has 1 columns|empty conclusion"),
        ("a.parquet", "no parquet", "not a readable parquet"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
    ],
)
def test_bad_rule_files_are_refused(tmp_path, name, content, complaint):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=complaint):
        RuleBank.from_file(tmp_path / name, encode)


def test_a_missing_file_and_a_missing_column_say_what_is_there(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pytest.raises(FileNotFoundError, match="one rule per line"):
        RuleBank.from_file(tmp_path / "none.txt", encode)
    pq.write_table(pa.table({"rule": ["If a, b."]}), tmp_path / "rules.parquet")
    with pytest.raises(ValueError, match=r"no column 'nl' for text; the columns are \['rule'\]"):
        RuleBank.from_file(tmp_path / "rules.parquet", encode)
    bank = RuleBank.from_file(tmp_path / "rules.parquet", encode, "rule", None, None)
    assert (bank.ids, bank.texts) == (["0"], ["If a, b."]) and torch.equal(bank.values_MP, encode(["b"]))
