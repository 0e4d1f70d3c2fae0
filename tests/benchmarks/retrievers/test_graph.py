"""Graph retrieval against a dense solution of the walk, and over a hop that no shared word bridges."""

import math

import numpy as np
import pytest
from rwbench.retrievers import Retriever
from rwbench.retrievers.graph import Graph, terms

TEXTS = [
    "If A chases B, B will enter the bridge.",
    "If A is on the bridge, A will be deeply hungry.",
    "If A is deeply hungry, A will lose 2 green fins.",
    "If A is a calm fox, it has 9 green fins.",
    "If A is a calm owl, it has 4 blue wings.",
    "If A is in the desert, A will be hardly awake.",
]
IDS = np.array([7, 3, 5, 1, 9, 2], dtype=np.int32)
QUESTION = "What happens to whom it chases?"


def walk(question, damping, sharpness):
    """Where a walk is in the long run: x = (1 - d) r + d P'x, solved densely; rules are the first nodes."""
    names = list(dict.fromkeys(term for text in TEXTS for term in terms(text)))
    size, count = len(TEXTS), {name: sum(name in terms(text) for text in TEXTS) for name in names}
    weight = {name: math.log(1 + (size - n + 0.5) / (n + 0.5)) ** sharpness for name, n in count.items()}
    edges = np.zeros((size + len(names),) * 2)
    for row, text in enumerate(TEXTS):
        for name in terms(text):
            edges[row, size + names.index(name)] = edges[size + names.index(name), row] = weight[name]
    steps = edges / edges.sum(1, keepdims=True)
    start = np.array([0.0] * size + [weight[name] * (name in terms(question)) for name in names])
    start /= start.sum()
    return np.linalg.solve(np.eye(len(start)) - damping * steps.T, (1 - damping) * start)[:size]


@pytest.mark.parametrize(("damping", "sharpness"), [(0.85, 2.0), (0.5, 1.0)])
def test_scores_are_the_walks_shares(damping, sharpness, search):
    (hits,) = search(Graph(damping=damping, sharpness=sharpness), IDS, TEXTS, [QUESTION], 6)
    wanted = walk(QUESTION, damping, sharpness)
    assert hits.ids.tolist() == IDS[np.argsort(-wanted)].tolist()
    assert np.allclose(hits.scores, np.sort(wanted)[::-1] / wanted.max(), atol=1e-8)


def test_unknown_words_find_nothing_and_bad_settings_are_refused(search):
    assert len(search(Graph(), IDS, TEXTS, ["zebra", ""], 3)[0].ids) == 0
    assert Retriever.from_dict(Graph(damping=0.5).to_dict()) == Graph(damping=0.5)
    for bad in ({"damping": 1.0}, {"sharpness": -1}):
        with pytest.raises(ValueError, match="Input should be"):
            Graph(**bad)
