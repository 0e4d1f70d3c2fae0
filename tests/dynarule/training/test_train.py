"""Training: what moves and what stays, resuming, logs, bf16, checkpointing, and several processes."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from dynarule.search_token import search_id
from dynarule.training.data import Collator, Encoder
from dynarule.training.losses import IGNORE, lm_loss, stacked_step_loss
from dynarule.training.pools import RulePools
from dynarule.training.recipe import Muon, Recipe, SortedBatches, paper_recipe, recipe_file
from dynarule.training.rule_model import RuleModel

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config, kblam_config, srki_config

WIDTH, RULES = 12, 40
WORDS = ("fox", "owl", "cat", "dog", "wet", "sad", "old", "shy")


def make_rows(count=60):
    """Questions whose words name their rules; one in two has two steps."""
    rows = []
    for i in range(count):
        a, b = WORDS[i % 8], WORDS[(i // 8 + i) % 8]
        steps = [{"text": f"the {a} is {b} .", "rule_ids": [i % RULES]}]
        if i % 2:
            steps.append({"text": f"so it has {i % 7} .", "rule_ids": [(3 * i) % RULES, (i + 1) % RULES]})
        family = ("single_rule", "multi_rule", "multi_hop", "multi_hop")[i % 4]
        rows.append(
            {"question": f"is the {a} {b} {i} ?", "steps": steps, "answers": [str(i % 7)], "family": family}
        )
    return rows


def make_case(tiny_model, word_tokenizer, family="qwen2", config=None, **changes):
    from dynarule.training.data import target_text

    rows = make_rows()
    tokenizer = word_tokenizer([target_text(row) + row["question"] for row in rows])
    torch.manual_seed(0)
    model = tiny_model(family, num_hidden_layers=2, vocab_size=len(tokenizer) + 3, **changes)
    adapter = RuleAdapter(model, config or dynarule_config(WIDTH, confidence_layer=1, top_k=6))
    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(RULES, WIDTH, generator=generator) for _ in range(2))
    bank = RuleBank(keys, values, [str(i) for i in range(RULES)], [f"rule {i}" for i in range(RULES)], "test")
    return model, tokenizer, adapter, rows, bank


@pytest.fixture
def case(tiny_model, word_tokenizer):
    return make_case(tiny_model, word_tokenizer)


def quick(stage=2, **changes):
    """The paper's recipe, small and with a rate that moves something in four steps."""
    small = {"batch_size": 4, "accumulation": 2, "pool_size": 20, "max_steps": 4, "learning_rate": 1e-2}
    method = changes.pop("method", "dynarule")
    return paper_recipe(method, stage, **(small | changes))


