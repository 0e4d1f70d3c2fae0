"""A tokenizer comes back as it was saved, and the example's reads its own texts."""

import json

import pytest
from dynarule.example import DATA, write_example
from dynarule.tokenizer import text_ids

from dynarule import load_tokenizer


@pytest.mark.parametrize("family", ("qwen2", "qwen3", "llama"))
def test_a_word_tokenizer_comes_back_whatever_the_family(family, tiny_model, tiny_tokenizer, tmp_path):
    """AutoTokenizer makes Qwen's byte-level one of the folder of a Qwen2, which reads none of these words."""
    tiny_model(family).save_pretrained(tmp_path)
    saved = tiny_tokenizer(search=True)
    saved.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    text = "w11 w12 <search> w3"
    assert (
        loaded(text)["input_ids"] == saved(text)["input_ids"] == [11, 12, loaded.get_vocab()["<search>"], 3]
    )


def test_a_million_brackets_are_read_at_once(tiny_tokenizer):
    """What looks for markup must not go on from each to the end: a request of a megabyte would take hours."""
    assert text_ids(tiny_tokenizer(), "<" * (1 << 20)) == text_ids(tiny_tokenizer(), "<")


def test_the_example_is_whole_and_readable(tmp_path):
    from dynarule.bank.sources import read_rules
    from dynarule.training.data import Encoder, target_text

    folder = write_example(tmp_path / "depot")
    with pytest.raises(FileExistsError, match="choose a new folder"):
        write_example(folder)
    rules = read_rules(folder / "rules.txt")
    text_of = dict(zip(rules.ids, rules.texts, strict=True))
    tokenizer = load_tokenizer(folder / "model")
    encoder = Encoder(tokenizer, {name: i for i, name in enumerate(rules.ids)}, search=False)
    questions = {}
    for name in ("train", "held_out"):
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        questions[name] = {row["question"] for row in rows}
        for row in rows:
            assert tokenizer.unk_token_id not in encoder(row).ids
            said = target_text(row, search_token="")
            assert tokenizer.decode(tokenizer(said)["input_ids"]) == said
            for step in row["steps"]:  # a step is about the last word of each of its rules
                for rule in step["rule_ids"]:
                    assert step["text"].split()[-1].strip(".") in text_of[rule] or "signs" in text_of[rule]
            assert row["answers"][-1] in row["steps"][-1]["text"].lower()
    assert not questions["train"] & questions["held_out"]
    assert sorted(path.name for path in DATA.iterdir() if "__" not in path.name) == [
        "held_out.jsonl",
        "library",
        "model",
        "rules.txt",
        "train.jsonl",
    ]
