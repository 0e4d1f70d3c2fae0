"""Stages of an adapter's training: their order, and the folder that they share."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import rwbench.zoo.adapters.train as module
from dynarule.plus import RetrievalRecipe
from rwbench.cli.app import app
from rwbench.zoo.adapters.folder import FINISHED, claim_folder
from rwbench.zoo.adapters.recipe import AdapterRecipe
from typer.testing import CliRunner

ONE, TWO = {"stage": 1}, {"stage": 2}


def test_stages_are_in_order():
    for stages, message in (
        ((TWO,), "without a stage 1 the confidence layer"),
        ((TWO, ONE, TWO), r"stages must be 1 ... 1, 2 ... 2, or 'retrieval' alone, got \[2, 1, 2\]"),
        ((), "stages must be"),
    ):
        with pytest.raises(ValueError, match=message):
            AdapterRecipe("odd", stages)


def test_finding_alone_is_a_recipe_of_its_own():
    finding = {"stage": "retrieval", "max_steps": 3}
    recipe = AdapterRecipe("plus", (finding,), confidence_layer=2, seed=7, training_seed=5)
    assert recipe.trainings("dynarule-plus") == [RetrievalRecipe(max_steps=3, seed=5)]
    with pytest.raises(ValueError, match="recipe 'plus' is one of dynarule-plus, got srki"):
        recipe.trainings("srki")
    with pytest.raises(ValueError, match="recipe 'paper' is one of any other method, got dynarule-plus"):
        AdapterRecipe("paper", (ONE,)).trainings("dynarule-plus")
    with pytest.raises(ValueError, match="unknown setting 'max_step'; did you mean 'max_steps'"):
        AdapterRecipe("odd", ({"stage": "retrieval", "max_step": 3},), confidence_layer=2).trainings(
            "dynarule-plus"
        )
    for stages, layer, message in (
        ((finding,), None, "set confidence_layer"),
        ((ONE, finding), 2, r"or 'retrieval' alone, got \[1, 'retrieval'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            AdapterRecipe("odd", stages, confidence_layer=layer)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"world": 5}, "training 2 of recipe 'odd': unknown setting 'world'"),
        (
            {"warmp_ratio": 0.1},
            "training 2 of recipe 'odd': unknown setting 'warmp_ratio'; did you mean 'warmup_ratio'",
        ),
        ({"batch_size": 0}, "training 2 of recipe 'odd': batch_size must be positive, got 0"),
        ({"batch_size": "8"}, "training 2 of recipe 'odd': batch_size must be positive, got '8'"),
        (
            {"schedule": "cosin"},
            "training 2 of recipe 'odd': unknown schedule 'cosin'; did you mean 'cosine'",
        ),
        (
            {"pool_size": (1, 2, 3)},
            "training 2 of recipe 'odd': pool_size must be a positive number or a range",
        ),
        ({"pool_size": 2.5}, "training 2 of recipe 'odd': pool_size must be a positive number or a range"),
        ({"pool_size": ()}, "training 2 of recipe 'odd': pool_size must be a positive number or a range"),
        (
            {"pool_size": (9, "12")},
            "training 2 of recipe 'odd': pool_size must be a positive number or a range",
        ),
    ],
)
def test_a_late_stage_that_cannot_be_is_refused_before_the_first_begins(odd, message, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "load_fresh", lambda *_: pytest.fail("it began"))
    with pytest.raises(ValueError, match=message):
        module.train_adapter(AdapterRecipe("odd", (ONE, TWO | odd)), "tiny", "srki", "nl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def checkpoint(stage):
    (stage / "checkpoint-2").mkdir(parents=True)
    (stage / "checkpoint-2" / "trainer_state.json").write_text("{}")


def test_killed_at_its_first_checkpoint_a_training_begins_again(tmp_path):
    """Also by another recipe: there is nothing to go on from."""
    claim_folder(tmp_path, AdapterRecipe("quick", (ONE,)), "kblam", "nl", resume=False)
    (tmp_path / "1" / "checkpoint-2").mkdir(parents=True)
    with pytest.raises(FileExistsError, match="go on with --resume"):
        claim_folder(tmp_path, AdapterRecipe("quick", (ONE,)), "kblam", "nl", resume=False)
    claim_folder(tmp_path, AdapterRecipe("quick", (ONE,), top_k=7), "srki", "nl", resume=True)
    checkpoint(tmp_path / "2")
    with pytest.raises(ValueError, match="trained with method 'srki', now it is 'kblam'"):
        claim_folder(tmp_path, AdapterRecipe("quick", (ONE,)), "kblam", "nl", resume=True)


def test_a_folder_is_of_one_method_and_representation(tmp_path):
    recipe = AdapterRecipe("quick", (ONE,))
    claim_folder(tmp_path, recipe, "srki", "nl", resume=False)
    checkpoint(tmp_path / "1")
    claim_folder(
        tmp_path, replace(recipe, stages=(ONE, TWO)), "srki", "nl", resume=True
    )  # another may follow
    with pytest.raises(ValueError, match="trained with method 'srki', now it is 'kblam'"):
        claim_folder(tmp_path, recipe, "kblam", "nl", resume=True)
    with pytest.raises(ValueError, match="trained with representation 'nl', now it is 'fol'"):
        claim_folder(tmp_path, recipe, "srki", "fol", resume=True)


def test_resumed_the_confidence_layer_is_measured_again(tmp_path, monkeypatch):
    """What stage 2 needs of stage 1 is there whether that was trained just now or read."""
    measured, trained = [], []

    def confidence(recipe, model, tokenizer, data):
        measured.append(data.held_out)
        return {"confidence_layer": 2}

    def train(model, tokenizer, adapter, rows, bank, plan, folder, **more):
        trained.append((folder.name, adapter.config.confidence_layer, rows))
        folder.mkdir(parents=True)
        (folder / FINISHED).touch()

    base = SimpleNamespace(
        config=SimpleNamespace(), float=lambda: None, device=SimpleNamespace(type="cpu"), encoder_dim=4
    )
    for name, stub in {
        "base_folder": str,
        "step_mark": lambda name, tokenizer: "<step>",
        "load_fresh": lambda folder: (base, None),
        "rule_bank": lambda *given: SimpleNamespace(encoder_dim=4, encoder="", ids=[], texts=[]),
        "training_rows": lambda recipe, split, most: [split],
        "RuleAdapter": lambda model, config: SimpleNamespace(config=config),
        "inherit_step": lambda model, tokenizer, mark: None,
        "Encoder": lambda *given, **more: None,
        "train": train,
        "read_finished": lambda *given: None,
        "measure_confidence_layer": confidence,
        "publish": lambda trained, to, *given: to,
    }.items():
        monkeypatch.setattr(module, name, stub)
    recipe = AdapterRecipe("quick", (ONE, TWO))
    module.train_adapter(recipe, "base", "dynarule", "nl", tmp_path / "a")
    (tmp_path / "a" / "2" / FINISHED).unlink()
    (tmp_path / "a" / "2").rmdir()
    module.train_adapter(recipe, "base", "dynarule", "nl", tmp_path / "a", resume=True)
    assert measured == [["validation"]] * 2
    assert trained == [("1", None, ["train"]), ("2", 2, ["train"]), ("2", 2, ["train"])]


def test_a_second_start_in_a_folder_is_one_line(tmp_path, monkeypatch):
    def begun(*given):
        raise FileExistsError("it holds a training already; go on with --resume")

    monkeypatch.setattr(module, "train_adapter", begun)
    (tmp_path / "quick.toml").write_text("confidence_layer = 2\n[[stages]]\nstage = 1\n")
    words = ["adapters", "train", str(tmp_path / "quick.toml"), "--method", "kblam", "--representation", "nl"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert done.exit_code == 2 and done.stderr == "error: it holds a training already; go on with --resume\n"
