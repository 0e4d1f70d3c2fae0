"""The command line on a tiny model: what it prints, writes and refuses."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
from dynarule.cli.app import app
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

WIDTH = 20
RULES = [f"If A is w{i}, A will be w{i + 1}." for i in range(12)]


class FakeEncoder:
    """Texts to vectors that depend on every word; no model."""

    fingerprint = "fake@1"

    def __init__(self, model="minilm", fol=False):
        self.fingerprint = f"{model}@1{' fol' if fol else ''}"

    def __call__(self, texts):
        rows = [torch.randn(WIDTH, generator=torch.Generator().manual_seed(sum(map(ord, t)))) for t in texts]
        return torch.stack(rows) if rows else torch.zeros(0, WIDTH)


@pytest.fixture
def cli(monkeypatch):
    monkeypatch.setattr("dynarule.bank.encoders.SentenceEncoder", FakeEncoder)

    def run(*arguments, code=0):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == code, result.output
        if code == 2:
            assert result.stdout == ""
            assert "Traceback" not in result.output
            assert len(result.stderr.strip().splitlines()) == 1, result.stderr
            return result.stderr.strip()
        return result.stdout

    return run


@pytest.fixture
def files(tmp_path, tiny_model, tiny_tokenizer):
    """A base model, an adapter with its tokenizer, rules and questions, in folders."""
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


def served(folder):
    """Options that name the fixture's model, adapter and rules."""
    return ["--model", folder / "model", "--adapter", folder / "adapter", "--rules", folder / "rules.txt"]


def test_generate_prints_what_the_library_answers(cli, files):
    folder, model, tokenizer, _adapter = files
    bank = RuleBank.from_texts(RULES, None, FakeEncoder(), [str(i) for i in range(1, 13)])
    (expected,) = generate(model, tokenizer, bank, ["w11 w12\n"], max_new_tokens=5)
    common = ["generate", "--model", folder / "model", "--adapter", folder / "adapter", "--max-new-tokens", 5]
    plain = cli(*common, "--rules", folder / "rules.txt", "-q", "w11 w12")
    assert plain.strip() == expected.text.strip()
    told = cli(*common, "--rules", folder / "rules.txt", "-q", "w11 w12", "--trace", "--top", 2)
    assert "step 0, layer 2" in told
    assert f"[{expected.trace[0].ids[0]}] {expected.trace[0].texts[0]}" in told
    cli("bank", "build", folder / "rules.txt", "--out", folder / "bank")
    read = cli(
        *common, "--rules", folder / "bank", "--questions", folder / "questions.txt", "--json", "--trace"
    )
    answers = json.loads(read)["answers"]
    assert [a["question"] for a in answers] == ["w11 w12", "w13"]
    assert answers[0]["answer"] == expected.text
    assert answers[0]["trace"][0]["ids"] == expected.trace[0].ids
    assert answers[0]["trace"][0]["step"] == 0


def test_what_a_search_looked_for_is_told(cli, tmp_path, tiny_model, tiny_tokenizer):
    """An adapter that reads tokens, looks ahead, and searches where the base writes a token of its own."""
    model, tokenizer = tiny_model("llama"), tiny_tokenizer(search=True)
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
    bank = RuleBank.from_texts(RULES, None, FakeEncoder(), [str(i) for i in range(1, 13)])
    prompts = question_prompts(tokenizer, ["w11 w12"], "\n")
    (expected,) = generate(model, tokenizer, bank, prompts, max_new_tokens=5)
    asked = [*served(tmp_path), "--max-new-tokens", 5, "-q", "w11 w12"]
    told = cli("generate", *asked, "--trace")
    assert told.startswith(expected.text.strip())
    way = expected.trace[0].way
    assert way and [line.split("[")[1].split("]")[0] for line in told.splitlines() if " then " in line] == way
    (answer,) = json.loads(cli("generate", *asked, "--trace", "--json"))["answers"]
    assert answer["trace"][0]["way"] == way and answer["trace"][0]["backward"] == expected.trace[0].backward
    chatted = CliRunner().invoke(
        app, ["chat", *map(str, served(tmp_path)), "--max-new-tokens", "5"], "w11 w12\n"
    )
    assert "".join(f" -> [{name}]" for name in way) in chatted.stdout


