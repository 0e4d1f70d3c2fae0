"""What must not be taken for a copy: good systems, alike systems, few questions."""

import pytest
from ruleworld_data.scoring import exact_match
from rwbench.leaderboard.copies import Fingerprint, duplicates, gold_copies, impostors, skeleton
from rwbench.leaderboard.metadata import Metadata
from rwbench.leaderboard.records import Record


def copied(samples):
    return list(gold_copies(samples))


def made_up_sample(number, output="", answers=None, found=((1, 2, 3),), gold=((1,), (2,))):
    answers = [str(number)] if answers is None else answers
    return {
        "id": f"q{number}",
        "output": output,
        "answers": answers,
        "scores": {"exact_match": exact_match(answers, [str(number)])},
        "gold_answers": [str(number)],
        "retrieved": [list(search) for search in found],
        "gold_rules": [list(step) for step in gold],
    }


def made_up_fingerprint(change=lambda n: {}, form="nl", name="A", submitter="Us", subtasks=("a",)):
    """Of a hundred questions, each answered in a sentence after a search for ten rules."""
    spec = {"scale": "tiny", "split": "mini", "subtasks": subtasks, "representation": form, "pool_size": 100}
    records = []
    for n in range(100):
        record = made_up_sample(
            n, f"The cat {n % 7} of dog {n % 5} chases owl {n}", found=[range(n, n + 100)]
        )
        records.append(
            Record.model_construct(**record, usage={}, seconds=0.0, outcome="ok").model_copy(update=change(n))
        )
    return Fingerprint.of(Metadata.model_construct(name=name, submitter=submitter), spec, records)


def test_a_perfect_system_that_shows_its_work_is_none():
    words = ("cat", "dog", "owl", "bee", "elk")
    samples = [
        made_up_sample(n, f"A {words[n % 5]} of {words[n % 3]} chases {n}: \\boxed{{{n}}}")
        for n in range(100)
    ]
    assert copied(samples) == []
    # What one of twenty says in other words is a spoilt copy, what one of ten does is not.
    for other, told in ((5, 1), (10, 0)):
        short = [
            made_up_sample(n, samples[n]["output"] if n < other else f"It is \\boxed{{{n}}}")
            for n in range(100)
        ]
        assert len(copied(short)) == told


def test_a_terse_system_that_errs_is_none():
    samples = [made_up_sample(n, f"\\boxed{{{n}}}", ["no"] if n % 10 == 0 else None) for n in range(100)]
    assert copied(samples) == []


def test_searches_that_find_more_than_the_proof_or_less_are_none():
    exact, more, less = (((2,), (1,)), ((1, 2, 9),), ((1,),))
    for found, told in ((exact, 1), (more, 0), (less, 0), ((), 0)):
        samples = [made_up_sample(n, answers=["no"], found=found) for n in range(20)]
        assert len(copied(samples)) == told
    assert copied([made_up_sample(n, answers=["no"], found=exact) for n in range(19)]) == []


def test_two_systems_that_agree_on_nine_questions_of_ten_are_no_duplicates():
    def fingerprint(changed, form="nl"):
        return made_up_fingerprint(lambda n: {"answers": ["x"]} if n < changed else {}, form)

    assert list(duplicates(fingerprint(6), {"a": fingerprint(0)})) == []
    (problem,) = duplicates(fingerprint(5), {"a": fingerprint(0), "c": fingerprint(50)})
    assert problem.value == "a"
    assert list(duplicates(fingerprint(0), {"a": fingerprint(0, "fol")})) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda n: {"output": f" The cat  {n % 7} of dog {n % 5} chases owl {n}. "},
        lambda n: {"output": f"THE CAT {n % 7} OF DOG {n % 5} CHASES OWL {n}"},
        lambda n: {"output": f"The cat {n % 7} of dog {n % 5} chases owl {n} #{n * 7919}"},
        lambda n: {"answers": [f" {n}. "]},
        lambda n: {"retrieved": [[*range(n, n + 8), n + 9, n + 8, *range(n + 10, n + 100)]]},
        lambda n: {"retrieved": [[*range(n, n + 9), n + 10, n + 9, *range(n + 11, n + 100)]]},
        lambda n: {"retrieved": [range(n, n + 11)]},
        lambda n: {"retrieved": None},
        lambda n: {"output": None},
        lambda n: {"output": None, "retrieved": None},
        lambda n: {"answers": ["x"]} if n % 25 == 0 else {},
    ],
    ids=lambda change: "",
)
def test_a_copy_that_was_spoilt_is_one(change):
    assert list(duplicates(made_up_fingerprint(change), {"a": made_up_fingerprint()}))


