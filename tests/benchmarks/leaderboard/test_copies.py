"""What must not be taken for a copy: good systems, alike systems, few questions."""

from rwbench.leaderboard.copies import Fingerprint, duplicates, gold_copies
from rwbench.leaderboard.records import Record


def copied(samples):
    return list(gold_copies(samples))


def made_up_sample(number, output="", answers=None, found=((1, 2, 3),), gold=((1,), (2,))):
    return {
        "id": f"q{number}",
        "output": output,
        "answers": [str(number)] if answers is None else answers,
        "gold_answers": [str(number)],
        "retrieved": [list(search) for search in found],
        "gold_rules": [list(step) for step in gold],
    }


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
    def fingerprint(changed, setting="nl 100"):
        samples = [made_up_sample(n, answers=["x"] if n < changed else None) for n in range(100)]
        records = [{**sample, "outcome": "ok", "usage": {}, "seconds": 0.0} for sample in samples]
        return Fingerprint.of(setting, [Record.model_construct(**record) for record in records])

    assert list(duplicates(fingerprint(6), {"a": fingerprint(0)})) == []
    (problem,) = duplicates(fingerprint(5), {"a": fingerprint(0), "c": fingerprint(50)})
    assert problem.value == "a"
    assert list(duplicates(fingerprint(0), {"a": fingerprint(0, "fol 100")})) == []
