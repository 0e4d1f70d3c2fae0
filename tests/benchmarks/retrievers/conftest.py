import pytest
from rwbench.retrievers import rank


@pytest.fixture(scope="session")
def search():
    """A function that ranks rules for each of some queries."""

    def best(retriever, ids, texts, queries, k):
        return [rank(ids, scores, k) for scores in map(retriever.scorer(ids, texts), queries)]

    return best