@pytest.mark.filterwarnings("ignore:.*entropy curve is noisy")
def test_a_bank_beyond_exact_search_is_indexed_where_faiss_is_there(cli, files, monkeypatch):
    pytest.importorskip("faiss")
    from dynarule.bank import FaissIndex

    folder, *_ = files
    question = ["generate", *served(folder), "-q", "w11 w12", "--max-new-tokens", 5, "--json", "--trace"]
    built, build = [], FaissIndex._build
    monkeypatch.setattr(FaissIndex, "_build", lambda *given: built.append(1) or build(*given))

    def answer():
        result = CliRunner().invoke(app, [str(word) for word in question])
        return result.stdout, result.stderr.strip(), len(built)

    exact, *rest = answer()
    assert rest == ["", 0]
    monkeypatch.setattr("dynarule.bank.faiss_index.EXACT_UP_TO", len(RULES) - 1)
    monkeypatch.setattr("dynarule.bank.faiss_index.faiss_installed", lambda: False)
    note = "12 rules, all scored at every search; faster: pip install 'dynarule[faiss-cpu]'"
    assert answer() == (exact, f"dynarule: {note}", 0)
    monkeypatch.setattr("dynarule.bank.faiss_index.faiss_installed", lambda: True)
    assert answer() == (exact, "dynarule: 12 rules, building a faiss index of them", 1)
    # The entropy is over all rules, so nothing would search the index.
    cli("confidence", *served(folder), "--questions", folder / "questions.txt")
    assert len(built) == 1


@pytest.mark.filterwarnings("ignore:.*entropy curve is noisy")
def test_confidence_is_measured_shown_and_stored(cli, files):
    folder, *_ = files
    common = ["confidence", "--model", folder / "model", "--adapter", folder / "adapter"]
    common += ["--rules", folder / "rules.txt", "--questions", folder / "questions.txt"]
    curve = json.loads(cli(*common, "--json"))
    assert curve["layers"] == [0, 1, 2, 3]
    lowest = min(curve["layers"], key=lambda layer: curve["mean"][layer])
    assert curve["confidence_layer"] == lowest
    assert DynaRuleConfig.from_pretrained(folder / "adapter").curve is None
    shown = cli(*common, "--write")
    assert next(line for line in shown.splitlines() if "<- confidence layer" in line).split()[0] == str(
        lowest
    )
    info = DynaRuleConfig.from_pretrained(folder / "adapter")
    assert (info.confidence_layer, info.curve) == (lowest, curve)
    assert f"layer {lowest} (0-based)" in cli("inspect", folder / "adapter")


def test_inspect_tells_adapters_from_banks(cli, files):
    folder, _, _, adapter = files
    told = json.loads(cli("inspect", folder / "adapter", "--json"))
    assert told["kind"] == "adapter"
    assert told["layers"] == [0, 1, 2, 3]
    assert told["encoder"] == "minilm@1"
    rows = 2 * 48  # of <search>, in and out
    assert told["parameters"] == sum(p.numel() for p in adapter.parameters()) + rows
    assert told["tensors"]["base_model.model.model.layers.0.self_attn.dynarule_projection.k.weight"] == [
        48,
        20,
    ]
    assert "adapter of" in cli("inspect", folder / "adapter")
    cli("bank", "build", folder / "rules.txt", "--out", folder / "bank")
    assert json.loads(cli("inspect", folder / "bank", "--json"))["kind"] == "bank"
    assert "neither adapter_config.json nor bank.safetensors" in cli("inspect", folder, code=2)


