"""<search> gets one row, wherever it comes from, and nothing else in the vocabulary changes."""

import pytest
import torch
from dynarule.search_token import search_id
from transformers import AutoTokenizer

from dynarule import prepare_search

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
