"""The word lists keep terms apart (C7), and variants are plain words.

Data 1.1 depends on every word, so its golden files hold the lists as they are.
"""

import itertools
import re
from importlib import resources
from pathlib import Path

import pytest

FOLDER = Path(str(resources.files("ruleworld_data.world"))) / "vocab"


def rows(name: str) -> list[list[str]]:
    """Read a file without the loader, headers dropped."""
    found = [line.split("\t") for line in (FOLDER / name).read_text(encoding="ascii").split("\n")]
    assert found.pop() == [""], f"{name} must end with one newline"
    return found[name.endswith(".tsv") :]


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


def test_variants_are_plain_words():
    """ "~" stands for an object or an adjective; a cell is empty for no plural, or no passive."""
    word = "(?:[a-z~][a-z']*(?:[ -][a-z~][a-z']*)*|[a-z]+_[a-z]+)?"
    for name in ("variants.tsv", "verb_variants.tsv", "place_variants.tsv"):
        found = rows(name)
        assert len({tuple(row) for row in found}) == len(found)
        assert all(re.fullmatch(word, cell) for row in found for cell in row), name


@pytest.mark.parametrize("kind", ["entity", "attribute", "state", "environment"])
def test_no_variant_has_in_it_what_names_another_thing(kind):
    """Neither "striped" of a zebra nor "hungry for success": each is the name of something else of its kind."""
    found = [row[:2] for row in rows("place_variants.tsv")] if kind == "environment" else []
    found += [row[1:3] for row in rows("variants.tsv") if row[0].startswith(kind)]
    owners = {name: word for word, variant in found for name in (word, variant)}
    assert (
        len(found) > 100
        and [
            (word, variant, name)
            for word, variant in found
            for name, owner in owners.items()
            if owner != word and f" {name} " in f" {variant} "
        ]
        == []
    )
