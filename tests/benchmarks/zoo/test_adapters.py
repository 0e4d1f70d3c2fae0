"""Adapters for a base: every method through both stages, into a folder that the benchmark's methods load."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rwbench.backends.local import Local, load_fresh
from rwbench.methods.plus import DynaRulePlus, Planned, Searched
from rwbench.models import adapter_folder, step_mark
from rwbench.models.reader import load_reader
from rwbench.retrievers import Retriever
from rwbench.retrievers.both_ends import BothEnds
from rwbench.run.data import DataSource, select
from rwbench.run.pools import Pool
from rwbench.score.results import find_results
from rwbench.zoo.adapters.recipe import METHODS, PLUS, AdapterRecipe, read_recipe
from rwbench.zoo.adapters.train import train_adapter, training_rows
from rwbench.zoo.base.model import new_base
from rwbench.zoo.base.recipe import Shape
from rwbench.zoo.base.tokenizer import STEP, build_tokenizer
from safetensors.torch import load_file
from typer.testing import CliRunner

from dynarule import DynaRuleConfig

PAPERS = tuple(method for method in METHODS if method != PLUS)
ROOT = Path(__file__).parents[3]
QUICK = {"max_steps": 2, "batch_size": 4, "accumulation": 1}


def quick_recipe(**changes):
    """Two steps a stage; rules are encoded by a layer of the small base, which takes no time."""
    values = {
        "stages": ({"stage": 1, "pool_size": (20, 40)} | QUICK, {"stage": 2, "pool_size": (40, 60)} | QUICK),
        "scale": "tiny",
        "subtasks": ("single_rule", "multi_rule_2", "multi_hop_2"),
        "per_subtask": 4,
        "held_out": 2,
        "top_k": 8,
        "entropy_questions": 4,
        "encoder": "layers:1",
    }
    return AdapterRecipe("quick", **values | changes)


@pytest.fixture(scope="module")
def model(vocabulary, tmp_path_factory):
    """A random base as a model folder."""
    folder = tmp_path_factory.mktemp("model")
    shape = Shape(hidden=32, layers=4, heads=4, kv_heads=2, feed_forward=48, positions=1024)
    base = new_base(shape, vocabulary, 0)
    base.save_pretrained(folder / "base")
    build_tokenizer(vocabulary, 1024).save_pretrained(folder / "base")
    return folder


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.filterwarnings("ignore:.*entropy curve is noisy")
@pytest.mark.parametrize(
    ("method", "encoder"),
    [*((method, "layers:1") for method in PAPERS), pytest.param("srki", "minilm", marks=pytest.mark.slow)],
)
def test_both_stages_make_an_adapter_that_the_benchmark_finds(model, method, encoder, tmp_path):
    recipe = quick_recipe(encoder=encoder, memory={"every": 1})
    folder = train_adapter(recipe, str(model), method, "nl", tmp_path / method)
    config = DynaRuleConfig.from_pretrained(folder)
    assert json.loads((folder / "adapters.json").read_text())["name"] == "quick"
    assert (config.search_id is not None) == (method == "dynarule")
    assert (config.confidence_layer is not None) == (method != "kblam")
    assert config.top_k == (None if method == "kblam" else 8)
    assert config.layers(4) == [0, 1, 2, 3]  # as the recipe says; KBLaM's own are every third
    assert (
        config.base_model_name_or_path == f"./{model.name}"
        and str(model) not in (folder / "README.md").read_text()
    )
    assert not list(folder.glob("checkpoint-*"))
    card = (folder / "README.md").read_text()
    first, second = ("", "") if method == "kblam" else ("stage 1: ", "stage 2: ")
    assert f"1. {first}2 steps of 4 questions, 20 to 40 rules" in card
    assert f"2. {second}2 steps of 4 questions, 40 to 60 rules" in card
    shutil.copytree(folder, model / f"{method}-nl")
    assert adapter_folder(str(model), method, "nl") == model / f"{method}-nl"
    assert adapter_folder(str(model), method, "fol") is None


def test_finding_alone_makes_an_adapter_that_answers_among_rules(model, tmp_path, capfd):
    memory = {"first_layer": 1, "reading": "tokens", "search_heads": 2, "lookahead": 2}
    stage = {"stage": "retrieval", "max_steps": 4, "batch_size": 8, "pool_size": 30, "evaluate_every": 2}
    recipe = quick_recipe(stages=(stage,), confidence_layer=1, encoder="layers:1+premise", memory=memory)
    folder = train_adapter(recipe, str(model), PLUS, "nl", tmp_path)
    assert capfd.readouterr().err.count("recall_state") == 2
    config = DynaRuleConfig.from_pretrained(folder)
    assert (config.search_token, config.search_id, config.reading) == ("<step>", None, "tokens")
    card = (folder / "README.md").read_text()
    log = json.loads((folder / "retrieval.json").read_text())["log"]
    assert all(
        f"| {entry['step']} | {entry['recall']:.3f} | {entry['recall_state']:.3f} |" in card for entry in log
    )
    assert "4, 32 searches in all" in card.replace("| steps | ", "") and "| backward levels | 2, " in card
    with pytest.raises(FileExistsError, match="holds a training"):
        train_adapter(recipe, str(model), PLUS, "nl", tmp_path)
    trained, halves = (
        load_file(each / "adapter_model.safetensors") for each in (tmp_path / "1", folder)
    )  # stored half as large
    for name, value in trained.items():
        assert halves[name].dtype == torch.float16
        torch.testing.assert_close(halves[name].float(), value.float(), rtol=1e-3, atol=1e-6)
    weights = (folder / "adapter_model.safetensors").read_bytes()
    assert (train_adapter(recipe, str(model), PLUS, "nl", tmp_path, resume=True)) == folder
    assert (folder / "adapter_model.safetensors").read_bytes() == weights
    shutil.copytree(folder, model / f"{PLUS}-nl")
    method = DynaRulePlus.of(Local.of(str(model)), "nl", max_new_tokens=12)
    assert method.missing() is None and method.label.startswith("DynaRule+, ")
    source = DataSource("tiny")
    rules, asked = source.rules("test"), select(source.questions("multi_hop_2", "test"), 2)
    pool = Pool(rules.ids[:60], rules, "nl", tuple(asked))
    answers = list(method.answer([(pool, question) for question in asked], 3))
    assert all(1 <= len(ids) <= 3 and set(ids) <= set(pool.ids) for each in answers for ids in each.retrieved)
    fewer = replace(method, kept=2)
    assert fewer.label == f"{method.label}, 2 kept" and "kept" not in method.to_dict()
    answers = list(fewer.answer([(pool, question) for question in asked], 3))
    assert {len(ids) for each in answers for ids in each.retrieved} <= {1, 2}
    load_reader.cache_clear()


def test_a_finished_stage_is_not_trained_again(model, tmp_path):
    """Killed in the second stage: the first one's adapter is read, and the end is that of an undisturbed training."""
    from safetensors.torch import load_file

    recipe = quick_recipe(confidence_layer=2, opening=True, subtasks=("single_rule", "multi_hop_2"))
    recipe = replace(recipe, stages=tuple(stage | {"mix": None} for stage in recipe.stages))
    whole = train_adapter(recipe, str(model), "dynarule", "nl", tmp_path / "whole")
    shutil.copytree(tmp_path / "whole" / "1", tmp_path / "parts" / "1")
    before = (tmp_path / "parts" / "1" / "log.json").stat().st_mtime_ns
    parts = train_adapter(recipe, str(model), "dynarule", "nl", tmp_path / "parts", resume=True)
    assert (tmp_path / "parts" / "1" / "log.json").stat().st_mtime_ns == before
    assert "An opening `<search>` looks for the first step's rules" in (whole / "README.md").read_text()
    (name,) = [path.name for path in whole.glob("*.safetensors")]
    ours, theirs = load_file(parts / name), load_file(whole / name)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
    # Killed before the adapter was written: the log alone is no finished stage.
    for path in (tmp_path / "whole" / "1").iterdir():
        if path.name == "README.md" or path.name.startswith("adapter"):
            path.unlink()
    shutil.rmtree(tmp_path / "whole" / "2")
    again = train_adapter(recipe, str(model), "dynarule", "nl", tmp_path / "whole", resume=True)
    assert (tmp_path / "whole" / "1" / "adapter_config.json").is_file()
    theirs = load_file(again / name)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    other = replace(recipe, stages=(recipe.stages[0] | {"max_steps": 3}, recipe.stages[1]))
    with pytest.raises(ValueError, match="trained with max_steps 2, now it is 3"):
        train_adapter(other, str(model), "dynarule", "nl", tmp_path / "parts", resume=True)