def test_banks_are_built_extended_and_cut(cli, files):
    folder, *_ = files
    bank = folder / "bank"
    cli("bank", "build", folder / "rules.txt", "--out", bank)
    told = json.loads(cli("inspect", bank, "--json"))
    assert (told["rules"], told["width"], told["encoder"]) == (12, WIDTH, "minilm@1")
    assert told["first"][0] == {"id": "1", "text": RULES[0]}
    assert "12 rules, width 20" in cli("inspect", bank)
    (folder / "more.txt").write_text("If A is w50, A will be w51.\n")
    assert "rule '1' is in the bank already" in cli("bank", "add", bank, folder / "more.txt", code=2)
    cli("bank", "add", bank, folder / "more.txt", "--prefix", "more-")
    same = cli("bank", "add", bank, folder / "more.txt", "--prefix", "again-", code=2)
    assert "rules 'more-1' and 'again-1' are the same text, 'If A is w50" in same
    cli("bank", "remove", bank, "3", "4")
    held = RuleBank.load(bank)
    assert sorted(held.ids) == sorted([str(i) for i in range(1, 13) if i not in (3, 4)] + ["more-1"])
    new = held.row("more-1")
    assert torch.equal(held.keys_MP[new], FakeEncoder()(["If A is w50, A will be w51."])[0])
    assert "no rule '3'" in cli("bank", "remove", bank, "3", code=2)
    other = cli("bank", "add", bank, folder / "more.txt", "--prefix", "x", "--encoder", "bge", code=2)
    assert "'bge@1'" in other
    assert "exists already" in cli("bank", "build", folder / "rules.txt", "--out", bank, code=2)
    cli("bank", "build", folder / "more.txt", "--out", bank, "--overwrite", "--fol")
    assert RuleBank.load(bank).encoder == "minilm@1 fol"


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


def sets(**changes):
    small = {"max_steps": 2, "batch_size": 2, "accumulation": 1, "pool_size": 6} | changes
    return [part for name, value in small.items() for part in ("--set", f"{name}={value}")]


@pytest.mark.parametrize("spare", (True, False))
@pytest.mark.filterwarnings("ignore:.*entropy curve is noisy")
def test_two_stages_from_the_command_line(cli, files, tiny_model, tiny_tokenizer, spare):
    """Also where <search> needs a row that the base, and so the adapter of stage 1, has not."""
    folder, *_ = files
    if not spare:
        tiny_model("qwen2", vocab_size=len(tiny_tokenizer())).save_pretrained(folder / "model")
    questions = write_questions(folder / "train.jsonl", family="mine")
    common = ["train", "--model", folder / "model", "--rules", folder / "rules.txt", "--questions", questions]
    cli(*common, "--out", folder / "1", *sets())
    info = DynaRuleConfig.from_pretrained(folder / "1")
    assert (info.encoder, info.encoder_dim) == ("minilm@1", WIDTH)
    assert (
        json.loads((folder / "1" / "recipe.json").read_text())["mix"] is None
    )  # families are not the paper's
    stage1 = ["--model", folder / "model", "--adapter", folder / "1", "--rules", folder / "rules.txt"]
    cli("confidence", *stage1, "--questions", folder / "questions.txt", "--write")
    second = [*common, "--stage", 2, "--adapter", folder / "1", "--held-out", questions]
    cli(*second, "--out", folder / "2", *sets(max_steps=3, hard_share=1.0))
    info = DynaRuleConfig.from_pretrained(folder / "2")
    measured = DynaRuleConfig.from_pretrained(folder / "1")
    assert info.curve == measured.curve and info.top_k == measured.top_k
    assert info.confidence_layer == measured.confidence_layer
    assert info.search_id == len(tiny_tokenizer())
    other = (measured.confidence_layer + 1) % 4
    cli(*second, "--out", folder / "3", *sets(max_steps=1), "--confidence-layer", other)
    overruled = DynaRuleConfig.from_pretrained(folder / "3")
    assert (overruled.confidence_layer, overruled.curve) == (other, None)
    log = json.loads((folder / "2" / "log.json").read_text())
    assert [entry["step"] for entry in log if "eval_recall_at_1" in entry] == [1, 2, 3]
    stage2 = ["--model", folder / "model", "--adapter", folder / "2", "--rules", folder / "rules.txt"]
    cli("generate", *stage2, "-q", "w1 w2", "--max-new-tokens", 4)
    card = (folder / "2" / "README.md").read_text()
    assert "| held-out questions | 8 |" in card and "# DynaRule adapter, stage 2, for model" in card
    assert "| `<search>` | between steps |" in card
    assert "| `<search>` |" not in (folder / "1" / "README.md").read_text()  # stage 1 writes none
    load = card.split("```python\n")[1].split("```")[0]  # what the card says to type
    names = {"BASE": str(folder / "model"), "ADAPTER": str(folder / "2")}
    load = load.replace('"rules.txt"', repr(str(folder / "rules.txt")))
    exec(load, names)
    assert names["model"].active_peft_config.to_dict() == info.to_dict()


