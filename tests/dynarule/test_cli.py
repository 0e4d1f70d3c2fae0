"""The command line on a tiny model: what it prints, writes and refuses."""

import json
import shutil
import sys

import pytest
import torch
from dynarule.cli.app import app
from dynarule.cli.shared import one_line
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from dynarule import (
    DynaRuleConfig,
    RuleAdapter,
    RuleBank,
    dynarule_config,
    generate,
    prepare_search,
    question_prompts,
)

from .conftest import WIDTH, FakeEncoder

RULES = [f"If A is w{i}, A will be w{i + 1}." for i in range(12)]
IDS = [str(i) for i in range(1, 13)]
pytestmark = pytest.mark.filterwarnings("ignore:.*entropy curve is noisy")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def cli(monkeypatch):
    monkeypatch.setattr("dynarule.bank.encoders.SentenceEncoder", FakeEncoder)

    def checked(*words, code=0):
        result = run(*words)
        assert result.exit_code == code, result.output
        if code == 2:
            assert result.stdout == "" and "Traceback" not in result.output
            assert len(result.stderr.strip().splitlines()) == 1, result.stderr
            return result.stderr.strip()
        return result.stdout

    return checked


def served(folder, adapter="adapter", rules="rules.txt"):
    """Options that name a folder's model, adapter and rules."""
    return ["--model", folder / "model", "--adapter", folder / adapter, "--rules", folder / rules]


def as_bank(rules=RULES, ids=IDS):
    return RuleBank.from_texts(rules, None, FakeEncoder(), ids)


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_model, tiny_tokenizer):
    tmp_path = tmp_path_factory.mktemp("made")
    model, tokenizer = tiny_model("qwen2"), tiny_tokenizer()
    model.get_output_embeddings().weight[[0, 96]] = 0
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    prepare_search(model, tokenizer)
    torch.manual_seed(1)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5))
    adapter.config.encoder = "minilm@1"
    adapter.train_search(tokenizer.get_vocab()["<search>"])
    adapter.save(tmp_path / "adapter", tokenizer)
    (tmp_path / "rules.txt").write_text("\n".join(RULES) + "\n")
    (tmp_path / "questions.txt").write_text("w11 w12\nw13\n")
    return tmp_path, model, tokenizer, adapter


@pytest.fixture
def files(made, tmp_path):
    """A base model, an adapter with its tokenizer, rules and questions, in folders of their own."""
    folder, *parts = made
    return shutil.copytree(folder, tmp_path / "files"), *parts


def test_generate_prints_what_the_library_answers(cli, files):
    folder, model, tokenizer, _ = files
    (expected,) = generate(model, tokenizer, as_bank(), ["w11 w12\n"], max_new_tokens=5)
    common = ["generate", *served(folder), "--max-new-tokens", 5]
    assert cli(*common, "-q", "w11 w12").strip() == expected.text.strip()
    traced = cli(*common, "-q", "w11 w12", "--trace", "--top", 2)
    assert "step 0, layer 2" in traced
    assert f"[{expected.trace[0].ids[0]}] {expected.trace[0].texts[0]}" in traced
    cli("bank", "build", folder / "rules.txt", "--out", folder / "bank")
    common[1:7] = served(folder, rules="bank")
    answers = json.loads(cli(*common, "--questions", folder / "questions.txt", "--json", "--trace"))[
        "answers"
    ]
    assert [a["question"] for a in answers] == ["w11 w12", "w13"] and answers[0]["answer"] == expected.text
    assert (answers[0]["trace"][0]["ids"], answers[0]["trace"][0]["step"]) == (expected.trace[0].ids, 0)