def test_a_folder_belongs_to_the_training_that_began_it(model, tmp_path):
    """Neither a second start nor another recipe changes it; a stage trained on other embeddings is not read."""
    recipe = quick_recipe(confidence_layer=2, encoder="layers:2", subtasks=("single_rule", "multi_hop_2"))
    recipe = replace(recipe, stages=tuple(stage | {"mix": None} for stage in recipe.stages))
    out = tmp_path / "run"
    train_adapter(recipe, str(model), "srki", "nl", out)
    started = (out / "started.json").read_bytes()
    other = replace(recipe, opening=True)
    with pytest.raises(FileExistsError, match="--resume"):
        train_adapter(other, str(model), "srki", "nl", out)
    with pytest.raises(ValueError, match="trained with opening False, now it is True"):
        train_adapter(other, str(model), "srki", "nl", out, resume=True)
    assert (out / "started.json").read_bytes() == started

    from rwbench.backends.local import load_fresh

    base, tokenizer = load_fresh(model / "base")
    with torch.no_grad():
        base.model.layers[0].mlp.up_proj.weight += 1
    moved = tmp_path / "moved"
    base.save_pretrained(moved / "base")
    tokenizer.save_pretrained(moved / "base")
    with pytest.raises(ValueError, match="trained on rules encoded by"):
        train_adapter(recipe, str(moved), "srki", "nl", out, resume=True)


