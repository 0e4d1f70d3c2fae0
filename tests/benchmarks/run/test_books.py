"""Rule books as a source of questions: what a run on them sees is what their files say."""

import json

import pytest
from rwbench.backends.local import Local
from rwbench.methods.prompting import Prompting
from rwbench.methods.retrieve import Retrieve
from rwbench.recipes import Options, recipes
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.both_ends import BothEnds
from rwbench.run.books import BookSource, book_folder, source_of
from rwbench.run.pools import Pool, pools_of
from rwbench.run.runner import run_spec
from rwbench.spec import BOOKS, VALIDATION_BOOKS, RunSpec


def lines_of(book, name):
    return (book_folder(book) / name).read_text(encoding="utf-8").splitlines()


@pytest.fixture
def spec():
    """BM25 alone on the books, the whole of them."""
    source = BookSource()
    return Options(source, split="test").spec(Retrieve(BM25()), "nl", source.pool_size, "world")


def test_every_question_has_its_own_book_and_no_other_as_its_pool(spec):
    workspace = BookSource()
    pools = pools_of(spec, workspace)
    assert [len(pool.questions) for pool in pools] == [30, 30, 30]
    for pool in pools:
        (book,) = {question.world_id for question in pool.questions}
        assert [*pool.texts] == lines_of(book, "rules.txt")
        for question, line in zip(pool.questions, lines_of(book, "questions.jsonl"), strict=True):
            row = json.loads(line)
            assert question.text == row["question"] and list(question.answers) == row["answers"]
            texts = [pool.rules.texts(step, "nl") for step in question.gold_steps]
            rules = lines_of(book, "rules.txt")
            assert texts == [[rules[int(rule)] for rule in step["rule_ids"]] for step in row["steps"]]


def test_a_run_on_the_books_is_found_again_by_its_spec(spec):
    again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec and source_of(again) == BookSource()
    assert again.subtasks == BOOKS and again.data.startswith("rulebooks-")
    one = RunSpec.from_dict(spec.to_dict() | {"subtasks": ["clinic"]})
    assert source_of(one) == BookSource()
    others = BookSource(books=VALIDATION_BOOKS)
    other = spec.to_dict() | {"data": others.data, "subtasks": list(VALIDATION_BOOKS)}
    assert source_of(RunSpec.from_dict(other)) == others and others.data != again.data
    with pytest.raises(ValueError, match="sub-task"):
        RunSpec.from_dict(spec.to_dict() | {"subtasks": ["multi_hop_2"]})


def test_a_run_of_other_texts_is_refused(spec, monkeypatch):
    clinic = book_folder("clinic")
    monkeypatch.setattr("rwbench.run.books.book_folder", lambda book: clinic)
    with pytest.raises(ValueError, match="data='rulebooks-"):
        pools_of(spec, BookSource())


def test_the_recipe_asks_every_model_on_the_books(model_folder):
    model = Local.of(str(model_folder))
    specs = recipes.get("rulebooks")(Options(BookSource(), limit=2, models=(model,)))
    assert {spec.subtasks for spec in specs} == {BOOKS} and {spec.limit for spec in specs} == {2}
    others = recipes.get("ablation/rulebooks")(Options(BookSource(books=VALIDATION_BOOKS), models=(model,)))
    assert {spec.subtasks for spec in others} == {VALIDATION_BOOKS}
    assert [spec.method for spec in others] == [spec.method for spec in specs]
    ways = [spec.method for spec in specs if spec.method["name"] == Prompting.name]
    assert [way["rules"] for way in ways] == ["gold", "none", "pool"]


@pytest.fixture
def own(tmp_path):
    """A user's book: a table with ids of its own, and questions some of which have no answer."""
    folder = tmp_path / "My Book"
    folder.mkdir()
    rules = [("a.md:3", "If it rains, the pool is closed."), ("a.md:9", "If it is a Monday, entry is free.")]
    (folder / "rules.csv").write_text("id,rule\n" + "".join(f'{name},"{text}"\n' for name, text in rules))
    asked = [
        {
            "question": "It is a Monday. What is free?",
            "answers": ["entry"],
            "steps": [{"rule_ids": ["a.md:9"]}],
        },
        {"question": "Who owns the pool?", "answers": ["Unknown "]},
    ]

    def write(*rows):
        (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows or asked))
        return BookSource.open(folder)

    return write


def test_a_book_of_ones_own_is_asked_with_every_method(own, model_folder, tmp_path):
    """What `rwbench run book` does, which rule-books.md names."""
    source = own()
    (subtask,), data = source.subtasks, source.data
    assert subtask == "unknown_my_book"  # so refusals are scored
    known, unknown = source.questions(subtask, "test")
    assert (known.gold, unknown.gold, unknown.answers) == ((1,), (), ("unknown",))
    assert unknown.id == "unknown_my_book-002"  # by which a run that was begun goes on
    specs = recipes.get("book")(Options(source, models=(Local.of(str(model_folder)),)))
    named = {spec.method["name"] for spec in specs}
    assert named >= {"retrieve", "prompting", "rag", "stepwise", "dynarule-plus"}
    (search,) = (spec for spec in specs if spec.method == Retrieve(BM25()).to_dict())
    results = run_spec(search, source, tmp_path / "runs")
    assert results["metrics"]["recall@1"]["macro"]["value"] == 1  # of the one question that names a rule
    with pytest.raises(ValueError, match="of your own, which is not kept with it"):
        source_of(search)
    unnamed = own({"question": "Is it open?", "answers": ["no"]})
    ways = [
        spec.method for spec in recipes.get("book")(Options(unnamed, models=(Local.of(str(model_folder)),)))
    ]
    assert not unnamed.names_rules and unnamed.subtasks == ("my_book",) and unnamed.data != data
    assert not [way for way in ways if way["name"] == "retrieve" or way.get("rules") == "gold"]


def test_a_premise_that_its_owner_says_is_searched(own, tmp_path):
    table = 'id,rule,premise\na,"If it rains, the pool is closed.",the owner is away\nb,"If it snows, it is open.",\n'
    (tmp_path / "My Book" / "rules.csv").write_text(table)
    rules = own({"question": "Is it open?", "answers": ["no"]}).rules("test")
    assert rules.parts == {"If it rains, the pool is closed.": ("the owner is away", "the pool is closed")}
    pool = Pool(rules.ids, rules, "nl", ())
    for query, found in (("The owner is away.", [0]), ("It snows.", [1])):
        assert BothEnds().search(pool, query, 1).ids.tolist() == found


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "Open?"}, 'row 1 needs "answers", a list of texts, got None'),
        ({"question": "Open?", "answers": ["no"], "steps": [{}]}, 'row 1 has a step without "rule_ids"'),
        ({"question": "Open?", "answers": ["no"], "steps": [{"rule_ids": [7]}]}, "question 1 needs rule '7'"),
    ],
)
def test_questions_of_ones_own_say_what_is_wrong(row, message, own):
    with pytest.raises(ValueError, match=message):
        own(row).questions("my_book", "test")