def test_an_encoder_beside_a_bank_or_an_adapter_must_be_theirs(cli, files):
    folder, *_ = files
    bank = folder / "bank"
    common = ["--model", folder / "model", "--adapter", folder / "adapter", "-q", "w1"]
    cli("bank", "build", folder / "rules.txt", "--out", bank)
    told = cli("generate", *common, "--rules", bank, "--encoder", "layers:2", code=2)
    assert "--encoder layers:2, but the bank" in told and "was built with minilm" in told
    cli("generate", *common, "--rules", bank, "--encoder", "minilm", "--max-new-tokens", 1)


def test_resuming_with_an_addition_that_was_not_there_is_refused(cli, files):
    folder, *_ = files
    questions = write_questions(folder / "train.jsonl")
    run = ["train", "--model", folder / "model", "--rules", folder / "rules.txt", "--questions", questions]
    run += ["--adapter", folder / "adapter", "--stage", 2, *sets(max_steps=2, mix="null", pool_size="8")]
    cli(*run, "--out", folder / "run")
    told = cli(*run, "--out", folder / "run", "--resume", "--add", "sorted_batches", code=2)
    assert "was started with additions {}, now it is {'sorted_batches': {}}" in told


def test_chat_reads_the_rules_as_they_are_now(cli, files):
    """A rule that was added is found, one that was removed is not, and a slip ends nothing."""
    folder, model, tokenizer, _adapter = files
    more = "If A is green, A will be blue."
    said = ["w11 w12", f"+ {more}", "rules GREEN", "-1", "- 99", "+", "w11 w12", "quit", "w1"]
    words = ["chat", "--model", folder / "model", "--adapter", folder / "adapter", "--top", 99]
    words += ["--rules", folder / "rules.txt", "--max-new-tokens", 5]
    result = CliRunner().invoke(app, [str(word) for word in words], input="\n\n".join(said) + "\n")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    places = [lines.index(line) for line in ("added [13], 13 rules", f"[13] {more}", "12 rules")]
    assert places == sorted(places)
    assert "99" in result.stderr and "type for example: + If" in result.stderr

    def answer(rules, ids):
        bank = RuleBank.from_texts(rules, None, FakeEncoder(), list(map(str, ids)))
        return generate(model, tokenizer, bank, ["w11 w12\n"], max_new_tokens=5)[0]

    wanted = answer(RULES, range(1, 13)), answer([*RULES[1:], more], range(2, 14))
    # The model's random answers do not open with <search>, so the prompt's rules are those of step 1.
    steps = [line for line in lines if line.startswith("  step 1: ")]
    for line, each in zip(steps, wanted, strict=True):
        assert set(re.findall(r"\[(\d+)\]", line)) == set(each.trace[0].ids)
        assert each.text.strip() in lines


