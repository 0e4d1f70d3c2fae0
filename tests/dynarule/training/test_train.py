"""Training: what moves and what stays, resuming, logs, bf16, checkpointing, and several processes."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from dynarule.memory.training import RuleBatch, TrainingMemory
from dynarule.search_token import search_id
from dynarule.training.data import Collator, Encoder
from dynarule.training.losses import IGNORE, lm_loss, stacked_step_loss
from dynarule.training.optimizers import FLOOR, MuonAdamW, fold, muon_optimizer, whiten
from dynarule.training.pools import RulePools
from dynarule.training.recipe import Recipe, paper_recipe, recipe_file
from dynarule.training.rule_model import RuleModel
from dynarule.training.trainer import training_arguments
from peft import PeftModel
from safetensors.torch import load_file

from dynarule import RuleBank, RuleMemory, attach, dynarule_config, kblam_config, srki_config

WIDTH = 12


def test_the_paper_s_hyper_parameters():
    two, one = paper_recipe(), paper_recipe(stage=1)
    assert (two.pool_size, one.pool_size, two.temperature, two.additions) == (1000, 100, 0.05, {})
    assert dynarule_config(WIDTH).top_k == 100
    assert two.mix == {"single_rule": 0.3, "multi_rule": 0.4, "multi_hop": 0.3}
    assert two.retrieves and two.searches and not one.retrieves and not one.searches
    assert not paper_recipe("kblam").retrieves and not paper_recipe("srki").searches
    arguments = training_arguments(two, "nowhere", 1000, use_cpu=True)
    assert arguments.learning_rate == 1e-4 and arguments.lr_scheduler_type == "cosine"
    assert arguments.get_warmup_steps(1000) == 10 and arguments.weight_decay == 1e-4
    assert (arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps) == (10, 5)


def base_state(model):
    """The weights of the base inside a model, with the trained rows of <search> in their matrices."""
    state = {
        name.replace("self_attn.base_layer.", "self_attn.").replace(
            "token_adapter.base_layer.", ""
        ): value.clone()
        for name, value in model.state_dict().items()
        if "dynarule_" not in name and "trainable_tokens" not in name
    }
    state["model.embed_tokens.weight"] = model.get_input_embeddings().weight.clone()
    return state | {"lm_head.weight": model.get_output_embeddings().weight.clone()}


def test_whitened_projections_step_as_if_embeddings_varied_alike(case):
    """W - rate G C with C the inverse second moment of the embeddings, where W - rate G would be a plain step."""
    *_, adapter, _, bank = case
    linear, rate = adapter.projections()[0].v.requires_grad_(True), 0.1
    before, gradient = linear.weight.detach().clone(), torch.randn(linear.weight.shape)
    whiten([adapter.projections()[0]], bank)
    linear.weight.backward(gradient)
    trained = linear.parametrizations.weight.original
    with torch.no_grad():
        torch.testing.assert_close(linear.weight, before, rtol=1e-3, atol=1e-4)
        trained -= rate * trained.grad
    fold([adapter.projections()[0]])
    moment = bank.values_MP.T @ bank.values_MP / len(bank)
    moment += FLOOR * moment.trace() / WIDTH * torch.eye(WIDTH)
    torch.testing.assert_close(
        linear.weight, before - rate * gradient @ moment.inverse(), rtol=1e-3, atol=1e-4
    )
    assert type(linear) is torch.nn.Linear and dict(linear.named_parameters()).keys() == {"weight", "bias"}


def test_two_stages_move_the_adapter_and_one_row_and_nothing_else(case, quick, run, tmp_path):
    model, tokenizer, adapter, *_ = case
    before = base_state(model)
    start = {name: value.clone() for name, value in adapter.state_dict().items()}
    first = run(case, tmp_path / "1", quick(stage=1))
    assert all(torch.equal(value, before[name]) for name, value in base_state(model).items())
    middle = {name: value.clone() for name, value in adapter.state_dict().items()}
    assert all(not torch.equal(middle[name], start[name]) for name in start if not name.endswith("bias"))
    second = run(case, tmp_path / "2", quick())
    row = search_id(tokenizer)
    assert len(before) == len(base_state(model)) > 20
    for name, value in base_state(model).items():
        moved = (value != before[name]).any(-1) if value.ndim == 2 else value != before[name]
        wanted = [row] if name in ("model.embed_tokens.weight", "lm_head.weight") else []
        assert moved.nonzero().flatten().tolist() == wanted, name
    assert not any(p.requires_grad for p in model.parameters())
    assert [entry["retrieval_loss"] > 0 for entry in first + second] == [False] * 4 + [True] * 4
    for entry in second:
        assert entry["loss"] == pytest.approx(entry["lm_loss"] + entry["retrieval_loss"], rel=1e-3)
    assert second[-1]["loss"] < second[0]["loss"]
    assert json.loads((tmp_path / "2" / "log.json").read_text()) == second
    found, base = {name: value.clone() for name, value in adapter.state_dict().items()}, base_state(model)
    run(case, tmp_path / "3", quick(stage=1, additions={"steps": {"beside": 3.0}}))
    same = {name for name, value in adapter.state_dict().items() if torch.equal(value, found[name])}
    searching = {
        f"{adapter.config.confidence_layer}.{name}.weight" for name in "qk"
    }  # what finds was trained
    assert {name.removeprefix("layers.") for name in same if name.endswith("weight")} == searching
    assert all(torch.equal(value, base[name]) for name, value in base_state(model).items())


def test_the_loss_is_the_two_losses_of_the_full_logits(case, quick, near):
    """Against transformers' own logits and the adapter's scores, without `RuleModel`'s shortcuts."""
    model, tokenizer, adapter, rows, bank = case
    encoder = Encoder(tokenizer, {name: i for i, name in enumerate(bank.ids)})
    batch = Collator(encoder, RulePools(len(bank)), 20)(list(enumerate(rows[:5])))
    whole = RuleModel(model, adapter, bank, quick(), adapter.train_search(search_id(tokenizer))).train()
    with whole.attached():
        out = whole(**batch)
    memory, pool = TrainingMemory(adapter), batch["pool_M"]
    names = ("question_BT", "search_BS", "gold_BSG")
    memory.load(RuleBatch(bank.keys_MP[pool], bank.values_MP[pool], *(batch[name] for name in names)))
    with attach(model, memory):
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    side = memory.scores
    predicting = logits[:, :-1][batch["labels"][:, 1:] != IGNORE]
    assert near(out["lm"], lm_loss(predicting, batch["labels"]))
    assert near(out["retrieval"], stacked_step_loss(side.scores_BSK, side.positives_BSK))
    assert int(out["steps"]) == 5 + 2  # of five questions two have a second step
    assert not whole.memory.measure  # gold rules are among the candidates
    whole.recipe = quick(retrieval_weight=3.0)
    with whole.attached():
        assert near(whole(**batch)["loss"], out["lm"] + 3.0 * out["retrieval"])