def run(case, folder, recipe, **arguments):
    from dynarule.training.trainer import train

    model, tokenizer, adapter, rows, bank = case
    settings = {"use_cpu": True, "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True}
    return train(model, tokenizer, adapter, rows, bank, recipe, folder, **(settings | arguments))


def test_the_paper_s_hyper_parameters():
    from dynarule.training.trainer import training_arguments

    two, one = paper_recipe(), paper_recipe(stage=1)
    assert (two.pool_size, one.pool_size, two.temperature) == (1000, 100, 0.05)
    assert dynarule_config(WIDTH).top_k == 100
    assert two.mix == {"single_rule": 0.3, "multi_rule": 0.4, "multi_hop": 0.3}
    assert two.retrieves and two.searches and not one.retrieves and not one.searches
    assert not paper_recipe("kblam").retrieves and not paper_recipe("srki").searches
    arguments = training_arguments(two, "nowhere", 1000, use_cpu=True)
    assert arguments.learning_rate == 1e-4 and arguments.lr_scheduler_type == "cosine"
    assert arguments.get_warmup_steps(1000) == 10 and arguments.weight_decay == 1e-4
    assert (arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps) == (10, 5)
    assert training_arguments(two, "x", 1, report_to=["tensorboard"], use_cpu=True).report_to == [
        "tensorboard"
    ]
    assert arguments.report_to == []


def test_additions_are_objects_in_python_and_tables_in_files():
    recipe = quick(pool_size=(8, 20), additions=(SortedBatches(), Muon(value_rate=6.0)))
    values = json.loads(json.dumps(recipe.to_dict()))
    assert values["additions"] == {
        "muon": {"value_rate": 6.0, "vector_rate": 1.0},
        "sorted_batches": {},
    }
    values["additions"]["muon"]["whiten"] = False  # as recipes of older adapters have it
    assert Recipe(**values) == recipe and recipe.added(Muon).value_rate == 6.0
    assert paper_recipe().additions == () and paper_recipe().added(Muon) is None


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


def test_two_stages_move_the_adapter_and_one_row_and_nothing_else(case, tmp_path):
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


def test_the_loss_is_the_two_losses_of_the_full_logits(case, near):
    """Against transformers' own logits and the adapter's scores, without `RuleModel`'s shortcuts."""
    from dynarule.memory.training import RuleBatch, TrainingMemory

    model, tokenizer, adapter, rows, bank = case
    encoder = Encoder(tokenizer, {name: i for i, name in enumerate(bank.ids)})
    batch = Collator(encoder, RulePools(RULES), 20)(list(enumerate(rows[:5])))
    whole = RuleModel(model, adapter, bank, quick(), adapter.train_search(search_id(tokenizer))).train()
    with whole.attached():
        found = whole(**batch)
    memory, pool = TrainingMemory(adapter), batch["pool_M"]
    names = ("question_BT", "answer_BT", "search_BS", "gold_BSG")
    memory.load(RuleBatch(bank.keys_MP[pool], bank.values_MP[pool], *(batch[name] for name in names)))
    with attach(model, memory):
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    side = memory.scores
    predicting = logits[:, :-1][batch["labels"][:, 1:] != IGNORE]
    assert near(found["lm"], lm_loss(predicting, batch["labels"]))
    assert near(found["retrieval"], stacked_step_loss(side.scores_BSK, side.positives_BSK))
    assert int(found["steps"]) == 5 + 2  # of five questions two have a second step
    assert not whole.memory.measure  # gold rules are among the candidates
    whole.recipe = quick(retrieval_weight=3.0)
    with whole.attached():
        assert near(whole(**batch)["loss"], found["lm"] + 3.0 * found["retrieval"])


@pytest.mark.parametrize("muon", [(), (Muon(2.0, 0.5),)], ids=["adamw", "muon"])
def test_resuming_after_a_kill_gives_the_same_losses(tiny_model, word_tokenizer, tmp_path, muon):
    from transformers import TrainerCallback

    class Kill(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 5:
                raise KeyboardInterrupt

    recipe = quick(max_steps=8, additions=muon)
    saving = {"save_strategy": "steps", "save_steps": 2}
    through = make_case(tiny_model, word_tokenizer)
    wanted = run(through, tmp_path / "through", recipe, **saving)
    killed = make_case(tiny_model, word_tokenizer)
    with pytest.raises(KeyboardInterrupt):
        run(killed, tmp_path / "killed", recipe, callbacks=[Kill()], **saving)
    resumed = make_case(tiny_model, word_tokenizer)  # nothing of the killed run but its folder
    found = run(resumed, tmp_path / "killed", recipe, resume=True, **saving)
    assert [entry["step"] for entry in found] == list(range(1, 9))
    for one, other in zip(wanted, found, strict=True):
        for name in ("loss", "lm_loss", "retrieval_loss", "recall_at_1"):
            assert one[name] == other[name], (one["step"], name)
    for one, other in zip(through[2].parameters(), resumed[2].parameters(), strict=True):
        assert torch.equal(one, other)
    size = sum(f.stat().st_size for f in (tmp_path / "killed" / "checkpoint-8").glob("model*"))
    trained = sum(p.numel() for p in through[2].parameters()) * 4
    assert trained < size < trained + 8000  # the frozen base is not in it


def test_muon_steps_matrices_alike_in_all_directions_and_vectors_as_adamw(case):
    """Each first step of a matrix has all its singular values at 0.2 sqrt(longest side) times the rate, about."""
    from dynarule.training.optimizers import muon_optimizer

    model, _, adapter, _, bank = case
    whole = RuleModel(model, adapter, bank, quick(weight_decay=0.0, embedding="none"))
    optimizer = muon_optimizer(whole, Muon(value_rate=3.0, vector_rate=0.5))
    before = {name: each.detach().clone() for name, each in adapter.named_parameters()}
    for each in adapter.parameters():
        each.grad = torch.randn(each.shape, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.03, 0.005]
    for name, each in adapter.named_parameters():
        moved = (each - before[name]).detach()
        if each.ndim == 1:
            assert torch.allclose(moved.abs(), torch.full_like(moved, 0.005), rtol=1e-3), name
        else:
            rate = 0.03 if name.endswith(".v.weight") else 0.01
            sizes = torch.linalg.svdvals(moved) / (rate * 0.2 * max(each.shape) ** 0.5)
            assert float(sizes.min()) > 0.5 and float(sizes.max()) < 1.4, name


def test_muon_decays_matrices_and_leaves_vectors(case):
    from dynarule.training.optimizers import muon_optimizer

    model, _, adapter, _, bank = case
    whole = RuleModel(model, adapter, bank, quick(weight_decay=0.25, embedding="none"))
    optimizer = muon_optimizer(whole, Muon(value_rate=3.0))
    before = {name: each.detach().clone() for name, each in adapter.named_parameters()}
    for each in adapter.parameters():
        each.grad = torch.zeros_like(each)
    optimizer.step()
    for name, each in adapter.named_parameters():
        rate = 0.03 if name.endswith(".v.weight") else 0.01
        torch.testing.assert_close(each.detach(), before[name] * (1 - (each.ndim > 1) * rate * 0.25))


def test_the_row_of_search_steps_as_a_vector(case):
    """Stored as a matrix of one row, which Muon would step in the direction of its own gradient alone."""
    from dynarule.training.optimizers import muon_optimizer

    model, tokenizer, adapter, _, bank = case
    rows = adapter.train_search(search_id(tokenizer))
    optimizer = muon_optimizer(RuleModel(model, adapter, bank, quick(), rows), Muon(vector_rate=0.5))
    (vectors,) = (group["params"] for group in optimizer.param_groups if group["lr"] == 0.005)
    assert rows and all(any(row is each for each in vectors) for row in rows)
    assert all(len(each) > 1 for group in optimizer.parts[0].param_groups for each in group["params"])


def test_whitened_embeddings_vary_alike_in_all_directions_but_those_of_noise(near):
    from dynarule.plus.finder import FLOOR, whitening

    generator = torch.Generator().manual_seed(0)
    spread = torch.tensor([10.0, 3.0, 1.0, 1e-4])
    turn = torch.linalg.qr(torch.randn(4, 4, generator=generator)).Q
    embeddings = torch.randn(5000, 4, generator=generator) * spread @ turn
    white = whitening(embeddings, block=1000)
    assert near(white, white.T)
    moment, wide = (embeddings.T @ embeddings / len(embeddings)).double(), white.double()
    floored = moment + FLOOR * moment.trace() / 4 * torch.eye(4)
    condition = torch.linalg.cond(floored)
    assert near((wide @ floored @ wide * 4).float(), torch.eye(4), scale=condition)
    after = (embeddings.double() @ wide @ turn.T.double()).square().mean(0)
    assert after[:3].min() > 0.19 and after[3] < 1e-6  # the direction of noise is not blown up


@pytest.mark.parametrize("shape", [(24, 24), (40, 16), (16, 40)])
def test_muon_in_float32_steps_as_torchs_does_in_bfloat16(shape):
    from dynarule.training.optimizers import Float32Muon

    generator = torch.Generator().manual_seed(4)
    start = torch.randn(shape, generator=generator)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    pairs = (
        (Float32Muon([ours], lr=0.1, weight_decay=0.3), ours),
        (torch.optim.Muon([theirs], lr=0.1, weight_decay=0.3, adjust_lr_fn="match_rms_adamw"), theirs),
    )
    for _ in range(3):
        gradient = torch.randn(shape, generator=generator)
        for optimizer, weight in pairs:
            weight.grad = gradient.clone()
            optimizer.step()
    assert (ours - theirs).norm() < 0.03 * (ours - start).norm()
    assert not torch.equal(ours, theirs)


@pytest.mark.parametrize("method", ("srki", "kblam"))
def test_baselines_train_with_their_own_losses_and_no_search(tiny_model, word_tokenizer, tmp_path, method):
    config = {"srki": srki_config, "kblam": kblam_config}[method](WIDTH, confidence_layer=0)
    config = replace(config, top_k=6 if method == "srki" else None)
    case = make_case(tiny_model, word_tokenizer, config=config)
    before = base_state(case[0])
    log = run(case, tmp_path, quick(method=method))
    assert all(torch.equal(value, before[name]) for name, value in base_state(case[0]).items())
    assert all((entry["retrieval_loss"] > 0) == (method == "srki") for entry in log)
    assert len(case[2].layers) == (2 if method == "srki" else 1)


def test_checkpointing_and_accumulation_do_not_change_the_losses(tiny_model, word_tokenizer, tmp_path):
    plain = run(make_case(tiny_model, word_tokenizer), tmp_path / "a", quick())
    again = run(make_case(tiny_model, word_tokenizer), tmp_path / "b", quick(), gradient_checkpointing=True)
    for one, other in zip(plain, again, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)


def test_bf16_base_trains_with_fp32_adapters(tiny_model, word_tokenizer, tmp_path):
    case = make_case(tiny_model, word_tokenizer)
    case[0].to(torch.bfloat16)
    plain = run(make_case(tiny_model, word_tokenizer), tmp_path / "a", quick())
    found = run(case, tmp_path / "b", quick())
    assert found[0]["loss"] == pytest.approx(plain[0]["loss"], rel=0.05) and found[0] != plain[0]
    assert next(case[2].parameters()).dtype == torch.bfloat16  # as serving reads it
    from safetensors.torch import load_file

    tensors = load_file(tmp_path / "b" / "adapter_model.safetensors")
    assert {v.dtype for name, v in tensors.items() if "dynarule_" in name} == {torch.float32}


def test_saved_adapter_and_row_load_into_a_fresh_base(tiny_model, word_tokenizer, tmp_path, case):
    from peft import PeftModel

    run(case, tmp_path, quick())
    model, tokenizer, _, _, bank = make_case(tiny_model, word_tokenizer)
    loaded = PeftModel.from_pretrained(model, tmp_path)
    row = search_id(tokenizer)
    ids = torch.tensor([[5, 6, 7, 8, row, 9]])
    memories = [RuleMemory(case[2], bank, row), RuleMemory(loaded, bank, row)]
    outputs = []
    for base, memory in zip((case[0], model), memories, strict=True):
        memory.question_mask_BT = torch.tensor([[1, 1, 1, 1, 0, 0]]).bool()
        with attach(base, memory), torch.no_grad():
            outputs.append(base(ids).logits)
    assert torch.equal(*outputs)
    assert torch.equal(*(each.get_input_embeddings().weight[row] for each in (case[0], model)))
    assert loaded.active_peft_config.encoder == "test"


def test_a_bank_that_served_before_training_serves_the_trained_adapter(case, tmp_path):
    model, tokenizer, adapter, _, bank = case
    ids = torch.tensor([[5, 6, 7, 8]])

    def served(rules):
        memory = RuleMemory(adapter, rules, search_id(tokenizer))
        with attach(model, memory), torch.no_grad():
            return model(ids).logits, memory.trace[0].scores

    before = served(bank)
    run(case, tmp_path, quick())
    logits, scores = served(bank)
    fresh = RuleBank(bank.keys_MP.clone(), bank.values_MP.clone(), bank.ids, bank.texts, bank.encoder)
    wanted, wanted_scores = served(fresh)
    assert torch.equal(logits, wanted) and scores == wanted_scores
    assert scores != before[1]


def test_muon_under_deepspeed_is_refused(case, tmp_path, monkeypatch):
    from dynarule.training.trainer import RuleTrainer

    made = RuleTrainer.create_optimizer

    def sharded(self, *args, **kwargs):
        self.is_deepspeed_enabled = True
        return made(self, *args, **kwargs)

    monkeypatch.setattr(RuleTrainer, "create_optimizer", sharded)
    with pytest.raises(ValueError, match="Muon does not run under DeepSpeed; leave the addition muon out"):
        run(case, tmp_path, quick(additions=(Muon(),)))


def test_mistakes_say_what_to_do(case, tmp_path):
    model, tokenizer, adapter, rows, bank = case
    adapter.config.confidence_layer = None
    with pytest.raises(ValueError, match="set confidence_layer"):
        run(case, tmp_path, quick())
    narrow = RuleBank(bank.keys_MP[:, :5], bank.values_MP[:, :5], bank.ids, bank.texts)
    with pytest.raises(ValueError, match="build the bank with the encoder the adapter was trained with"):
        run((model, tokenizer, adapter, rows, narrow), tmp_path, quick(stage=1))
    with pytest.raises(ValueError, match="method must be one of"):
        Recipe(method="rag")
    with pytest.raises(ValueError, match="pool_size"):
        Recipe(pool_size=(9, 3))
    for name in ("learning_rate", "temperature", "weight_decay", "epochs", "batch_size", "max_steps", "seed"):
        for value in (
            math.nan,
            math.inf,
            -1,
            "1",
            True,
            [1],
            *([1.5] if name in ("batch_size", "seed") else []),
        ):
            with pytest.raises(ValueError, match=rf"{name} must be (positive|0 or more)"):
                Recipe(**{name: value})
    with pytest.raises(ValueError, match=r"unknown addition 'moun'; there are .*'muon'"):
        Recipe(additions={"moun": {}})
    with pytest.raises(ValueError, match=r"muon has no setting 'rate'; it has \['value_rate'"):
        Recipe(additions={"muon": {"rate": 1}})
    with pytest.raises(ValueError, match="value_rate must be positive, got 0"):
        Recipe(additions={"muon": {"value_rate": 0}})
    with pytest.raises(ValueError, match="muon has no setting 'whiten'"):
        Recipe(additions={"muon": {"whiten": True}})
    with pytest.raises(ValueError, match=r"once, got \['Muon', 'Muon'\]"):
        Recipe(additions=(Muon(), Muon(2.0)))
    with pytest.raises(FileNotFoundError, match=r"accelerate_zero2_offload\.yaml"):
        recipe_file("zero3.json")


def test_configuration_files_come_with_the_package():
    import yaml

    settings = json.loads(recipe_file("deepspeed_zero2_offload.json").read_text())
    assert settings["zero_optimization"]["stage"] == 2
    assert settings["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    launch = yaml.safe_load(recipe_file("accelerate_zero2_offload.yaml").read_text())
    assert launch["deepspeed_config"]["zero_stage"] == 2
    # Anything else here than what the Trainer finds out itself, and it stops with "mismatches".
    assert launch["deepspeed_config"]["gradient_accumulation_steps"] == "auto"
    assert launch["deepspeed_config"]["gradient_clipping"] == "auto" and launch["mixed_precision"] == "no"
    from accelerate.commands.config.config_args import load_config_from_file

    read = load_config_from_file(str(recipe_file("accelerate_zero2_offload.yaml")))
    assert read.num_processes == 4 and str(read.distributed_type).endswith("DEEPSPEED")


SCRIPT = """
import json, sys, importlib.util
import torch; torch.set_num_threads(1)
def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
    return module
here, folder, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
conftest, this = load("shared", here + "/../conftest.py"), load("this", here + "/test_train.py")
case = this.make_case(conftest.make_model, conftest.make_word_tokenizer)
recipe = this.quick(accumulation=settings.pop("accumulation"))
this.run(case, folder, recipe, **settings)
"""


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node")
ACCELERATE = ("-m", "accelerate.commands.launch", "--config_file")
ZERO2 = (*ACCELERATE, str(recipe_file("accelerate_zero2_offload.yaml")), "--num_processes")


def launch(tmp_path, processes, launcher=TORCHRUN, **settings):
    """Run the same training in processes of its own, and return its log."""
    folder = tmp_path / f"run{processes}{len(settings)}"
    here = os.path.dirname(os.path.abspath(__file__))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, *([*launcher, str(processes)] if processes > 1 else [])]
    done = subprocess.run(
        [*command, str(script), here, str(folder), json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "log.json").read_text())


@pytest.mark.slow
def test_two_processes_train_as_one_does_with_twice_the_accumulation(tmp_path):
    one, two = launch(tmp_path, 1, accumulation=2), launch(tmp_path, 2, accumulation=1)
    for a, b in zip(one, two, strict=True):
        assert a["lm_loss"] == pytest.approx(b["lm_loss"], rel=1e-4)
        assert a["retrieval_loss"] == pytest.approx(b["retrieval_loss"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [TORCHRUN, ZERO2], ids=["json", "accelerate"])
def test_deepspeed_zero2_with_offload_trains_as_one_process_does(tmp_path, launcher):
    pytest.importorskip("deepspeed", reason="pip install deepspeed; it needs a C++ compiler")
    settings = json.loads(recipe_file("deepspeed_zero2_offload.json").read_text())
    settings["zero_optimization"] |= {"overlap_comm": False}
    settings["zero_optimization"]["offload_optimizer"]["pin_memory"] = False
    config = tmp_path / "zero2.json"
    config.write_text(json.dumps(settings))
    one = launch(tmp_path, 1, accumulation=2)
    given = {"deepspeed": str(config)} if launcher == TORCHRUN else {}
    two = launch(tmp_path, 2, launcher, accumulation=1, **given)
    for a, b in zip(one, two, strict=True):
        assert a["lm_loss"] == pytest.approx(b["lm_loss"], rel=1e-2)