def test_the_model_s_own_layers_encode_its_rules(cli, files):
    """From training to serving, and in a bank, without naming the encoder again."""
    folder, *_ = files
    common = ["--model", folder / "model", "--rules", folder / "rules.txt"]
    questions = write_questions(folder / "train.jsonl")
    run = [*common, "--questions", questions, *sets(max_steps=1, mix="null", pool_size="8")]
    cli("train", *run, "--encoder", "layers:2", "--out", folder / "own")
    info = DynaRuleConfig.from_pretrained(folder / "own")
    assert info.encoder.startswith("layers:2@") and info.encoder_dim == info.base["hidden_size"]
    second = ["--stage", 2, "--confidence-layer", 1]
    cli("train", *run, *second, "--adapter", folder / "own", "--out", folder / "more")
    card = (folder / "more" / "README.md").read_text()
    assert "| `<search>` | between steps |" in card
    cli("generate", *common, "--adapter", folder / "more", "-q", "w1 w2", "--max-new-tokens", 2)
    bank = folder / "bank"
    told = cli("bank", "build", folder / "rules.txt", "--out", bank, "--encoder", "layers:2", code=2)
    assert "is a part of the model that answers; say which with --model" in told
    named = ["--encoder", "layers:2", "--model", folder / "model"]
    cli("bank", "build", folder / "rules.txt", "--out", bank, *named)
    (folder / "more.txt").write_text("If A is w30, A will be w31.\n")
    cli("bank", "add", bank, folder / "more.txt", "--prefix", "x", "--model", folder / "model")
    assert len(RuleBank.load(bank)) == len(RULES) + 1
    cli("generate", "--model", folder / "model", "--rules", bank, "--adapter", folder / "own", "-q", "w1")
    assert "width 20, the adapter reads 48" in cli(
        "generate", *common, "--adapter", folder / "own", "-q", "w", "--encoder", "minilm", code=2
    )


def test_training_says_what_is_wrong(cli, files):
    folder, *_ = files
    questions = write_questions(folder / "train.jsonl")
    common = ["train", "--model", folder / "model", "--rules", folder / "rules.txt", "--out", folder / "x"]
    assert "give --questions FILE" in cli(*common, code=2)
    common += ["--questions", questions]
    assert "stage 2 starts from stage 1" in cli(*common, "--stage", 2, code=2)
    assert "expected name=value" in cli(*common, "--set", "colour=red", code=2)
    assert "method must be one of ['dynarule', 'srki', 'kblam'], got 'rag'" in cli(
        *common, "--method", "rag", code=2
    )
    assert "temperature must be positive, got -1" in cli(*common, "--set", "temperature=-1", code=2)
    assert "unknown addition 'moun'; there are ['muon'" in cli(*common, "--add", "moun", code=2)
    assert "value_rate must be positive" in cli(*common, "--add", "muon:value_rate=0", code=2)
    assert not (folder / "x").exists()
    write_questions(questions, family="mine", key="said")
    told = cli(*common, *sets(mix="null"), code=2)
    assert (
        "every step needs 'text' and 'rule_ids', step 1 of 'w" in told and "has ['rule_ids', 'said']" in told
    )
    cli(*common[:-1], questions, *sets(mix="null"), "--step-text", "said", "--resume")  # which begins
    assert (folder / "x" / "README.md").is_file()


def test_errors_are_one_line(cli, files):
    folder, *_ = files
    model, adapter, rules = folder / "model", folder / "adapter", folder / "rules.txt"

    def asked(model=model, adapter=adapter, rules=rules, question=("-q", "w11"), more=()):
        return cli(
            "generate", "--model", model, "--adapter", adapter, "--rules", rules, *question, *more, code=2
        )

    assert "give --question" in asked(question=())
    assert "not an adapter folder" in asked(adapter=folder / "none")
    assert "no rules at" in asked(rules=folder / "none")
    assert "cannot load the model" in asked(model=folder / "none")
    for name, content in (
        ("config.json", "[" * 100_000),
        ("config.json", "[]"),
        ("model.safetensors", "x" * 99),
    ):
        hurt = shutil.copytree(model, folder / "hurt", dirs_exist_ok=True)
        (hurt / name).write_text(content)
        assert "cannot load the model" in asked(model=hurt)
    for content in (
        "[" * 100_000,
        '{"base": {"model_type": "qwen2"}}',
        '{"encoder_dim": 20, "length_shift": NaN}',
    ):
        hurt = shutil.copytree(adapter, folder / "hurt-adapter", dirs_exist_ok=True)
        (hurt / "adapter_config.json").write_text(content)
        assert "damaged" in (told := asked(adapter=hurt)) or "must be" in told
    assert "trained with 'minilm@1'" in asked(more=("--encoder", "bge"))
    assert "no question file" in asked(question=("--questions", folder / "none"))
    (folder / "empty.txt").write_text("\n")
    assert "is empty" in asked(question=("--questions", folder / "empty.txt"))
    assert "holds no rules" in asked(rules=folder / "empty.txt")
    (folder / "bad.jsonl").write_text('{"text": "x"}\n')
    assert "row 1 has no `question`" in asked(question=("--questions", folder / "bad.jsonl"))
    (weights,) = adapter.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:200])
    assert "truncated" in asked()
    assert "truncated" in cli("inspect", adapter, code=2)


