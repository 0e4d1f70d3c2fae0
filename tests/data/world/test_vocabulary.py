"""The word lists keep terms apart (C7), keep common sense out (C8), and load into the right order."""

import itertools
import re
from importlib import resources
from pathlib import Path

import pytest
from ruleworld_data.world import load_vocabulary

FOLDER = Path(str(resources.files("ruleworld_data.world"))) / "vocab"

WORD_LISTS = {
    "entity_adjectives": 16,
    "entity_nouns": 60,
    "attribute_adjectives": 64,
    "state_adverbs": 16,
    "state_adjectives": 104,
}
FORMS = ("base", "third", "past", "gerund", "participle")
HEADERS = {
    "actions.tsv": FORMS,
    "change_verbs.tsv": ("operator", *FORMS),
    "attribute_nouns.tsv": ("singular", "plural"),
    "environments.tsv": ("name", "preposition", "article", "goal"),
    "goal_verbs.tsv": FORMS,
    "denied.tsv": ("kind", "left", "right"),
    "variants.tsv": ("kind", "word", "variant", "plural"),
    "verb_variants.tsv": ("word", *FORMS),
    "place_variants.tsv": ("word", "name", "preposition", "article", "goal"),
}

# Words that templates need as plain English; no term may use them.
RESERVED = """
creature question answer state environment place condition attribute action rule amount count number
individual subject enter enters entered entering has have had will be is are was it its how many what
which who where when if then and or not no of to from in on at by with the a an other another each every
first second next before after final initially left now one two three
"""

# Independent of the files: these are the only verbs and nouns here that English inflects irregularly.
IRREGULAR = """
bite bit bitten, catch caught caught, feed fed fed, forgive forgave forgiven, get got got, hear heard heard, hide hid
hidden, lose lost lost, overtake overtook overtaken, ride rode ridden, shake shook shaken, teach taught taught, throw
threw thrown, go went gone, wake woke woken
"""
IRREGULAR_VERBS = {
    base: (past, participle) for base, past, participle in map(str.split, IRREGULAR.split(","))
}
IRREGULAR_NOUNS = {"tooth": "teeth", "hoof": "hooves", "leaf": "leaves", "antenna": "antennae"}
DOUBLING = {"step", "hug", "rob", "trip", "wrap", "drop"}

# One group per comma: at most one word of a group may be in a list.
SYNONYMS = """
big large huge giant, tiny small little, cold chilly freezing frozen icy, swamp marsh bog, forest wood woods, happy
glad joyful cheerful, sad unhappy sorrowful miserable, angry furious mad enraged, hungry starving, thirsty dehydrated
parched, exhausted tired weary, frightened scared afraid terrified, sick ill, wealthy rich, famous celebrated
renowned, nervous anxious worried, surprised amazed astonished, confused puzzled bewildered, calm peaceful relaxed
serene, brave courageous bold, quiet silent, ashamed embarrassed, jealous envious, wise clever smart intelligent,
helpless powerless, scare frighten startle terrify, chase pursue hunt, push shove, pull drag tow, hug embrace cuddle,
assist help aid support, copy imitate mimic, deceive trick fool cheat, defend protect guard, heal cure, mock tease
ridicule, scold rebuke, rescue save, greet welcome, watch observe, examine inspect, touch tap, catch capture trap
seize grab, throw toss hurl fling, accuse blame, feed nourish, forgive pardon, hire employ, imprison jail, challenge
dare, wash clean rinse, avoid dodge evade, banish exile evict, prison jail, castle fortress citadel, theater cinema
playhouse, graveyard cemetery, basement cellar, harbor port, forest woodland, labyrinth maze, cave cavern grotto,
meadow pasture, pharmacy drugstore, rabbit hare, crow raven, donkey mule, frog toad, crocodile alligator, turtle
tortoise, pig hog boar, cow bull ox, gorilla ape, snout muzzle, claw talon, horn antler, quill spine, tooth fang, fur
pelt coat, golden gilded, luminous glowing radiant, strong powerful mighty, jagged serrated, ancient old antique,
sacred holy divine, swift fast quick rapid, plump fat, slender thin slim, feral wild, noisy loud, elderly old aged,
ashen gray, foamy frothy, deeply profoundly, completely totally entirely fully utterly, slightly somewhat mildly,
secretly covertly privately, suddenly abruptly, constantly always continually, strangely oddly weirdly, scarlet
crimson red, violet purple, obsidian onyx, crystalline vitreous, dirty filthy, wet damp soaked, admire respect revere,
praise commend compliment, insult offend, trip stumble, wrap envelop, interrupt disturb bother annoy, ring loop, cubic
square, spiral helical, smooth even, brittle fragile, desert wasteland, quarry pit mine, sewer drain, stiff rigid,
greedy avaricious, stubborn obstinate, shy timid bashful, lonely lonesome isolated, healthy well, lucky fortunate,
obedient compliant docile, cruel brutal, warm hot, injured wounded hurt, breathless winded, dizzy giddy, rebellious
defiant, talkative chatty, contagious infectious
"""


