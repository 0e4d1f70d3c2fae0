"""The folder of a run: nobody else's checkpoints, whole files, and everything that serving needs in it."""

import fcntl
import json
import multiprocessing
import random
import time

import pytest
from dynarule.bank import RuleBank
from dynarule.training import LogLines
from dynarule.training.run_folder import claim
from transformers import TrainerCallback

SAVING = {"save_strategy": "steps", "save_steps": 1}
FINAL = ("adapter_model.safetensors", "adapter_config.json", "README.md", "recipe.json")


def checkpoint(folder, number, state='{"log_history": []}'):
    """What the Trainer saves; its state comes last."""
    (folder / f"checkpoint-{number}").mkdir(parents=True)
    (folder / f"checkpoint-{number}" / "trainer_state.json").write_text(state)


def test_a_new_run_does_not_move_in_with_old_checkpoints(tmp_path):
    claim(tmp_path, {"seed": 0}, False)
    checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 10)
    with pytest.raises(
        FileExistsError, match=r"newest checkpoint-10; resume it \(--resume\), or choose a new"
    ):
        claim(tmp_path, {"seed": 3}, False)
    assert json.loads((tmp_path / "recipe.json").read_text()) == {"seed": 0}


def test_a_resumed_run_must_be_the_same_one(tmp_path):
    settings = {"pool_size": (8, 10), "temperature": 0.05}
    claim(tmp_path, settings, False)
    checkpoint(tmp_path, 2)
    assert claim(tmp_path, settings, True) == str(tmp_path / "checkpoint-2")  # lists are tuples
    with pytest.raises(
        ValueError, match=r"started with temperature 0.05, now it is 0.1; resume with the recipe"
    ):
        claim(tmp_path, settings | {"temperature": 0.1}, True)


@pytest.mark.parametrize("name", ["checkpoint-2", "checkpoint-best"])
def test_a_link_leads_no_training_elsewhere(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"{name} is a link"):
        claim(tmp_path / "run", {"seed": 0}, True)


def test_a_checkpoint_that_was_cut_off_is_passed_over(tmp_path, state='{"log_history": [{"lo'):
    claim(tmp_path, {"seed": 0}, False)
    (tmp_path / "checkpoint-best").mkdir()  # not the Trainer's
    checkpoint(tmp_path, 3, state)
    with pytest.raises(FileExistsError, match="newest checkpoint-3"):
        claim(tmp_path, {"seed": 1}, False)
    # Nothing to go on from, of whatever recipe.
    assert claim(tmp_path, {"seed": 1}, True) is None
    assert json.loads((tmp_path / "recipe.json").read_text()) == {"seed": 1}
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-best"]
    checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 3, state)
    assert claim(tmp_path, {"seed": 1}, True) == str(tmp_path / "checkpoint-2")
    assert not (tmp_path / "checkpoint-3").exists()


def test_two_processes_do_not_train_in_one_folder(case, quick, run, tmp_path):
    """Nor does the training of adapters in rwbench, whose lock is the same file."""

    class Second(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            with (tmp_path / ".lock").open("a") as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match=f"another process is running {tmp_path}; wait for it or stop"):
            run(case, tmp_path, quick(max_steps=1))
    run(case, tmp_path, quick(max_steps=1), callbacks=[Second()])  # the lock goes with its holder


def test_a_run_goes_on_with_its_own_questions_rules_and_adapter(make_case, quick, run, tmp_path):
    recipe = quick(max_steps=1)
    run(make_case(), tmp_path, recipe, **SAVING)
    for name in ("questions", "rules", "model", "adapter"):
        model, tokenizer, adapter, rows, bank = make_case()
        if name == "questions":
            rows = rows[::-1]
        elif name == "rules":
            texts = [f"{bank.texts[0]} so", *bank.texts[1:]]
            bank = RuleBank(bank.keys_MP, bank.values_MP, bank.ids, texts, bank.encoder)
        elif name == "model":
            adapter.config.base["weights_hash"] = "of another"
        else:
            adapter.config.top_k += 1
        what = {"adapter": "adapter", "model": "base"}.get(name, "data")
        with pytest.raises(ValueError, match=f"started with {what} .*, now it is"):
            run((model, tokenizer, adapter, rows, bank), tmp_path, recipe, resume=True, **SAVING)


def test_a_training_killed_at_any_moment_gives_the_same_adapter(make_case, quick, run, tmp_path):
    def train(name):
        recipe = quick(max_steps=4, additions={"muon": {"value_rate": 3.0}})
        run(make_case(), tmp_path / name, recipe, resume=True, **SAVING)

    def start(name):
        child = multiprocessing.get_context("fork").Process(target=train, args=[name])
        child.start()
        return child

    began = time.monotonic()
    start("through").join()
    lasted = time.monotonic() - began
    child = start("killed")
    time.sleep(lasted * random.uniform(0.2, 1))
    child.kill()
    child.join()
    child = start("killed")
    child.join()
    assert child.exitcode == 0
    for name in FINAL:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "through" / name).read_bytes(), name


def test_training_leaves_stdout_alone_and_logs_to_stderr(case, quick, run, tmp_path, capsys):
    measuring = {"held_out": case[3][:8], "eval_strategy": "steps", "eval_steps": 1}
    run(case, tmp_path, quick(max_steps=2), callbacks=[LogLines()], **measuring)
    written = capsys.readouterr()
    assert written.out == ""
    lines = [line for line in written.err.splitlines() if line.startswith("dynarule: ")]
    log = json.loads((tmp_path / "log.json").read_text())
    assert [line.split("  ")[0] for line in lines] == [f"dynarule: step {i}/2" for i in (1, 1, 2, 2)]
    assert f"loss {log[0]['loss']:.3f}  lm {log[0]['lm_loss']:.3f}" in lines[0] and "left 0:0" in lines[0]
    assert f"held out: lm {log[-1]['eval_lm_loss']:.3f}" in lines[-1] and "left" not in lines[-1]