def test_what_a_search_looked_for_is_told(cli, tmp_path, tiny_model, tiny_tokenizer):
    """Of an adapter that reads tokens, looks ahead, and searches where the base writes a token of its own."""
    model, tokenizer = tiny_model("llama"), tiny_tokenizer(search=True)
    head = model.get_output_embeddings().weight.data
    head[tokenizer.convert_tokens_to_ids("<search>")] = 1.1 * head[tokenizer.convert_tokens_to_ids("w39")]
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    torch.manual_seed(3)
    settings = {"first_layer": 2, "top_k": 2, "reading": "tokens", "search_heads": 2, "lookahead": 3}
    adapter = RuleAdapter(model, dynarule_config(WIDTH, 2, **settings))
    adapter[2].lookahead.link.bias.data[-1] = 20.0  # every rule may follow every other
    adapter[2].lookahead.goal.out.weight.data.normal_()
    adapter.config.encoder, adapter.config.search_token = "minilm@1", "<search>"
    adapter.save(tmp_path / "adapter")
    (tmp_path / "rules.txt").write_text("\n".join(RULES) + "\n")
    prompts = question_prompts(tokenizer, ["w11 w12"], "\n")
    (expected,) = generate(model, tokenizer, as_bank(), prompts, max_new_tokens=5)
    question = ["generate", *served(tmp_path), "--max-new-tokens", 5, "-q", "w11 w12", "--trace"]
    traced = cli(*question)
    assert traced.startswith(expected.text.strip())
    ways = [search.way for search in expected.trace]
    names = [line.split("[")[1].split("]")[0] for line in traced.splitlines() if " then " in line]
    assert ways[0] and names == [name for way in ways for name in way]
    assert not [rule for rule in RULES if traced.count(f"] {rule}") > 1]  # a text is shown once
    (answer,) = json.loads(cli(*question, "--json"))["answers"]
    assert answer["trace"][0]["way"] == ways[0]


def test_confidence_is_measured_shown_and_stored(cli, files):
    folder, *_ = files
    common = ["confidence", *served(folder), "--questions", folder / "questions.txt"]
    shown = cli(*common)
    assert DynaRuleConfig.from_pretrained(folder / "adapter").curve is None
    assert cli(*common, "--write") == shown
    info = DynaRuleConfig.from_pretrained(folder / "adapter")
    lowest = min(info.curve["layers"], key=lambda layer: info.curve["mean"][layer])
    assert info.curve["layers"] == [0, 1, 2, 3] and info.confidence_layer == lowest
    (line,) = [line for line in shown.splitlines() if "<- confidence layer" in line]
    assert line.split()[:2] == [str(lowest), f"{info.curve['mean'][lowest]:.3f}"]
    assert f"layer {lowest} (0-based)" in cli("inspect", folder / "adapter")