def lines(name: str) -> list[list[str]]:
    """Read a file without the loader, headers dropped."""
    rows = [line.split("\t") for line in (FOLDER / name).read_text(encoding="ascii").split("\n")]
    assert rows.pop() == [""], f"{name} must end with one newline"
    return rows[1:] if name.endswith(".tsv") else rows


@pytest.fixture(scope="module")
def lists() -> dict[str, list[str]]:
    """Words of every list, a word once per list."""
    found = {name: [row[0] for row in lines(f"{name}.txt")] for name in WORD_LISTS}
    nouns = lines("attribute_nouns.tsv")
    found["attribute_nouns"] = [row[0] for row in nouns]
    found["attribute_plurals"] = [row[1] for row in nouns]
    found["environments"] = [word for row in lines("environments.tsv") for word in row[0].split()]
    for name, start in (("actions", 0), ("change_verbs", 1), ("goal_verbs", 0)):
        found[name] = [word for row in lines(f"{name}.tsv") for word in dict.fromkeys(row[start:])]
    return found


def inflections(word: str) -> set[str]:
    """Simple inflections, whether or not English uses them."""
    stems = {word, word + word[-1]} | ({word[:-1]} if word.endswith("e") else set())
    forms = {stem + ending for stem in stems for ending in ("s", "es", "ed", "ing")}
    if word.endswith("y"):
        forms |= {word[:-1] + "ies", word[:-1] + "ied"}
    return forms


def regular(base: str) -> tuple[str, str, str]:
    """Third person, past and gerund of a regular verb."""
    soft_y = base.endswith("y") and base[-2] not in "aeiou"
    ending = "es" if base.endswith(("s", "x", "z", "ch", "sh")) else "s"
    third = base[:-1] + "ies" if soft_y else base + ending
    if base.endswith("ie"):
        return third, base + "d", base[:-2] + "ying"
    stem = base + base[-1] if base in DOUBLING else base.removesuffix("e")
    gerund = "getting" if base == "get" else stem + "ing"
    return third, (base[:-1] + "i" if soft_y else stem) + "ed", gerund


def test_counts_and_order(lists):
    vocabulary = load_vocabulary()
    sizes = WORD_LISTS | {"attribute_nouns": 64, "attribute_plurals": 64}
    assert {name: len(lists[name]) for name in sizes} == sizes
    assert len(vocabulary.entities) == 960
    assert len(vocabulary.attributes) == len(vocabulary.attribute_plurals) == 4096
    assert len(vocabulary.actions) == len(vocabulary.environments) == 100
    assert len(vocabulary.states) == 1664
    assert [verb.base for verb in vocabulary.minus] == ["lose", "drop"]
    assert [verb.base for verb in vocabulary.plus] == ["gain", "get", "receive"]
    assert vocabulary.entities[61] == f"{lists['entity_adjectives'][1]} {lists['entity_nouns'][1]}"
    for terms, adjectives, nouns in (
        (vocabulary.attributes, "attribute_adjectives", "attribute_nouns"),
        (vocabulary.attribute_plurals, "attribute_adjectives", "attribute_plurals"),
        (vocabulary.states, "state_adverbs", "state_adjectives"),
    ):
        width = len(lists[nouns])
        assert terms[5 * width + 7] == f"{lists[adjectives][5]} {lists[nouns][7]}"
    assert load_vocabulary() is vocabulary


def test_no_word_is_used_twice(lists):
    words = list(itertools.chain(*lists.values()))
    # One word, one meaning: also across lists, and across the words of two-word places.
    assert sorted(words) == sorted(set(words))
    assert set(words) & set(RESERVED.split()) == {"enter", "enters", "entered", "entering"}  # of places