def test_the_memory_methods_run_in_fp32_on_a_cpu(model, tmp_path):
    from rwbench.backends.local import load_fresh

    own = tmp_path / "half"
    base, tokenizer = load_fresh(model / "base")
    base.to(torch.bfloat16).save_pretrained(own / "base")
    tokenizer.save_pretrained(own / "base")
    quick = quick_recipe(stages=quick_recipe().stages[:1], subtasks=("single_rule",))
    quick = replace(quick, stages=(quick.stages[0] | {"mix": None},))
    folder = train_adapter(quick, str(own), "kblam", "nl", tmp_path / "out")
    shutil.copytree(folder, own / "kblam-nl")
    reader = load_reader(str(own), "kblam", "nl")
    assert json.loads((own / "base" / "config.json").read_text())["dtype"] == "bfloat16"
    assert reader.model.dtype == torch.float32
    load_reader.cache_clear()


@pytest.mark.filterwarnings("ignore:.*entropy curve is noisy")
def test_search_inherits_the_end_of_a_step(model, tmp_path):
    """Before training moves it, the row of <search> is the row of the base's <step>."""
    from rwbench.backends.local import load_fresh
    from rwbench.zoo.adapters.train import inherit_step

    base, tokenizer = load_fresh(model / "base")
    inherit_step(base, tokenizer, STEP)
    rows = base.get_input_embeddings().weight
    search, step = (tokenizer.convert_tokens_to_ids(token) for token in ("<search>", STEP))
    assert search != step and torch.equal(rows[search], rows[step])


def test_steps_begin_with_the_mark_that_a_model_was_taught(model, tmp_path):
    """The mark of a pretrained model is one of its own tokens, which its prompt names; no other token is one."""
    tokenizer = load_fresh(model / "base")[1]
    assert step_mark(str(model), tokenizer) == STEP
    taught = shutil.copytree(model, tmp_path / "taught")
    prompt = (ROOT / "benchmarks/src/rwbench/models/tiny/base/prompt.toml").read_text()
    (taught / "base" / "prompt.toml").write_text(prompt.replace(STEP, "<pad>"))
    assert step_mark(str(taught), tokenizer) == "<pad>"
    (taught / "base" / "prompt.toml").write_text(prompt.replace(STEP, "<of another>"))
    assert step_mark(str(taught), tokenizer) == STEP

    class Untaught:
        def get_vocab(self):
            return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "rwbench.zoo.adapters.train.load_fresh", lambda folder: (load_fresh(folder)[0], Untaught())
        )
        with pytest.raises(ValueError, match="was taught no mark for it"):
            recipe = quick_recipe(stages=({"stage": "retrieval"},), confidence_layer=1)
            train_adapter(recipe, str(model), PLUS, "nl", tmp_path / "none")


