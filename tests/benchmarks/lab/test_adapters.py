"""Adapters: every method through its stages, into a folder that the benchmark's methods load; and what is shipped."""

import json
import re
import shutil
from dataclasses import replace
from itertools import product

import adapters
import pytest
import torch
from adapters import PLUS, WEIGHTS, AdapterRecipe, plans_of, read_recipe, train_adapter
from dynarule.search_token import begin_as_header
from rwbench.backends.local import Local, load_fresh
from rwbench.methods.plus import DynaRulePlus, RuleVectors
from rwbench.models import adapter_folder, step_mark
from rwbench.models.reader import load_reader
from rwbench.run.data import DataSource, select
from rwbench.run.pools import Pool
from safetensors.torch import load_file

from dynarule import DynaRuleConfig

from .conftest import LAB

VECTORS = "rule-vectors"  # of DynaRule+'s search, read as the paper does
QUICK = {"max_steps": 2, "batch_size": 4, "accumulation": 1}
FOUND = {"stage": "retrieval", "max_steps": 4, "batch_size": 8, "pool_size": 30, "evaluate_every": 2}
STAGES = ({"stage": 1, "pool_size": (20, 40)} | QUICK, {"stage": 2, "pool_size": (40, 60)} | QUICK)
RECIPE = AdapterRecipe(
    STAGES, scale="tiny", per_subtask=1, held_out=1, top_k=8, encoder="layers:1", memory={"every": 1}
)


@pytest.mark.filterwarnings("ignore:.*entropy curve is noisy")
@pytest.mark.parametrize("method", ["dynarule", "kblam"])
def test_both_stages_make_an_adapter_and_a_killed_training_ends_alike(method, own, tmp_path):
    out, recipe = tmp_path / "out", RECIPE
    if method == "dynarule":  # reading, finding among what is read, both
        recipe = replace(RECIPE, stages=(STAGES[0], FOUND, STAGES[1]))
    last = out / str(len(recipe.stages))
    folder = train_adapter(recipe, str(own), method, "nl", out)
    config = DynaRuleConfig.from_pretrained(folder)
    weights = (folder / "adapter_model.safetensors").read_bytes()
    assert (config.search_id is not None) == (method == "dynarule")
    assert (config.confidence_layer is not None) == (config.top_k == 8) == (method != "kblam")
    assert str(own) not in (folder / "README.md").read_text() and config.base_model_name_or_path == "./own"
    assert not list(folder.glob("checkpoint-*"))
    halves, whole = (load_file(each / "adapter_model.safetensors") for each in (folder, last))
    for name, value in whole.items():
        assert halves[name].dtype == torch.float16
        torch.testing.assert_close(halves[name].float(), value.float(), rtol=1e-3, atol=1e-6)
    first = (out / "1/log.json").stat().st_mtime_ns
    shutil.rmtree(last)
    shutil.rmtree(folder)
    assert train_adapter(recipe, str(own), method, "nl", out) == folder
    assert (out / "1/log.json").stat().st_mtime_ns == first  # what was finished is not trained again
    assert (folder / "adapter_model.safetensors").read_bytes() == weights
    for other in ((replace(recipe, top_k=9), str(own)), (recipe, "tiny")):
        with pytest.raises(ValueError, match=r"holds another training, see .*started\.json"):
            train_adapter(*other, method, "nl", out)
    shutil.copytree(folder, own / f"{method}-nl")
    assert adapter_folder(str(own), method, "nl") and adapter_folder(str(own), method, "fol") is None


@pytest.mark.parametrize(("form", "cues"), [("nl", {",", " has"}), ("fol", {" =>"})])
def test_searches_behind_premises_find_as_they_were_trained_when_reading_is(form, cues, own, tmp_path):
    memory = {"first_layer": 1, "shared_after": True, "search_place": "premise"}
    read = STAGES[0] | {"additions": {"steps": {"beside": 9.0, "ahead": 1.0}}}
    recipe = replace(RECIPE, stages=(FOUND, read), confidence_layer=1, memory=memory)
    folder = train_adapter(recipe, str(own), "dynarule", form, tmp_path / "out")
    config = DynaRuleConfig.from_pretrained(folder)
    _, tokenizer = load_fresh(own / "base")
    assert (
        config.search_place == "premise" and {tokenizer.decode([cue]) for cue in config.search_cues} == cues
    )
    found, last = (load_file(tmp_path / f"out/{stage}/{WEIGHTS}") for stage in (1, 2))
    moved = {
        name.split(".")[-2] for name in last if ".1." in name and not torch.equal(last[name], found[name])
    }
    assert moved == {"v"} and {name for name in last if "tokens_delta" in name}