@pytest.mark.parametrize("decay", [0.0, 0.25])
def test_muon_steps_matrices_alike_in_all_directions_and_vectors_as_adamw(case, quick, decay):
    """A matrix's first step has all its singular values at 0.2 sqrt(longest side) times the rate, about."""
    model, tokenizer, adapter, _, bank = case
    rows = adapter.train_search(search_id(tokenizer))
    whole = RuleModel(model, adapter, bank, quick(weight_decay=decay), rows)
    optimizer = muon_optimizer(whole, 3.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.03, 0.01]
    vectors = optimizer.param_groups[2]["params"]  # a row, too: Muon would step along its own gradient alone
    assert rows and all(any(row is each for each in vectors) for row in rows)
    before = {name: each.detach().clone() for name, each in adapter.named_parameters()}
    for each in adapter.parameters():
        each.grad = torch.randn(each.shape, generator=torch.Generator().manual_seed(0))
        if decay:
            each.grad.zero_()
    optimizer.step()
    for name, each in adapter.named_parameters():
        moved, rate = (each - before[name]).detach(), 0.03 if name.endswith(".v.weight") else 0.01
        if decay:
            torch.testing.assert_close(
                moved, -(each.ndim > 1) * rate * decay * before[name], atol=1e-7, rtol=1e-4
            )
        elif each.ndim == 1:
            assert torch.allclose(moved.abs(), torch.full_like(moved, 0.01), rtol=1e-3), name
        else:
            sizes = torch.linalg.svdvals(moved) / (rate * 0.2 * max(each.shape) ** 0.5)
            assert float(sizes.min()) > 0.5 and float(sizes.max()) < 1.4, name


