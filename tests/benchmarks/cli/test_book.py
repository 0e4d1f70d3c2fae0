"""`rwbench book`: the model in the box with a rule book that can be asked at once."""

import json
import re

from rwbench.backends.local import load_tokenizer
from rwbench.cli.models import write_book
from rwbench.models import adapter_folder, base_folder, fingerprint

from ..command import dynarule, rwbench

QUESTION = "After a feral cow haunted a rustic raccoon, how many rubbery hips does the rustic raccoon have?"


def test_the_book_is_the_shipped_model_and_rules_of_its_language(tmp_path):
    done = rwbench("book", tmp_path / "book")
    assert done.exit_code == 0 and f"dynarule generate --model {tmp_path}/book/base" in done.stderr
    assert fingerprint(tmp_path / "book/base") == fingerprint(base_folder("tiny"))
    shipped, own = adapter_folder("tiny", "dynarule-plus", "nl"), tmp_path / "book/adapter"
    for path in shipped.iterdir():
        if path.name != "adapter_config.json":
            assert (own / path.name).read_bytes() == path.read_bytes()
    before, after = (json.loads((at / "adapter_config.json").read_text()) for at in (shipped, own))
    assert before | {"base_model_name_or_path": str(tmp_path / "book/base")} == after
    tokenizer = load_tokenizer(tmp_path / "book/base")
    rules = (tmp_path / "book/rules.txt").read_text().splitlines()
    assert len(rules) == len({*rules}) == 18
    for text in [*rules, QUESTION]:
        assert not re.search("##|<unknown>", " ".join(tokenizer.tokenize(text)))  # whole words of the base


def test_answers_are_from_the_rules_as_they_are(tmp_path):
    """Three rules are found one after the other; with another third rule the answer is another."""

    def call(*words):
        return dynarule(*words, code=0).stdout

    book = tmp_path / "book"
    write_book(book)
    bank, adapter = book / "bank", ("--model", book / "base", "--adapter", book / "adapter")
    ask = ("generate", *adapter, "--rules", bank, "-q", QUESTION, "--trace")
    call("bank", "build", book / "rules.txt", "--out", bank, *adapter)
    told = call(*ask)
    found = [re.findall(r"\[(\d+)\]", part) for part in told.split("  step ")[1:]]
    assert (found[0][0], found[1][0]) == ("1", "5")
    assert set(found[2][:2]) == {"8", "14"}  # what the state gives, and how many there were
    (tmp_path / "more.txt").write_text("If A is suddenly famous, A will lose 2 rubbery hips.\n")
    call("bank", "remove", bank, "8")
    call("bank", "add", bank, tmp_path / "more.txt", "--prefix", "new-", *adapter)
    assert r"[Answer] \boxed{13}" in told and r"[Answer] \boxed{8}" in call(*ask)
