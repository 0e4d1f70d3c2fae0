"""The word lists load into the right order, keep terms apart (C7) and common sense out (C8).

Data 1.1 depends on every word, so its golden files hold the lists as they are.
"""

import itertools
import re
from importlib import resources
from pathlib import Path

from ruleworld_data.world import load_vocabulary

FOLDER = Path(str(resources.files("ruleworld_data.world"))) / "vocab"


def rows(name: str) -> list[list[str]]:
    """Read a file without the loader, headers dropped."""
    found = [line.split("\t") for line in (FOLDER / name).read_text(encoding="ascii").split("\n")]
    assert found.pop() == [""], f"{name} must end with one newline"
    return found[name.endswith(".tsv") :]


def test_counts_and_order():
    words = load_vocabulary()
    assert (len(words.entities), len(words.attributes), len(words.states)) == (960, 4096, 1664)
    assert len(words.attribute_plurals) == 4096 and len(words.actions) == len(words.environments) == 100
    assert [verb.base for verb in (*words.minus, *words.plus)] == ["lose", "drop", "gain", "get", "receive"]
    for terms, first, second, column in (
        (words.entities, "entity_adjectives.txt", "entity_nouns.txt", 0),
        (words.attributes, "attribute_adjectives.txt", "attribute_nouns.tsv", 0),
        (words.attribute_plurals, "attribute_adjectives.txt", "attribute_nouns.tsv", 1),
        (words.states, "state_adverbs.txt", "state_adjectives.txt", 0),
    ):
        left, right = [row[0] for row in rows(first)], [row[column] for row in rows(second)]
        assert list(terms) == [f"{one} {other}" for one in left for other in right]
    assert load_vocabulary() is words


def test_no_word_is_used_twice_and_no_place_is_part_of_another():
    """One word, one meaning: also across lists, and across the words of two-word places."""
    words = [row[0] for path in FOLDER.glob("*.txt") for row in rows(path.name)]
    words += [word for row in rows("attribute_nouns.tsv") for word in row]
    for name, start in (("actions", 0), ("change_verbs", 1), ("goal_verbs", 0)):
        words += [word for row in rows(f"{name}.tsv") for word in dict.fromkeys(row[start:])]
    places = [row[0] for row in rows("environments.tsv")]
    words += [word for place in places for word in place.split()]
    assert sorted(words) == sorted(set(words))
    assert not any(f" {one} " in f" {other} " for one, other in itertools.permutations(places, 2))


def test_denied_pairs_become_term_masks():
    words, denied = load_vocabulary(), rows("denied.tsv")
    verbs, places = ([row[0] for row in rows(f"{name}.tsv")] for name in ("actions", "environments"))
    states = [state.split()[1] for state in words.states]
    for kind, lefts, rights in (
        ("env_state", [set(name.split()) for name in places], states),
        ("action_state", [{verb} for verb in verbs], states),
        ("action_env", [{verb} for verb in verbs], places),
    ):
        pairs = {(left, right) for name, left, right in denied if name == kind}
        mask = words.denied_mask(kind)
        assert mask.tolist() == [[any((w, r) in pairs for w in left) for r in rights] for left in lefts]
        # Every action and place keeps most partners, or the published counts could become unreachable.
        assert mask.any() and mask.mean(axis=1).max() < 0.15 and mask.mean(axis=0).max() < 0.25
    assert ("env_state", "desert", "thirsty") in words.denied


def test_variants_are_plain_words():
    """ "~" stands for an object or an adjective; a cell is empty for no plural, or no passive."""
    word = "(?:[a-z~][a-z']*(?:[ -][a-z~][a-z']*)*|[a-z]+_[a-z]+)?"
    for name in ("variants.tsv", "verb_variants.tsv", "place_variants.tsv"):
        found = rows(name)
        assert len({tuple(row) for row in found}) == len(found)
        assert all(re.fullmatch(word, cell) for row in found for cell in row), name