@pytest.mark.parametrize("shape", [(24, 24), (40, 16), (16, 40)])
def test_muon_in_float32_steps_as_torchs_does_in_bfloat16(shape):
    generator = torch.Generator().manual_seed(4)
    start = torch.randn(shape, generator=generator)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    pairs = (
        (MuonAdamW([{"params": [ours], "muon": True}], lr=0.1, weight_decay=0.3), ours),
        (torch.optim.Muon([theirs], lr=0.1, weight_decay=0.3, adjust_lr_fn="match_rms_adamw"), theirs),
    )
    for _ in range(3):
        gradient = torch.randn(shape, generator=generator)
        for optimizer, weight in pairs:
            optimizer.load_state_dict(optimizer.state_dict())
            weight.grad = gradient.clone()
            optimizer.step()
    assert (ours - theirs).norm() < 0.03 * (ours - start).norm()
    assert not torch.equal(ours, theirs)


@pytest.mark.parametrize("method", ("srki", "kblam"))
def test_baselines_train_with_their_own_losses_and_no_search(make_case, quick, run, tmp_path, method):
    config = {"srki": srki_config, "kblam": kblam_config}[method](WIDTH, confidence_layer=0)
    case = make_case(replace(config, top_k=6 if method == "srki" else None))
    before = base_state(case[0])
    log = run(case, tmp_path, quick(method))
    assert all(torch.equal(value, before[name]) for name, value in base_state(case[0]).items())
    assert all((entry["retrieval_loss"] > 0) == (method == "srki") for entry in log)
    assert len(case[2].layers) == (2 if method == "srki" else 1)