def test_ctrl_c_ends_a_command_in_words(cli, monkeypatch):
    monkeypatch.setattr(
        "dynarule.example.write_example", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    result = CliRunner().invoke(app, ["example", "depot"])
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "dynarule: stopped\n")


def test_a_rule_book_is_written_whole_and_another_name_is_refused(cli, tmp_path):
    folder = tmp_path / "book"
    cli("example", folder, "--book", "library")
    assert sorted(path.name for path in folder.iterdir()) == ["questions.jsonl", "rules.txt"]
    rules = (folder / "rules.txt").read_text(encoding="utf-8")
    assert "If the reader is registered as a student, the reader holds a blue card.\n" in rules
    assert "choose a new folder" in cli("example", folder, "--book", "library", code=2)
    for name in ("libary", ""):
        told = cli("example", tmp_path / "other", "--book", name, code=2)
        assert repr(name) in told and "'library'" in told
    assert not (tmp_path / "other").exists()


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom dynarule.cli.app import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as e:\n    assert not e.code\n"
        "heavy = {'torch', 'transformers', 'numpy', 'pyarrow', 'peft'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in ("generate", "confidence", "inspect", "bank", "train", "example"):
        assert command in done.stdout


def test_texts_do_not_steer_the_terminal(cli, files):
    folder, *_ = files
    hostile = "If A is w1\x1b[2J\x07, A will be \x9b31m \u202ew2.\n[99] a rule that nobody gave"
    (folder / "rules.csv").write_text(
        "\n".join(f'"{rule}"' for rule in ["rule", hostile, *RULES]), encoding="utf-8"
    )
    bank = folder / "bank"
    cli("bank", "build", folder / "rules.csv", "--out", bank)
    common = [
        "--model",
        folder / "model",
        "--adapter",
        folder / "adapter",
        "--rules",
        bank,
        "--max-new-tokens",
        1,
    ]
    told = [
        cli("inspect", bank),
        cli("inspect", bank),
        cli("generate", *common, "-q", "w1", "--trace", "--top", 99),
    ]
    told += [cli("bank", "remove", bank, "\x1b]0;title\x07", code=2)]
    words = [str(word) for word in ["chat", *common, "--top", 99]]
    result = CliRunner().invoke(app, words, input="rules\nw1\n")
    told += [result.stdout, result.stderr]
    for text in told:
        assert not set(text) & set("\x1b\x07\x9b\u202e")
        assert not any(
            line.lstrip().startswith("[99]") for line in text.splitlines()
        )  # nor look like a rule's line
    assert r"\u001b[2J" in told[0]
    written = [cli("inspect", bank, "--json"), cli("generate", *common, "-q", "w1", "--trace", "--json")]
    for text in written:
        assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert json.loads(written[0])["first"][0]["text"] == hostile  # escapes of JSON, so nothing is lost