def test_rows_name_rules_as_text_and_come_from_the_split():
    rows = training_rows(quick_recipe(), "validation", 2)
    assert len(rows) == 6 and {row["subtask"] for row in rows} == set(quick_recipe().subtasks)
    assert all(isinstance(rule, str) for row in rows for step in row["steps"] for rule in step["rule_ids"])


def test_a_recipe_of_unknown_data_is_refused():
    with pytest.raises(ValueError, match=r"unknown data version '1\.2'"):
        quick_recipe(data="1.2")


def test_unknown_names_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match=r"'ragg'.*dynarule"):
        train_adapter(quick_recipe(), str(model), "ragg", "nl", tmp_path)
    with pytest.raises(ValueError, match="representation"):
        train_adapter(quick_recipe(), str(model), "kblam", "both", tmp_path)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks/adapters").glob("*.toml")), ids=lambda path: path.stem
)
def test_recipes_in_the_repository_can_be_read(path):
    recipe = read_recipe(path)
    if path.stem.startswith("plus"):
        assert len(recipe.trainings(PLUS)) == 1
        return
    for method in PAPERS:
        last = recipe.in_form("nl").trainings(method)[-1]
        assert last.retrieves == (method != "kblam") and last.searches == (method == "dynarule")


def test_a_seed_and_an_encoder_given_take_the_place_of_the_recipes(monkeypatch, tmp_path):
    from rwbench.cli.app import app
    from rwbench.zoo.adapters import train

    asked = []
    monkeypatch.setattr(train, "train_adapter", lambda plan, *_: asked.append(plan) or tmp_path)
    recipe = ROOT / "benchmarks/adapters/kblam.toml"
    command = ["adapters", "train", str(recipe), "--method", "kblam", "--representation", "nl", "--out", "x"]
    for more in ([], ["--seed", "3", "--encoder", "minilm+premise"]):
        assert CliRunner().invoke(app, command + more).exit_code == 0
    own = read_recipe(recipe)
    assert asked == [own, replace(own, training_seed=3, encoder="minilm+premise")]


SHIPPED = [(method, form) for method in METHODS for form in ("fol", "nl")]
FURTHER = sorted((ROOT / "benchmarks/results/seeds").glob("*-seed-*")) + sorted(
    (ROOT / "benchmarks/results/seeds").glob("*-minilm-*")
)
"""Trainings whose weights are not in the repository: what is kept of them is their recipe, their log and a hash."""


@pytest.mark.parametrize(("method", "form"), SHIPPED)
def test_the_shipped_adapters_are_of_the_recipes_in_the_repository(method, form):
    """What each folder says it was trained by, but for its name."""
    check_recipe(adapter_folder("tiny", method, form), method, form, 0)


@pytest.mark.parametrize("form", ("fol", "nl"))
def test_those_of_smollm2_are_too(form):
    """How words and scores count has no part in the training; it was set afterwards, and the recipe has it."""
    recipe = read_recipe(ROOT / "benchmarks/adapters/plus-smollm2.toml").in_form(form)
    folder = ROOT / f"benchmarks/base/smollm2/dynarule-plus-{form}"
    own, said = json.loads(json.dumps(asdict(recipe))), json.loads((folder / "adapters.json").read_text())
    config = json.loads((folder / "adapter_config.json").read_text())
    assert {name: config[name] for name in own["memory"]} == own["memory"]
    for each in (own, said):
        for name in ("score_weight", "score_limit", "word_weight", "word_stemmer"):
            each["memory"].pop(name, None)
    for name in own.keys() - {"fol"}:
        assert said[name] == own[name], name