def test_checkpointing_changes_no_loss_and_a_bf16_base_trains_with_fp32_adapters(
    make_case, quick, run, tmp_path
):
    plain = run(make_case(), tmp_path / "plain", quick())
    again = run(make_case(), tmp_path / "again", quick(), gradient_checkpointing=True)
    for one, other in zip(plain, again, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
    case = make_case()
    case[0].to(torch.bfloat16)
    log = run(case, tmp_path / "half", quick())
    assert log[0]["loss"] == pytest.approx(plain[0]["loss"], rel=0.05) and log[0] != plain[0]
    assert next(case[2].parameters()).dtype == torch.bfloat16  # as serving reads it
    tensors = load_file(tmp_path / "half" / "adapter_model.safetensors")
    assert {v.dtype for name, v in tensors.items() if "dynarule_" in name} == {torch.float32}


def test_a_fresh_base_and_a_bank_that_served_before_serve_the_trained_adapter(
    make_case, case, quick, run, tmp_path
):
    model, tokenizer, adapter, _, bank = case
    row = search_id(tokenizer)
    ids = torch.tensor([[5, 6, 7, 8, row, 9]])

    def served(model, adapter, rules):
        memory = RuleMemory(adapter, rules, row)
        memory.question_mask_BT = torch.tensor([[1, 1, 1, 1, 0, 0]]).bool()
        with attach(model, memory), torch.no_grad():
            return model(ids).logits, [each.scores for each in memory.trace]

    _, before = served(model, adapter, bank)
    run(case, tmp_path, quick())
    logits, scores = served(model, adapter, bank)
    base, *_, again = make_case()
    loaded = PeftModel.from_pretrained(base, tmp_path)
    wanted, wanted_scores = served(loaded, loaded, again)
    assert torch.equal(logits, wanted) and scores == wanted_scores and scores != before
    assert loaded.active_peft_config.encoder == "test"


def test_what_cannot_be_trained_is_refused(case, quick, run, tmp_path):
    model, tokenizer, adapter, rows, bank = case
    adapter.config.confidence_layer = None
    with pytest.raises(ValueError, match="set confidence_layer"):
        run(case, tmp_path, quick())
    narrow = RuleBank(bank.keys_MP[:, :5], bank.values_MP[:, :5], bank.ids, bank.texts)
    with pytest.raises(ValueError, match="build the bank with the encoder the adapter was trained with"):
        run((model, tokenizer, adapter, rows, narrow), tmp_path, quick(stage=1))


def test_a_recipe_that_cannot_be_is_refused():
    strange = Path(__file__).with_name("strange_recipes.jsonl").read_text().splitlines()
    for changes, message in [*map(json.loads, strange), ({"seed": 10**400}, "seed must be 0 or more")]:
        with pytest.raises(ValueError, match=message):
            Recipe(**changes)


def test_recipes_come_back_from_json_and_configuration_files_come_with_the_package(quick):
    recipe = quick(pool_size=(8, 20), additions={"sorted_batches": {}, "muon": {}})
    assert recipe.additions == {"muon": {"value_rate": 1.0}, "sorted_batches": {}}
    assert Recipe(**json.loads(json.dumps(asdict(recipe)))) == recipe
    launch = yaml.safe_load(recipe_file("accelerate_zero2_offload.yaml").read_text())
    # Anything else here than what the Trainer finds out itself, and it stops with "mismatches".
    assert launch["deepspeed_config"]["gradient_accumulation_steps"] == "auto"
    assert launch["deepspeed_config"]["gradient_clipping"] == "auto" and launch["mixed_precision"] == "no"
    read = load_config_from_file(str(recipe_file("accelerate_zero2_offload.yaml")))
    assert read.num_processes == 4 and str(read.distributed_type).endswith("DEEPSPEED")
    assert (
        json.loads(recipe_file("deepspeed_zero2_offload.json").read_text())["zero_optimization"]["stage"] == 2
    )


def test_the_base_goes_to_the_device_of_its_process(case, quick, run, tmp_path, monkeypatch):
    """It is no part of the module that the Trainer moves."""
    moved = Mock(side_effect=InterruptedError)
    monkeypatch.setattr(case[0], "to", moved)
    device = property(lambda settings: settings._setup_devices and torch.device("meta"))
    monkeypatch.setattr("transformers.TrainingArguments.device", device)
    with pytest.raises(InterruptedError):
        run(case, tmp_path, quick(max_steps=1))
    moved.assert_called_once_with(torch.device("meta"))


SCRIPT = """
import json, runpy, sys
import torch; torch.set_num_threads(1)
this, settings = runpy.run_path(sys.argv[1]), json.loads(sys.argv[3])
recipe = this["quick_recipe"](accumulation=settings.pop("accumulation"))
this["run"](this["make_case"](), sys.argv[2], recipe, **settings)
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node")
ACCELERATE = ("-m", "accelerate.commands.launch", "--config_file")
ZERO2 = (*ACCELERATE, str(recipe_file("accelerate_zero2_offload.yaml")), "--num_processes")


def launch(tmp_path, processes, launcher=TORCHRUN, **settings):
    """Run the same training in processes of its own, and return its log."""
    folder = tmp_path / f"run{processes}{len(settings)}"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    shared = Path(__file__).with_name("conftest.py")
    command = [sys.executable, *([*launcher, str(processes)] if processes > 1 else []), str(script)]
    command += [str(shared), str(folder), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "log.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "precision"), [(TORCHRUN, 1e-3), (ZERO2, 1e-2)], ids=["torchrun", "zero2"]
)
def test_two_processes_train_as_one_does_with_twice_the_accumulation(tmp_path, launcher, precision):
    if launcher is ZERO2:
        pytest.importorskip("deepspeed", reason="pip install deepspeed; it needs a C++ compiler")
    one = launch(tmp_path, 1, accumulation=2)
    two = launch(tmp_path, 2, launcher, accumulation=1)
    for a, b in zip(one, two, strict=True):
        assert a["lm_loss"] == pytest.approx(b["lm_loss"], rel=precision)
        assert a["retrieval_loss"] == pytest.approx(b["retrieval_loss"], rel=precision)