def test_no_word_is_an_inflection_of_another(lists):
    verbs = {word: row[0] for row in lines("actions.tsv") for word in row}
    verbs |= {word: row[0] for row in lines("goal_verbs.tsv") for word in row}
    verbs |= {word: row[1] for row in lines("change_verbs.tsv") for word in row[1:]}
    nouns = {plural: singular for singular, plural in lines("attribute_nouns.tsv")}
    own = verbs | nouns
    words = set(itertools.chain(*lists.values()))
    clashes = {
        (word, form)
        for word in words
        for form in inflections(word) & words
        if own.get(form, form) != own.get(word, word)
    }
    assert not clashes


def test_no_place_is_part_of_another():
    names = [row[0] for row in lines("environments.tsv")]
    assert len(set(names)) == 100
    for one, other in itertools.permutations(names, 2):
        assert f" {one} " not in f" {other} "


def test_verbs_are_single_words_with_the_right_forms():
    vocabulary = load_vocabulary()
    verbs = [*vocabulary.actions, *vocabulary.minus, *vocabulary.plus, *vocabulary.goal_verbs.values()]
    assert set(IRREGULAR_VERBS) <= {verb.base for verb in verbs}
    for verb in verbs:
        third, past, gerund = ("goes", "", "going") if verb.base == "go" else regular(verb.base)
        past, participle = IRREGULAR_VERBS.get(verb.base, (past, past))
        assert (verb.third, verb.past, verb.gerund, verb.participle) == (third, past, gerund, participle)
        assert " " not in verb.base
    for one, other in itertools.combinations(verbs, 2):
        assert not set(vars(one).values()) & set(vars(other).values())


def test_plurals():
    for singular, plural in lines("attribute_nouns.tsv"):
        assert plural == IRREGULAR_NOUNS.get(singular, regular(singular)[0])


def test_no_synonyms_inside_a_list(lists):
    groups = [set(group.split()) for group in SYNONYMS.split(",")]
    for name, words in lists.items():
        for group in groups:
            found = group & set(words)
            assert len(found) <= 1, f"{name} holds the synonyms {sorted(found)}"


def test_denied_pairs_become_term_masks():
    vocabulary, rows = load_vocabulary(), lines("denied.tsv")
    verbs, places = ([row[0] for row in lines(f"{name}.tsv")] for name in ("actions", "environments"))
    adjectives = [row[0] for row in lines("state_adjectives.txt")]
    kinds = {
        "env_state": (
            [set(name.split()) for name in places],
            [state.split()[1] for state in vocabulary.states],
        ),
        "action_state": ([{verb} for verb in verbs], [state.split()[1] for state in vocabulary.states]),
        "action_env": ([{verb} for verb in verbs], places),
    }
    assert len(rows) >= 100 and len(adjectives) == 104
    for kind, (lefts, rights) in kinds.items():
        pairs = {(left, right) for name, left, right in rows if name == kind}
        mask = vocabulary.denied_mask(kind)
        assert mask.dtype == bool
        assert mask.tolist() == [
            [any((w, right) in pairs for w in words) for right in rights] for words in lefts
        ]
        # Every action and place keeps most partners, or the published counts could become unreachable.
        assert mask.any() and mask.mean(axis=1).max() < 0.15 and mask.mean(axis=0).max() < 0.25
        # Another word would deny nothing.
        assert {left for left, _ in pairs} <= set().union(*lefts) and {right for _, right in pairs} <= set(
            rights
        )
    assert ("env_state", "desert", "thirsty") in vocabulary.denied


def test_every_file_is_a_table_of_plain_words():
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert {path.name for path in files} == {*HEADERS, *(f"{name}.txt" for name in WORD_LISTS)}
    for name, header in HEADERS.items():
        assert tuple((FOLDER / name).read_text(encoding="utf-8").split("\n")[0].split("\t")) == header
    for path in files:
        rows, width = lines(path.name), len(HEADERS.get(path.name, [""]))
        assert len({tuple(row) for row in rows}) == len(rows), path.name
        word = "[a-z]+" if width == 1 else "[a-z]+(?: [a-z]+)*|(?:env|action)_(?:state|env)"
        # "~" stands for an object or an adjective; a cell is empty for no plural, or no passive.
        if path.stem.endswith("variants"):
            word = "(?:[a-z~][a-z']*(?:[ -][a-z~][a-z']*)*|[a-z]+_[a-z]+)?"
        for row in rows:
            assert len(row) == width and all(re.fullmatch(word, cell) for cell in row), (path.name, row)
    assert {row[0] for row in lines("change_verbs.tsv")} == {"minus", "plus"}