def test_the_least_support_is_measured_shown_stored_and_used(cli, files):
    folder, *_ = files
    rows = [{"question": "w11 w12", "answers": ["unknown"]}, {"question": "w13", "answers": ["9"]}]
    (folder / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    common = ["support", *served(folder), "--questions", folder / "asked.jsonl", "--max-new-tokens", 3]
    (best,) = [line for line in cli(*common, "--write").splitlines() if "<- most right" in line]
    stored = DynaRuleConfig.from_pretrained(folder / "adapter").min_support
    assert stored == pytest.approx(min(float(best.split()[0]), 1), abs=1e-3) and stored > 0
    assert float(best.split()[2]) >= 0.5
    asked = ["generate", *served(folder), "--max-new-tokens", 3, "-q", "w11 w12"]
    assert cli(*asked).startswith("No rule says so.") and "unknown" not in cli(*asked, "--min-support", 0)
    rows[0]["answers"] = ["8"]
    (folder / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert 'must have the answers ["unknown"]' in run(*common).stderr


def test_banks_and_adapters_are_built_inspected_extended_and_cut(cli, files):
    folder, _, _, adapter = files
    said = cli("inspect", folder / "adapter")
    rows = 2 * 48  # of <search>, in and out
    count = sum(p.numel() for p in adapter.parameters()) + rows
    for fact in (
        f"{count:,} parameters",
        "encoder    minilm@1, width 20",
        "layers     [0, 1, 2, 3] (0-based)",
    ):
        assert fact in said
    assert "neither adapter_config.json nor bank.safetensors" in cli("inspect", folder, code=2)
    path = folder / "adapter/adapter_config.json"
    values = json.loads(path.read_text())
    for odd in ({}, {"uniform": 1}, {"uniform": "a", "confidence_layer": [2]}):
        path.write_text(json.dumps(values | {"curve": odd}))
        assert "adapter: the curve is none that" in cli("inspect", folder / "adapter", code=2)
    path.write_text(json.dumps(values | {"encoder": "a\nsupport 1"}))
    assert "encoder    a\\u000asupport 1" in cli("inspect", folder / "adapter")
    path.write_text(json.dumps(values))
    bank, more = folder / "bank", folder / "more.txt"
    cli("bank", "build", folder / "rules.txt", "--out", bank)
    said = cli("inspect", bank)
    assert "12 rules, width 20, float32\nencoder  minilm@1\n" in said and f"1  {RULES[0]}" in said
    more.write_text("If A is w50, A will be w51.\n")
    assert "rule '1' is in the bank already" in cli("bank", "add", bank, more, code=2)
    cli("bank", "add", bank, more, "--prefix", "more-")
    same = cli("bank", "add", bank, more, "--prefix", "again-", code=2)
    assert "rules 'more-1' and 'again-1' are the same text, 'If A is w50" in same
    cli("bank", "remove", bank, "3", "4")
    held = RuleBank.load(bank)
    assert sorted(held.ids) == sorted([*(set(IDS) - {"3", "4"}), "more-1"])
    assert torch.equal(
        held.keys[torch.tensor(held.row("more-1"))], FakeEncoder()([more.read_text().strip()])[0]
    )
    assert "no rule '3'" in cli("bank", "remove", bank, "3", code=2)
    assert "'bge@1'" in cli("bank", "add", bank, more, "--prefix", "x", "--encoder", "bge", code=2)
    assert "exists already" in cli("bank", "build", folder / "rules.txt", "--out", bank, code=2)
    cli("bank", "build", more, "--out", bank, "--overwrite", "--dtype", "bf16")
    assert (len(RuleBank.load(bank)), RuleBank.load(bank).dtype) == (1, torch.bfloat16)
    question = [*served(folder, rules="bank"), "-q", "w1", "--max-new-tokens", 1]
    refused = cli("generate", *question, "--encoder", "layers:2", code=2)
    assert "--encoder layers:2, but the bank" in refused and "was built with minilm" in refused


def write_questions(path, key="text", count=8, **more):
    rows = [
        {
            "question": f"w{i} w{i + 1}",
            "steps": [{key: f"w{i}", "rule_ids": [str(i)]}, {key: f"w{i}", "rule_ids": [str(i + 1)]}],
            "answers": [f"w{i}"],
        }
        | more
        for i in range(1, count + 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def training(folder, **changes):
    """Arguments of a small training on a folder's model, rules and questions."""
    small = {"max_steps": 2, "batch_size": 2, "accumulation": 1, "pool_size": 6} | changes
    words = ["train", "--model", folder / "model", "--rules", folder / "rules.txt"]
    words += ["--questions", folder / "train.jsonl"]
    return words + [part for name, value in small.items() for part in ("--set", f"{name}={value}")]


def test_two_stages_from_the_command_line(cli, files, tiny_model, tiny_tokenizer):
    """Where <search> needs a row that the base, and so the adapter of stage 1, has not."""
    folder, *_ = files
    tiny_model("qwen2", vocab_size=len(tiny_tokenizer())).save_pretrained(folder / "model")
    questions = write_questions(folder / "train.jsonl", family="mine")
    cli(*training(folder), "--out", folder / "1")
    info = DynaRuleConfig.from_pretrained(folder / "1")
    assert (info.encoder, info.encoder_dim) == ("minilm@1", WIDTH)
    recipe = json.loads((folder / "1" / "recipe.json").read_text())
    assert recipe["mix"] is None  # families are not the paper's
    cli("confidence", *served(folder, "1"), "--questions", folder / "questions.txt", "--write")
    find = [*training(folder)[:7], "--set", "max_steps=4", "--set", "evaluate_every=2"]
    stage = ["--stage", "retrieval", "--adapter", folder / "1", "--out", folder / "found"]
    cli(*find, *stage, "--held-out", questions)
    log = json.loads((folder / "found" / "retrieval.json").read_text())["log"]
    assert [entry["step"] for entry in log if "recall" in entry] == [2, 4]
    cli(*training(folder, max_steps=1), "--stage", 2, "--adapter", folder / "found", "--out", folder / "both")
    second = ["--stage", 2, "--adapter", folder / "1", "--held-out", questions]
    cli(*training(folder, max_steps=3, hard_share=1.0), *second, "--out", folder / "2")
    info, measured = (DynaRuleConfig.from_pretrained(folder / name) for name in "21")
    assert info.curve == measured.curve and info.top_k == measured.top_k
    assert info.confidence_layer == measured.confidence_layer and info.search_id == len(tiny_tokenizer())
    other = (measured.confidence_layer + 1) % 4
    cli(*training(folder, max_steps=1), *second, "--out", folder / "3", "--confidence-layer", other)
    overruled = DynaRuleConfig.from_pretrained(folder / "3")
    assert (overruled.confidence_layer, overruled.curve) == (other, None)
    log = json.loads((folder / "2" / "log.json").read_text())
    assert [entry["step"] for entry in log if "eval_recall_at_1" in entry] == [1, 2, 3]
    cli("generate", *served(folder, "2"), "-q", "w1 w2", "--max-new-tokens", 4)
    card = (folder / "2" / "README.md").read_text()
    assert "| held-out questions | 8 |" in card and "# DynaRule adapter, stage 2, for model" in card
    assert "| `<search>` | behind the header of each step but the first |" in card
    assert "| `<search>` |" not in (folder / "1" / "README.md").read_text()  # stage 1 writes none
    load = card.split("```python\n")[1].split("```")[0]  # what the card says to type
    names = {"BASE": str(folder / "model"), "ADAPTER": str(folder / "2")}
    exec(load.replace('"rules.txt"', repr(str(folder / "rules.txt"))), names)
    assert names["model"].active_peft_config.to_dict() == info.to_dict()


def test_the_model_s_own_layers_encode_its_rules(cli, files):
    """From training to serving, and in a bank, without naming the encoder again."""
    folder, *_ = files
    write_questions(folder / "train.jsonl")
    train = training(folder, max_steps=1, mix="null", pool_size=8)
    cli(*train, "--encoder", "layers:2", "--out", folder / "own")
    info = DynaRuleConfig.from_pretrained(folder / "own")
    assert info.encoder.startswith("layers:2@") and info.encoder_dim == info.base["hidden_size"]
    cli(*train, "--stage", 2, "--confidence-layer", 1, "--adapter", folder / "own", "--out", folder / "more")
    cli("generate", *served(folder, "more"), "-q", "w1 w2", "--max-new-tokens", 2)
    build = ["bank", "build", folder / "rules.txt", "--out", folder / "bank", "--encoder", "layers:2"]
    assert "is a part of the model that answers; say which with --model" in cli(*build, code=2)
    cli(*build, "--model", folder / "model")
    (folder / "more.txt").write_text("If A is w30, A will be w31.\n")
    cli("bank", "add", folder / "bank", folder / "more.txt", "--prefix", "x", "--model", folder / "model")
    assert len(RuleBank.load(folder / "bank")) == len(RULES) + 1
    cli("generate", *served(folder, "own", "bank"), "-q", "w1", "--max-new-tokens", 1)
    other = ["generate", *served(folder, "own"), "-q", "w", "--encoder", "minilm"]
    assert "width 20, the adapter reads 48" in cli(*other, code=2)


def test_training_says_what_is_wrong(cli, files):
    folder, *_ = files
    questions = write_questions(folder / "train.jsonl")
    common = ["train", "--model", folder / "model", "--rules", folder / "rules.txt", "--out", folder / "x"]
    assert "give --questions FILE" in cli(*common, code=2)
    for words, complaint in (
        (["--stage", 2], "stage 2 starts from stage 1"),
        (["--stage", 3], "--stage must be 1, retrieval or 2, got 3"),
        (["--stage", "retrieval", "--add", "muon"], "the stage retrieval has no additions"),
        (["--set", "colour=red"], "expected name=value"),
        (["--add", "moun"], "unknown addition 'moun'; there are ['muon'"),
    ):
        assert complaint in cli(*common, "--questions", questions, *words, code=2)
    assert not (folder / "x").exists()
    write_questions(questions, family="mine", key="said")
    train = [*training(folder, mix="null"), "--out", folder / "x"]
    refused = cli(*train, code=2)
    assert "every step needs 'text' (or 'nl', as RuleWorld calls it)" in refused and "'said'" in refused
    wrong = json.loads(write_questions(questions, family="mine").read_text().splitlines()[0])
    wrong["steps"][1]["rule_ids"] = ["99"]
    questions.write_text(questions.read_text() + json.dumps(wrong) + "\n")  # far behind what one step draws
    assert "rule '99' is not in" in cli(*training(folder, max_steps=1, mix="null"), *train[-2:], code=2)
    assert not (folder / "x").exists()
    write_questions(questions, family="mine", key="nl")  # as RuleWorld has it
    noise = training(folder, mix="null", learning_rate=1e38, max_steps=3)
    assert "is not finite" in cli(*noise, "--out", folder / "noise", code=2)
    train.append("--resume")
    cli(*train)  # there is nothing to resume, so it begins
    again = cli(*train, "--add", "sorted_batches", code=2)
    assert "was started with additions {}, now it is {'sorted_batches': {}}" in again


def test_errors_are_one_line(cli, files):
    folder, *_ = files

    def refused(options=None, question=("-q", "w11")):
        return cli("generate", *(options or served(folder)), *question, code=2)

    def damaged(name, file, content):
        shutil.copytree(folder / name, folder / "hurt", dirs_exist_ok=True)
        (folder / "hurt" / file).write_text(content)
        return [folder / "hurt" if word == folder / name else word for word in served(folder)]

    assert "give --question" in refused(question=())
    assert "not an adapter folder" in refused(served(folder, "none"))
    assert "no rules at" in refused(served(folder, rules="none"))
    for file, content in (("config.json", "[" * 100_000), ("model.safetensors", "x" * 99)):
        assert "cannot load the model" in refused(damaged("model", file, content))
    hurt = damaged("model", "config.json", (folder / "model" / "config.json").read_text())
    whole = load_file(folder / "model" / "model.safetensors")
    part = {name: value for name, value in whole.items() if "layers.0.mlp.up" not in name}
    save_file(part, folder / "hurt" / "model.safetensors", {"format": "pt"})
    assert "1 weights are missing, such as model.layers.0.mlp.up_proj.weight" in refused(hurt)
    assert "damaged" in refused(damaged("adapter", "adapter_config.json", "[" * 100_000))
    assert "trained with 'minilm@1'" in refused([*served(folder), "--encoder", "bge"])
    (weights,) = (folder / "adapter").glob("*.safetensors")
    whole = weights.read_bytes()
    save_file({name: value.to(torch.int8) for name, value in load_file(weights).items()}, weights)
    assert "holds I8; expected F32, F16 or BF16" in cli("inspect", folder / "adapter", code=2)
    weights.write_bytes(whole)
    weights.write_bytes(weights.read_bytes()[:200])
    assert "truncated" in refused() and "truncated" in cli("inspect", folder / "adapter", code=2)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("none", None, "no question file"),
        ("q.txt", "\n", "is empty"),
        ("q.csv", "question\nw1\n", "is no list of questions; expected .jsonl"),
        ("q.jsonl", '{"question": "w1"}\n{"question": null}\n', "row 2 has no `question`"),
        ("q.jsonl", "[" * 100_000, "is not JSON lines"),
    ],
)
def test_bad_questions_are_refused(name, content, complaint, cli, tmp_path):
    if content is not None:
        (tmp_path / name).write_text(content)
    assert complaint in cli("generate", *served(tmp_path), "--questions", tmp_path / name, code=2)


def test_ctrl_c_ends_a_command_in_words(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("dynarule.example.write_example", stop)
    result = run("example", "depot")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "dynarule: stopped\n")


def test_a_rule_book_is_written_whole_and_another_name_is_refused(cli, tmp_path):
    folder = tmp_path / "book"
    cli("example", folder, "--book", "library")
    assert sorted(path.name for path in folder.iterdir()) == ["questions.jsonl", "rules.txt"]
    rules = (folder / "rules.txt").read_text(encoding="utf-8")
    assert "If the reader is registered as a student, the reader holds a blue card.\n" in rules
    first = json.loads((folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()[0])
    line = int(first["steps"][0]["rule_ids"][0])
    assert rules.splitlines()[line - 1].endswith("runs for 13 months.")
    cli("book", "questions", folder, "--count", 4)
    drafts = [json.loads(line) for line in (folder / "drafts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(drafts) == 4 and all(draft["draft"] for draft in drafts)
    assert "it may hold corrections" in cli("book", "questions", folder, code=2)
    assert "choose a new folder" in cli("example", folder, "--book", "library", code=2)
    for name in ("libary", ""):
        refused = cli("example", tmp_path / "other", "--book", name, code=2)
        assert repr(name) in refused and "'library'" in refused
    assert not (tmp_path / "other").exists()


def test_texts_do_not_steer_the_terminal(cli, files):
    folder, *_ = files
    hostile = "If A is w1\x1b[2J\x07, A will be \x9b31m \u202ew2.\n[99] a rule that nobody gave"
    hostile += "\u200b\U000e0041"  # of no width, and a tag: nobody sees them
    lines = [f'"{rule}"' for rule in ["rule", hostile, *RULES]]
    (folder / "rules.csv").write_text("\n".join(lines), encoding="utf-8")
    bank = folder / "bank"
    built = run("bank", "build", folder / "rules.csv", "--out", bank).stderr
    common = [*served(folder, rules="bank"), "--max-new-tokens", 1, "--top", 99]
    asked = run("generate", *common, "-q", "w\u200b1", "--trace")
    texts = [
        cli("inspect", bank),
        asked.stdout,
        asked.stderr,
        cli("bank", "remove", bank, "\x1b]0;title\x07", code=2),
        cli("generate", *common, "-q", "w1", "--trace", "--json"),
    ]
    for text in texts:
        assert not set(text) & set("\x1b\x07\x9b\u202e\u200b\U000e0041")
        # nor does a rule look like another's line
        assert not any(line.lstrip().startswith("[99]") for line in text.splitlines())
    assert r"\u001b[2J" in texts[0] and r"\u200b\udb40\udc41" in texts[0]
    assert "1 of 13 rules hold characters nobody sees: " in built
    assert "1 of 1 questions hold characters nobody sees: w\\u200b1" in asked.stderr
    assert json.loads(f'"{one_line(hostile)}"') == hostile  # escapes of JSON, so nothing is lost


def test_words_that_the_model_has_no_tokens_for_are_named(cli, files):
    folder, *_ = files

    def note(question):
        return run("generate", *served(folder), "--max-new-tokens", 1, "-q", question).stderr

    assert note("w11 w12") == ""
    for name in ("model", "adapter"):
        config = json.loads((folder / name / "tokenizer_config.json").read_text())
        (folder / name / "tokenizer_config.json").write_text(json.dumps(config | {"unk_token": "w1"}))
    assert "5 of 5 words of the rules, such as If, A, is, will, be, so" in note("w11 w12")
    unknown = note("w11 which invoice")
    assert (
        "no tokens for 2 of 2 words of the questions, such as which, invoice" in unknown
        and "dynarule train --help" in unknown
    )


@pytest.mark.parametrize("extra", ["parquet", "train", "serve"])
def test_a_missing_package_is_named_by_our_extra(extra, cli, files, monkeypatch):
    folder, *_ = files
    (folder / "rules.parquet").touch()
    write_questions(folder / "train.jsonl")
    missing, command = {
        "parquet": ("pyarrow", ["generate", *served(folder, rules="rules.parquet"), "-q", "w1"]),
        "train": ("accelerate", [*training(folder), "--out", folder / "out"]),
        "serve": ("fastapi", ["serve", *served(folder)]),
    }[extra]
    monkeypatch.setitem(sys.modules, missing, None)
    assert f'pip install "dynarule[{extra}]"' in cli(*command, code=2)