@pytest.mark.parametrize("folder", FURTHER, ids=lambda folder: folder.name)
def test_so_are_further_trainings(folder):
    method, form = folder.name.rsplit("-", 1)
    seed = re.search(r"-seed-(\d)$", method)
    check_recipe(folder, method, form, int(seed[1]) if seed else 0)
    assert adapter_folder("tiny", method, form) is None
    assert any((folder / log).is_file() for log in ("log.json", "retrieval.json"))


def check_recipe(folder, method, form, seed):
    """The recipe of an adapter's name is what its folder says, but for the recipe's name there and the seed."""
    stem = method.removeprefix("dynarule-") if method.startswith(PLUS) else method
    name, minilm = re.sub(r"-seed-\d$", "", stem).removesuffix("-minilm"), stem.endswith("-minilm")
    recipe = read_recipe(ROOT / f"benchmarks/adapters/{name}.toml").in_form(form)
    recipe = replace(recipe, encoder=recipe.encoder.replace("layers:2", "minilm")) if minilm else recipe
    said = json.loads((folder / "adapters.json").read_text())
    said = asdict(AdapterRecipe("x", ({"stage": 1},))) | said  # a setting that came later had its default
    own = json.loads(json.dumps(asdict(recipe)))
    for name in own.keys() - {"name", "training_seed"}:
        assert said[name] == own[name], name
    assert said.get("training_seed", 0) == seed


def test_settings_of_logic_are_for_no_other_form():
    """Settings of the memory one by one, others whole; a wrong name or value is refused when the recipe is read."""
    finding = {"stage": "retrieval"}
    recipe = AdapterRecipe(
        "two",
        (finding,),
        per_subtask=5,
        confidence_layer=2,
        memory={"lookahead": 4, "score_weight": 0.0},
        fol={"per_subtask": 7, "memory": {"score_weight": 1.5}},
    )
    logic, english = map(recipe.in_form, ("fol", "nl"))
    assert (logic.per_subtask, logic.memory) == (7, {"lookahead": 4, "score_weight": 1.5})
    assert (english.per_subtask, english.memory) == (5, recipe.memory)
    assert not logic.fol
    assert not english.fol
    assert logic.in_form("fol") == logic
    with pytest.raises(ValueError, match="unknown setting of fol 'per_subtasks'; did you mean 'per_subtask'"):
        AdapterRecipe("odd", (finding,), confidence_layer=2, fol={"per_subtasks": 7})
    with pytest.raises(ValueError, match="per_subtask"):
        AdapterRecipe("odd", (finding,), confidence_layer=2, fol={"per_subtask": "many"})
    for name in ("stages", "encoder", "training_seed"):  # the last two are the command line's to change
        with pytest.raises(ValueError, match=f"unknown setting of fol '{name}'"):
            AdapterRecipe("odd", (finding,), confidence_layer=2, fol={name: 1})
    with pytest.raises(ValueError, match=r"memory\n.* valid dictionary"):
        AdapterRecipe("odd", (finding,), confidence_layer=2, fol={"memory": 3})
    with pytest.raises(ValueError, match="unknown setting of memory 'encoder_dim'"):
        AdapterRecipe("odd", (finding,), confidence_layer=2, memory={"encoder_dim": 9})
    for odd in ({"memory": {"wordweight": 1.0}}, {"fol": {"memory": {"wordweight": 1.0}}}):
        with pytest.raises(
            ValueError, match="unknown setting of memory 'wordweight'; did you mean 'word_weight'"
        ):
            AdapterRecipe("odd", (finding,), confidence_layer=2, **odd)


