"""The folder of a run: nobody else's checkpoints, whole files, and everything that serving needs in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dynarule.training.recipe import paper_recipe
from dynarule.training.run_folder import claim
from transformers import TrainerCallback

from dynarule import RuleAdapter, RuleBank, dynarule_config

WIDTH, RULES = 8, 12
SAVING = {"save_strategy": "steps", "save_steps": 1}
FINAL = ("adapter_model.safetensors", "adapter_config.json", "README.md", "recipe.json")


def make_case(tiny_model, word_tokenizer, **changes):
    from dynarule.training.data import target_text

    rows = [
        {
            "question": f"what of {i} ?",
            "steps": [{"text": f"it is {i} .", "rule_ids": [i % RULES]}],
            "answers": ["9"],
        }
        for i in range(16)
    ]
    tokenizer = word_tokenizer([target_text(row) + row["question"] for row in rows])
    torch.manual_seed(0)
    model = tiny_model("qwen2", num_hidden_layers=2, vocab_size=len(tokenizer), **changes)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=1, top_k=4))
    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(RULES, WIDTH, generator=generator) for _ in range(2))
    bank = RuleBank(
        keys, values, [str(i) for i in range(RULES)], [f"rule {i}" for i in range(RULES)], "test@1"
    )
    return model, tokenizer, adapter, rows, bank


@pytest.fixture
def case(tiny_model, word_tokenizer):
    return make_case(tiny_model, word_tokenizer)


def recipe_of(**changes):
    small = {
        "batch_size": 4,
        "accumulation": 1,
        "pool_size": 10,
        "max_steps": 2,
        "mix": None,
        "learning_rate": 1e-2,
    }
    return paper_recipe(**(small | changes))


def run(case, folder, recipe, **arguments):
    from dynarule.training.trainer import train

    model, tokenizer, adapter, rows, bank = case
    settings = {"use_cpu": True, "save_strategy": "no", "logging_steps": 1}
    return train(model, tokenizer, adapter, rows, bank, recipe, folder, **(settings | arguments))


def test_a_new_run_does_not_move_in_with_old_checkpoints(case, tmp_path):
    run(case, tmp_path, recipe_of(), **SAVING)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(
        FileExistsError, match=r"newest checkpoint-2; resume it \(--resume\), or choose a new folder"
    ):
        run(case, tmp_path, recipe_of(seed=3), **SAVING)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == 0


def test_a_resumed_run_must_be_the_same_one(case, tmp_path):
    run(case, tmp_path, recipe_of(pool_size=(8, 10)), **SAVING)
    with pytest.raises(
        ValueError, match=r"started with temperature 0.05, now it is 0.1; resume with the recipe of"
    ):
        run(case, tmp_path, recipe_of(pool_size=(8, 10), temperature=0.1), resume=True, **SAVING)
    assert claim(tmp_path, recipe_of(pool_size=(8, 10)).to_dict(), True) == str(
        tmp_path / "checkpoint-2"
    )  # lists are tuples
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(ValueError, match=r"recipe\.json is damaged"):
        claim(tmp_path, recipe_of().to_dict(), True)


@pytest.mark.parametrize("state", [None, '{"log_history": [{"lo'])
def test_a_checkpoint_that_was_cut_off_is_passed_over(tiny_model, word_tokenizer, tmp_path, state):
    """The kill came while the third checkpoint was saved: the run goes on from the second, as if never killed."""
    from transformers.trainer import TRAINER_STATE_NAME

    wanted = run(make_case(tiny_model, word_tokenizer), tmp_path / "a", recipe_of(max_steps=4), **SAVING)
    seen = []
    folder = tmp_path / "b"

    def save_and_die(self, path):
        seen.append(sorted(p.name for p in (folder / "checkpoint-3").glob("*")))
        if len(seen) == 3:
            if state is not None:
                (folder / "checkpoint-3" / TRAINER_STATE_NAME).write_text(state)
            raise KeyboardInterrupt
        whole(self, path)

    from transformers import TrainerState

    whole = TrainerState.save_to_json
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TrainerState, "save_to_json", save_and_die)
        run(make_case(tiny_model, word_tokenizer), folder, recipe_of(max_steps=4), **SAVING)
    # All else is there before the state is, so a checkpoint that has it has everything.
    complete = {p.name for p in (tmp_path / "a" / "checkpoint-4").iterdir()}
    assert {*seen[2]} == complete - {TRAINER_STATE_NAME}
    assert claim(folder, recipe_of(max_steps=4).to_dict(), True) == str(folder / "checkpoint-2")
    found = run(make_case(tiny_model, word_tokenizer), folder, recipe_of(max_steps=4), resume=True, **SAVING)
    assert [entry["lm_loss"] for entry in found] == [entry["lm_loss"] for entry in wanted]


def test_resuming_before_the_first_whole_checkpoint_begins(case, tmp_path):
    """Also where the kill came while it was saved; but never a checkpoint of another recipe."""
    settings = recipe_of().to_dict()
    (tmp_path / "checkpoint-best").mkdir()  # not the Trainer's
    assert claim(tmp_path, settings, False) is None is claim(tmp_path, settings, True)
    assert claim(tmp_path / "new", recipe_of(seed=1).to_dict(), True) is None
    assert claim(tmp_path / "new", settings, True) is None
    assert json.loads((tmp_path / "new" / "recipe.json").read_text())["seed"] == 0
    (tmp_path / "checkpoint-2").mkdir()
    with pytest.raises(FileExistsError, match=r"newest checkpoint-2; resume it \(--resume\)"):
        claim(tmp_path, settings, False)
    assert (
        claim(tmp_path, recipe_of(seed=1).to_dict(), True) is None
    )  # nothing to go on from, of whatever recipe
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == 1
    assert not (tmp_path / "checkpoint-2").exists() and (tmp_path / "checkpoint-best").exists()
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text("{}")
    with pytest.raises(ValueError, match="started with seed 1, now it is 0"):
        claim(tmp_path, settings, True)


def test_two_processes_do_not_train_in_one_folder(case, tmp_path):
    """Nor does `rwbench adapters train`, whose lock is the same file."""
    import fcntl

    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(
            ValueError, match=f"another process is running {tmp_path}; wait for it or stop it"
        ):
            run(case, tmp_path, recipe_of())
    run(case, tmp_path, recipe_of())  # the lock goes with its holder

    class Second(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            with (tmp_path / ".lock").open("a") as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    run(case, tmp_path, recipe_of(), callbacks=[Second()], resume=True)


KILLS = """
import importlib.util, json, os, random, signal, sys, time
import torch; torch.set_num_threads(1)
from pathlib import Path
from dynarule.training.trainer import train
def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
    return module