def test_finding_alone_makes_an_adapter_that_answers_among_rules(own, tmp_path):
    memory = {"first_layer": 1, "reading": "tokens", "search_heads": 2, "lookahead": 2}
    recipe = replace(
        RECIPE, stages=(FOUND,), confidence_layer=1, encoder="layers:1+premise", memory=memory, plain=40
    )
    folder = train_adapter(recipe, str(own), PLUS, "nl", tmp_path / "out")
    config = DynaRuleConfig.from_pretrained(folder)
    assert (config.search_token, config.search_id, config.reading) == ("<step>", None, "tokens")
    shutil.copytree(folder, own / f"{PLUS}-nl")
    method, source = DynaRulePlus.of(Local.of(str(own)), "nl", max_new_tokens=12), DataSource("tiny")
    rules, questions = source.rules("test"), select(source.questions("multi_hop_2", "test"), 2)
    pool = Pool(rules.ids[:60], rules, "nl", tuple(questions))
    for kept in (3, 2):
        chosen = method if kept == 3 else replace(method, kept=kept)
        answers = list(chosen.answer([(pool, question) for question in questions], 3))
        found = [ids for answer in answers for ids in answer.retrieved]
        assert found and all(1 <= len(ids) <= kept and set(ids) <= set(pool.ids) for ids in found)
    reading = STAGES[0] | {"additions": {"steps": {"beside": 2.0}, "whiten": {}}}
    vectors = memory | {"reading": "vector", "shared_after": True}
    recipe = replace(recipe, begin=PLUS, stages=(reading,), dtype="bfloat16", memory=vectors, plain=0)
    trained = load_file(train_adapter(recipe, str(own), PLUS, "nl", tmp_path / "v") / WEIGHTS)
    for name, value in load_file(folder / WEIGHTS).items():  # it searches as the adapter that it began from
        assert ".q." in name or ".v." in name or torch.equal(trained[name], value), name
    shutil.copytree(tmp_path / "v/adapter", own / "rule-vectors-nl")
    (answer,) = RuleVectors.of(Local.of(str(own)), "nl", max_new_tokens=12).answer([(pool, questions[0])], 3)
    assert answer.retrieved and all(set(ids) <= set(pool.ids) for ids in answer.retrieved)
    load_reader.cache_clear()


def test_search_begins_as_the_header_of_a_step_and_dynarule_plus_needs_a_mark(own, tmp_path, monkeypatch):
    base, tokenizer = load_fresh(own / "base")
    begin_as_header(base, tokenizer)
    (*_, header), (search,) = (tokenizer(text)["input_ids"] for text in ("[Step 2]", "<search>"))
    rows = base.get_input_embeddings().weight
    assert search != header and torch.equal(rows[search], rows[header])
    assert step_mark(str(own), tokenizer) == "<step>"
    monkeypatch.setattr(adapters, "step_mark", lambda *_: "<none>")
    recipe = replace(RECIPE, stages=({"stage": "retrieval"},), confidence_layer=1)
    with pytest.raises(ValueError, match="was taught no mark for it"):
        train_adapter(recipe, str(own), PLUS, "nl", tmp_path / "none")


def test_a_late_stage_that_cannot_be_is_refused_before_the_first_begins(tmp_path):
    odd = replace(RECIPE, stages=(STAGES[0], STAGES[1] | {"batch_size": 0}))
    with pytest.raises(ValueError, match="batch_size must be positive, got 0"):
        train_adapter(odd, "no such model", "srki", "nl", tmp_path)
    with pytest.raises(ValueError, match="first_layer"):
        train_adapter(replace(RECIPE, memory={"first_layer": -2}), "no such model", "srki", "nl", tmp_path)


@pytest.mark.parametrize("path", (LAB.parent / "adapters").glob("*.toml"), ids=lambda path: path.stem)
def test_recipes_can_be_trained(path):
    method = PLUS if "plus" in path.stem or VECTORS in path.stem else path.stem.partition("-")[0]
    assert all(plans_of(read_recipe(path, form), method) for form in ("fol", "nl"))


SHIPPED = product(("dynarule-premise", "srki", "kblam", PLUS, VECTORS), ("fol", "nl"))
FOLDERS = {f"{method}-{form}": adapter_folder("tiny", method, form) for method, form in SHIPPED}
for others in ("dynarule-fol", "dynarule-nl", "*-seed-*", "*-minilm-*", "*-smollm2-*"):
    FOLDERS |= {folder.name: folder for folder in (LAB.parent / "results/seeds").glob(others)}
FOLDERS |= {f"{PLUS}-smollm2-{form}": LAB.parent / f"base/smollm2/{PLUS}-{form}" for form in ("fol", "nl")}
CHOSEN_LATER = {"score_weight", "score_limit", "word_weight", "word_stemmer"}
"""How words and scores count has no part in the training; it was set afterwards, and the recipe has it."""


@pytest.mark.parametrize("name", FOLDERS)
def test_adapters_are_of_the_recipes_in_the_repository(name):
    """What each folder says it was trained by, but for its name and the seed."""
    method, form = re.sub("-minilm|-seed-[0-9]+|-smollm2", "", name).rsplit("-", 1)
    stem = method if "premise" in name else method.removeprefix("dynarule-")
    stem, method = stem + ("-smollm2" if "smollm2" in name else ""), method.removesuffix("-premise")
    recipe = read_recipe(LAB.parent / f"adapters/{stem}.toml", form)
    assert plans_of(recipe, PLUS if method == VECTORS else method)
    if "minilm" in name:
        recipe = replace(recipe, encoder=recipe.encoder.replace("layers:2", "minilm"))
    said = {"arguments": {}} | json.loads((FOLDERS[name] / "adapters.json").read_text())
    written = {"plain": 0, "memory": {}} | json.loads(json.dumps(vars(recipe)))
    for settings in (said, written):
        later = CHOSEN_LATER if "smollm2" in name else ()
        settings["memory"] = {key: v for key, v in settings.get("memory", {}).items() if key not in later}
    for key in written.keys() - {"training_seed"}:
        assert said.get(key, AdapterRecipe.__dataclass_fields__[key].default) == written[key], key
    seed = re.search(r"-seed-(\d+)", name)
    assert said.get("training_seed", 0) == (int(seed[1]) if seed else 0)