def test_an_impossible_setting_of_the_memory_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    from rwbench.zoo.adapters import train

    monkeypatch.setattr(train, "load_fresh", lambda *_: pytest.fail("a model was loaded"))
    recipe = AdapterRecipe("odd", ({"stage": 1},), memory={"first_layer": -2})
    with pytest.raises(ValueError, match="first_layer"):
        train.train_adapter(recipe, "tiny", "srki", "nl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_stage_of_one_form_is_for_no_other():
    first, longer = {"stage": 1}, {"stage": 1, "max_steps": 3}
    recipe = AdapterRecipe("two", (first, longer | {"representation": "fol"}))
    assert recipe.in_form("fol").stages == (first, longer)
    assert recipe.in_form("nl").stages == (first,)
    for count, stage in ((-1, {"stage": "retrieval"}), (5, first)):
        with pytest.raises(ValueError, match="plain must be 0 or more, and is for 'retrieval' alone"):
            AdapterRecipe("odd", (stage,), plain=count, confidence_layer=0)
    with pytest.raises(ValueError, match="unknown representation 'en'"):
        AdapterRecipe("odd", (first | {"representation": "en"},))


def test_a_recipe_with_an_unknown_field_names_its_file(tmp_path):
    (tmp_path / "odd.toml").write_text("colour = 1\n")
    with pytest.raises(ValueError, match=r"odd.toml is no recipe of adapters.*colour"):
        read_recipe(tmp_path / "odd.toml")
    for body in (b"\xff", b"x", b"a = 1\na = 2\n", b"x = " + b"[" * 5_000):
        (tmp_path / "odd.toml").write_bytes(body)
        with pytest.raises(ValueError, match=r"odd.toml is no TOML \(.*compare "):
            read_recipe(tmp_path / "odd.toml")
    for stage in ("[1]", "{}", "nan", '"1"'):
        (tmp_path / "odd.toml").write_text(f"[[stages]]\nstage = {stage}\n")
        with pytest.raises(ValueError, match=r"odd.toml is no recipe .*stages must be"):
            read_recipe(tmp_path / "odd.toml")


def test_committed_results_are_of_what_is_shipped():
    """Every run in the repository names the base, and the adapter, that come with it, or one of further trainings.

    A model that is added, not shipped, is made where it is added: of that one the adapters are here, and all runs are
    of one base.
    """
    from rwbench.models import base_folder, fingerprint, shipped

    added = {"smollm2-rules": ROOT / "benchmarks/base/smollm2"}
    seen, bases = set(), {}
    for run in find_results(ROOT / "benchmarks/results"):
        path, spec = run["run_id"], run["spec"]
        method = spec["method"]
        if not isinstance(method.get("model"), dict):
            continue
        name, weights = method["model"]["model"], method["model"]["weights"]
        assert weights == bases.setdefault(name, weights), path
        if name not in added:
            assert weights == fingerprint(base_folder(name)), path
        if method["name"] in METHODS:
            own = "-".join(filter(None, (method["name"], method.get("variant"))))
            form = spec["representation"]
            folder = added[name] / f"{own}-{form}" if name in added else adapter_folder(name, own, form)
            further = ROOT / f"benchmarks/results/seeds/{own}-{form}/adapters.json"
            of = fingerprint(folder) if folder else json.loads(further.read_text())["fingerprint"]
            assert method["adapter"] == of, path
            seen.add((name, method["name"], spec["representation"]))
    there = {
        (name, method, form)
        for name in shipped()
        for method in METHODS
        for form in ("fol", "nl")
        if adapter_folder(name, method, form)
    }
    assert there <= seen


def test_the_search_of_dynarule_plus_may_fill_a_prompt(monkeypatch):
    """The first search of each question is the same, and what DynaRule+ would read stands in the prompt."""
    model, source = Local.of("tiny"), DataSource("tiny", version="1.1")
    rules, asked = source.rules("test"), select(source.questions("multi_hop_3", "test"), 2)
    pool = Pool(np.union1d(rules.ids[:300], asked[0].gold + asked[1].gold), rules, "nl", tuple(asked))
    batch, prompts, generate = [(pool, question) for question in asked], [], Local.generate
    read = [each.retrieved for each in DynaRulePlus.of(model, "nl").answer(batch, 16)]
    monkeypatch.setattr(
        Local, "generate", lambda self, asks, *rest: prompts.extend(asks) or generate(self, asks, *rest)
    )
    method = Planned.of(model, "nl")
    assert method.missing() is None and method.label == "RAG by DynaRule+'s search, tiny"
    outputs = method.answer(batch, 16)
    for output, found, prompt, question in zip(outputs, read, prompts, asked, strict=False):
        assert output.error is None and output.retrieved[0] == found[0]
        *lines, blank, text = prompt.text.rstrip("\n").split("\n")
        assert (blank, text, prompt.begun) == ("", question.text, "")
        first = pool.rules.texts(np.array(found[0][:1], dtype=np.int32), "nl")
        assert lines[0] == first[0] and len(lines) < 16
        assert len(output.retrieved) > 1
    assert any(prompt.begun.count("\n") for prompt in prompts)


def test_another_search_may_stand_in_the_place_of_dynarule_plus():
    """What it finds for the question, and from the second step on for the step before, is read, best first."""
    model, source = Local.of("tiny"), DataSource("tiny", version="1.1")
    rules, asked = source.rules("test"), select(source.questions("multi_hop_3", "test"), 2)
    pools = [
        Pool(np.union1d(rules.ids[at : at + 300], each.gold), rules, "nl", (each,))
        for at, each in enumerate(asked)
    ]
    for changes in ({"rules": "without_gold"}, {"rules": "gold"}, {"correct_layer": 2}):
        with pytest.raises(ValueError, match="another search finds rules of the pool, got"):
            Searched.of(model, "nl", retriever=BothEnds(), **changes)
    method = Searched.of(model, "nl", retriever=BothEnds(), score_weight=1, kept=5)
    assert method.missing() is None
    assert method.label == "DynaRule+, both ends in place of its search, tiny, 5 kept, scores x 1"
    outputs = method.answer(list(zip(pools, asked, strict=True)), 16)
    for output, pool, question in zip(outputs, pools, asked, strict=True):
        score, found = BothEnds().scorer(pool.ids, pool.texts), {}
        lines = [step.text.strip() for step in output.trace]
        for last, step in zip(["", *lines], output.retrieved, strict=False):
            rows = score([question.text, f"{question.text}\n{last}"] if last else [question.text])
            best = (rows / rows.max(1, keepdims=True)).max(0)
            order = sorted(range(len(best)), key=lambda at: (-best[at], pool.ids[at]))
            assert set(step) <= set(pool.ids[best > 0].tolist())
            found[last] = [int(pool.ids[at]) for at in order[:5] if best[at] > 0]
            assert [best[list(pool.ids).index(rule)] for rule in step] == pytest.approx(
                [best[list(pool.ids).index(rule)] for rule in found[last]]
            )
        assert len(found) > 1
        assert output.answers


def test_a_search_that_finds_nothing_leaves_the_question_to_be_guessed():
    """Of a pool that shares no word with what is asked nothing is read, and the output says so."""
    model, source = Local.of("tiny"), DataSource("tiny", version="1.1")
    rules, (question,) = source.rules("test"), select(source.questions("single_rule", "test"), 1)
    index = BothEnds().scorer(rules.ids, rules.texts(rules.ids, "nl"))
    unrelated = rules.ids[np.isneginf(index([question.text])[0])][:5]
    pool = Pool(unrelated, rules, "nl", (question,))
    (output,) = Searched.of(model, "nl", retriever=BothEnds(), score_weight=1).answer([(pool, question)], 16)
    assert output.error is None
    assert len(unrelated) == 5 and output.retrieved[0] == []


def test_a_rule_counts_by_the_better_of_its_two_scores():
    """Of the question and of the last step, as shares of the best one's; what scores 0 is not found."""
    source = DataSource("tiny", version="1.1")
    rules, (question,) = source.rules("test"), select(source.questions("single_rule", "test"), 1)
    told = {question.text: [4.0, 2.0, 0.0, 1.0], f"{question.text}\nlast": [1.0, 0.5, 0.0, 2.0]}

    class Given(Retriever):
        name, plans = "given", True

        def scorer(self, ids, texts):
            return lambda queries: np.array([told[query] for query in queries])

    pool = Pool(rules.ids[:4], rules, "nl", (question,))
    method = Searched.of(Local.of("tiny"), "nl", retriever=Given())
    names, half = [str(rule) for rule in rules.ids[:4]], float(np.log(0.5))
    first = method.find(pool, question, "", 16)
    assert first == pytest.approx({names[0]: 0.0, names[1]: half, names[3]: 2 * half})
    assert list(first) == [names[0], names[1], names[3]]
    both = {names[0]: 0.0, names[3]: 0.0, names[1]: half}
    assert method.find(pool, question, "earlier\nlast", 16) == pytest.approx(both)
    assert list(method.find(pool, question, "last", 2)) == [names[0], names[3]]