here, folder, moments = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
conftest, this = load("shared", here.parent / "conftest.py"), load("this", here / "test_run_folder.py")
def start(name):
    child = os.fork()
    if child == 0:
        case = this.make_case(conftest.make_model, conftest.make_word_tokenizer)
        this.run(case, folder / name, this.recipe_of(max_steps=5), resume=True, **this.SAVING)
        os._exit(0)
    return child
began = time.monotonic()
assert os.waitpid(start("through"), 0)[1] == 0
lasted, found = time.monotonic() - began, []
for moment in range(moments):
    name = f"killed{moment}"
    child = start(name)
    time.sleep(lasted * (moment + random.random()) / moments)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found.append(sorted(path.name for path in (folder / name).glob("*")))
    assert os.waitpid(start(name), 0)[1] == 0, found
print(json.dumps(found))
"""


@pytest.mark.parametrize("moments", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_training_killed_at_any_moment_gives_the_same_adapter(tmp_path, moments):
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(here), str(tmp_path), str(moments)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    wanted = {name: (tmp_path / "through" / name).read_bytes() for name in FINAL}
    for moment in range(moments):
        assert {name: (tmp_path / f"killed{moment}" / name).read_bytes() for name in FINAL} == wanted, moment
        assert [p.name for p in (tmp_path / f"killed{moment}").glob(".*")] == [
            ".lock"
        ]  # nor is anything left over


def test_a_trained_matrix_is_saved_with_its_model(case, tmp_path, tiny_model):
    """`embedding="full"` changes the base, and an adapter without that base would be of no use."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    run(case, tmp_path, recipe_of(embedding="full"))
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    for name, value in case[0].state_dict().items():
        if "dynarule_" not in name and "token_adapter.tr" not in name:
            name = name.replace("token_adapter.base_layer.", "").replace("base_layer.", "")
            assert torch.equal(base.state_dict()[name], value), name
    row_id = case[1].get_vocab()["<search>"]
    row = base.get_input_embeddings().weight[row_id].clone()
    tuned = PeftModel.from_pretrained(base, tmp_path)
    assert torch.equal(tuned.get_input_embeddings().weight[row_id], row)
    assert "`BASE` is the folder `base` beside this file" in (tmp_path / "README.md").read_text()


def test_training_leaves_stdout_alone_and_tells_stderr(case, tmp_path, capsys):
    from dynarule.training.log import LogLines

    run(
        case,
        tmp_path,
        recipe_of(),
        callbacks=[LogLines()],
        held_out=case[3],
        eval_strategy="steps",
        eval_steps=1,
    )
    told = capsys.readouterr()
    assert told.out == ""
    lines = [line for line in told.err.splitlines() if line.startswith("dynarule: ")]
    log = json.loads((tmp_path / "log.json").read_text())
    assert [line.split("  ")[0] for line in lines] == [f"dynarule: step {i}/2" for i in (1, 1, 2, 2)]
    assert f"loss {log[0]['loss']:.3f}  lm {log[0]['lm_loss']:.3f}" in lines[0] and "left 0:0" in lines[0]
    assert f"held out: lm {log[-1]['eval_lm_loss']:.3f}" in lines[-1] and "left" not in lines[-1]