@pytest.mark.parametrize(
    "change",
    [
        lambda n: {"answers": ["x"]} if n % 10 == 0 else {},
        lambda n: {"output": f"My own words: {n}"},
        lambda n: {"retrieved": [range(n, n + 200, 2)]},
        lambda n: {"answers": None, "output": None},
    ],
    ids=lambda change: "",
)
def test_alike_systems_are_no_copies(change):
    """Other answers, words or rules; and a retriever beside the method that uses it."""
    assert not list(duplicates(made_up_fingerprint(change), {"a": made_up_fingerprint()}))


def test_part_of_a_submission_is_a_copy_and_more_than_it_is_none():
    whole = made_up_fingerprint()
    part = whole._replace(answers=frozenset(sorted(whole.answers)[:30]))
    assert list(duplicates(part, {"a": whole})) and not list(duplicates(whole, {"a": part}))


def test_a_method_without_output_and_rules_is_compared_by_answers_with_its_like_only():
    """Two methods that are nearly always right agree: that one shows work and the other rules is no sign of a copy."""
    shows_work = made_up_fingerprint(lambda n: {"retrieved": None})
    shows_rules = made_up_fingerprint(lambda n: {"output": None})
    assert not list(duplicates(shows_work, {"a": shows_rules}))


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("BM25", "bm25"),
        ("BM25", "BM 25."),
        ("BM25", "ВМ25"),  # Cyrillic
        ("BM25", "ΒΜ25"),  # Greek
        ("BM25", "ＢＭ２５"),  # full width
        ("BM25", "𝐁𝐌𝟐𝟓"),  # mathematical
        ("DynaRule", "DynaRuIe"),
        ("DynaRule", "Dynа-Rule"),
        ("DynaRule", "Dýnarule"),
        ("Top 10", "Top 1O"),
        ("Modern", "Modem"),
    ],
)
def test_names_that_read_like_another_s(name, like):
    assert skeleton(name) == skeleton(like)
    board = {"a": made_up_fingerprint(name=name)}
    (problem,) = impostors(made_up_fingerprint(name=like, form="fol"), board)
    assert problem.what == f"name reads like {name!a} of a" and problem.value.isascii()
    (problem,) = impostors(
        made_up_fingerprint(name="B", submitter=like), {"a": made_up_fingerprint(submitter=name)}
    )
    assert problem.what.startswith("submitter reads like")


def test_a_name_is_there_once_in_a_setting_and_again_in_others():
    board = {"a": made_up_fingerprint(name="BM25", subtasks=("a", "b"))}
    assert list(impostors(made_up_fingerprint(name="BM25", subtasks=("b", "a")), board))
    assert not list(impostors(made_up_fingerprint(name="BM25", form="fol"), board))


@pytest.mark.parametrize("name", ["BM25+", "BM25 v2", "Llama 31", "BM", "Other"])
def test_names_that_tell_apart(name):
    board = {str(n): made_up_fingerprint(name=known) for n, known in enumerate(("BM25", "Llama 3.1"))}
    assert not list(impostors(made_up_fingerprint(name=name), board))


@pytest.mark.parametrize("salt", [lambda n: "", lambda n: f" x{n * 7919}", lambda n: " (sure)"])
@pytest.mark.parametrize("dress", [str, lambda text: f" {text}. ", lambda text: f"**{text}**"])
def test_gold_answers_in_disguise(salt, dress):
    """With blanks, a period, marks or a salt, and a few mistakes among them."""
    samples = [
        made_up_sample(n, f"\\boxed{{{dress(str(n))}}}{salt(n)}", ["no"] if n % 25 == 0 else [dress(str(n))])
        for n in range(100)
    ]
    assert len(copied(samples)) == 1