def test_no_library_reads_what_is_typed_for_the_chat(cli, files, monkeypatch):
    """As transformers does, to ask whether it may run code of a folder."""
    from dynarule.cli import loading

    folder, *_ = files
    asked, load = [], loading.load_model

    def asking(*arguments):
        try:
            asked.append(input("Do you wish to run the custom code? [y/N] "))
        except EOFError:
            asked.append(None)
        return load(*arguments)

    monkeypatch.setattr(loading, "load_model", asking)
    words = [
        "chat",
        *served(folder),
    ]
    result = CliRunner().invoke(app, [str(word) for word in words], input="yes\nrules w11,\n")
    assert asked == [None] and "[12] If A is w11" in result.stdout, result.output


def test_words_that_the_model_has_no_tokens_for_are_named(cli, files):
    folder, *_ = files
    words = ["generate", *served(folder)]
    words += ["--max-new-tokens", 1, "-q"]

    def told(question):
        return CliRunner().invoke(app, [str(word) for word in [*words, question]]).stderr

    assert told("w11 w12") == ""
    for name in ("model", "adapter"):
        config = json.loads((folder / name / "tokenizer_config.json").read_text())
        (folder / name / "tokenizer_config.json").write_text(json.dumps(config | {"unk_token": "w1"}))
    assert told("w11 w12") == ""
    note = told("w11 which invoice")
    assert "no tokens for 2 of 2 words, such as which, invoice" in note and "dynarule train --help" in note


def test_a_rare_name_in_parts_is_no_unknown_word(capsys):
    from dynarule.cli import loading

    class InPieces:
        """Of two letters, as a language model has a rare name; letter by letter, what it does not know."""

        unk_token_id = None

        def __call__(self, text, **_):
            size = 2 if text.strip() == "Anouk" else 1
            return {"input_ids": list(range(-(-len(text.strip()) // size)))}

    loading.warn_of_unknown(InPieces(), ["Anouk"])
    assert capsys.readouterr().err == ""
    loading.warn_of_unknown(InPieces(), ["Anouk invoice"])
    assert "1 of 2 words, such as invoice" in capsys.readouterr().err


def test_an_empty_question_is_refused(cli, files):
    folder, *_ = files
    words = ["generate", *served(folder)]
    assert "question 0 is empty" in cli(*words, "-q", " ", code=2)
    (folder / "q.jsonl").write_text('{"question": "w1"}\n{"question": null}\n')
    assert "row 2 has no `question`" in cli(*words, "--questions", folder / "q.jsonl", code=2)
    assert "question 0 holds half a surrogate pair" in cli(
        *words, "-q", "w1 \udcc3", code=2
    )  # LC_ALL=C, an old locale
    (folder / "q.jsonl").write_text('{"question": "w1", "steps": [{"text": "\\ud800"}]}\n')
    assert "is not JSON lines: 'utf-8' codec can't encode" in cli(
        *words, "--questions", folder / "q.jsonl", code=2
    )
    (folder / "q.csv").write_text("question\nw1\n")
    assert "is no list of questions; expected .jsonl" in cli(*words, "--questions", folder / "q.csv", code=2)
    (folder / "q.txt").write_text("%PDF-1.4\n")
    assert "is a PDF; save it as UTF-8 text" in cli(*words, "--questions", folder / "q.txt", code=2)
    (folder / "q.jsonl").write_text("[" * 100_000)
    assert "is not JSON lines" in cli(*words, "--questions", folder / "q.jsonl", code=2)


@pytest.mark.parametrize(("missing", "extra"), [("pyarrow", "parquet"), ("accelerate", "train")])
def test_a_missing_package_is_named_by_our_extra(missing, extra, cli, files, monkeypatch):
    folder, *_ = files
    (folder / "rules.parquet").touch()
    questions = write_questions(folder / "train.jsonl")
    monkeypatch.setitem(sys.modules, missing, None)
    common = ["--model", folder / "model", "--adapter", folder / "adapter", "--rules"]
    command = ["generate", *common, folder / "rules.parquet", "-q", "w1"]
    if extra == "train":
        command = ["train", *common, folder / "rules.txt", "--questions", questions, "--out", folder / "out"]
    assert f'pip install "dynarule[{extra}]"' in cli(*command, code=2)
