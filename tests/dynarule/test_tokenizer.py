"""Tokenizers come back as they were saved; <search> gets one row; words that no training held are named."""

import json

import pytest
import torch
from dynarule.bank.sources import read_rules
from dynarule.example import DATA, write_example
from dynarule.search_token import search_id
from dynarule.serve.unfamiliar import unfamiliar, words_of_text
from dynarule.tokenizer import text_ids
from dynarule.training.data import Encoder, target_text
from transformers import AutoTokenizer

from dynarule import load_tokenizer, prepare_search


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


# words in the tokenizer (the model has 97 rows), whether <search> is there -> origin, id, rows after
PLACES = {
    "spare": (90, False, 90, 97),
    "grown": (97, False, 97, 98),
    "far ahead": (101, False, 101, 102),
    "existing": (90, True, 90, 97),
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("origin", PLACES)
def test_one_row_becomes_the_mean_and_no_other_changes(origin, tied, tiny_model, tiny_tokenizer, near):
    words, there, row, rows = PLACES[origin]
    model = tiny_model("qwen2", tie_word_embeddings=tied)
    tokenizer = tiny_tokenizer(words, search=there)
    old = {"in": model.get_input_embeddings().weight.clone(), "out": model.lm_head.weight.clone()}
    found = prepare_search(model, tokenizer)
    assert found == row == tokenizer.convert_tokens_to_ids("<search>")
    new = {"in": model.get_input_embeddings().weight, "out": model.lm_head.weight}
    assert (new["in"] is new["out"]) == tied
    assert model.config.vocab_size == rows
    for side, matrix in new.items():
        assert len(matrix) == rows
        same = [i for i in range(97) if torch.equal(matrix[i], old[side][i])]
        if origin == "existing":  # it may be trained
            assert same == list(range(97))
        else:
            assert same == [i for i in range(97) if i != row]
            new_rows = matrix[min(row, 97) : row + 1]  # of a tokenizer far ahead, too: none is random
            assert near(new_rows, old[side].mean(0).expand_as(new_rows))


def test_the_tokenizer_reads_it_back_and_a_second_call_changes_nothing(tiny_model, tiny_tokenizer, tmp_path):
    words, there, row, _ = PLACES["grown"]
    model, tokenizer = tiny_model("llama"), tiny_tokenizer(words, search=there)
    prepare_search(model, tokenizer)
    tokenizer.save_pretrained(tmp_path)
    for reader in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        assert reader("w5 <search> w6<search>w7")["input_ids"] == [5, row, 6, row, 7]
        assert reader.decode([5, row, 6], skip_special_tokens=True).split() == ["w5", "w6"]
        assert search_id(reader) == row
    before, size = model.get_input_embeddings().weight.clone(), len(tokenizer)
    again = prepare_search(model, tokenizer)
    assert again == row and len(tokenizer) == size
    assert torch.equal(model.get_input_embeddings().weight, before)


def test_a_word_that_the_tokenizer_does_not_know_is_not_the_token(tiny_tokenizer):
    tokenizer = tiny_tokenizer(90)
    tokenizer.unk_token = "w3"  # what such a word is read as
    with pytest.raises(ValueError, match="has no token '<search>'"):
        search_id(tokenizer)


ENGLISH = (
    "if the reader is late, he pays a fine of two euros for each week; dogs must stay outside this building"
)
KNOWN = {*ENGLISH.replace(",", "").replace(";", "").split()}


class Bytes:
    """Known words are tokens; others are taken apart in threes, letters beyond Latin in bytes."""

    unk_token_id = None

    def __call__(self, text, **_):
        word = text.strip()
        size = 1 if word in KNOWN else len(word.encode()) if not word.isascii() else -(-len(word) // 3)
        return {"input_ids": [0] * size}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ENGLISH, ""),
        (ENGLISH + " of Kowalski", ""),  # a name
        ("Hunde bleiben draussen, wenn jemand anderes zahlen muss", "Hunde bleiben"),
        ("Если читатель опоздал", "Если читатель"),
        ("借五本书", "借 五"),
    ],
)
def test_words_of_other_languages_are_named(text, expected):
    words, count = unfamiliar(Bytes(), [text])
    assert words[:2] == expected.split() and len(words) <= count


def test_names_are_no_words_and_chinese_signs_are():
    assert words_of_text("Müller's dogs, w11: 借书") == ["Müller", "s", "dogs", "借", "书"]
