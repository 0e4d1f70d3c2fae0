"""Several writers of one folder, and writers that are killed: what was acknowledged is there, and it is whole."""

import multiprocessing
import os
import random
import re
import resource
import signal
import time
from typing import ClassVar

import pytest
import torch
from dynarule._files import PART, SAVED, assembled, changing, disk_errors, part_of, write_whole
from dynarule.bank import changed_bank, storage
from dynarule.cli.app import app
from dynarule.cli.bank import UNFINISHED
from peft import PeftModel
from typer.testing import CliRunner

from dynarule import DynaRuleConfig, RuleAdapter, RuleBank, dynarule_config

WIDTH = 12
FORK = multiprocessing.get_context("fork")


class FakeEncoder:
    """Vectors without a model."""

    fingerprint = "fake"

    def __init__(self, *_, **__):
        pass

    def __call__(self, texts):
        return torch.ones(len(texts), WIDTH)


def rules(*names):
    keys = torch.ones(len(names), WIDTH)
    return RuleBank(keys, keys, list(names), [f"text of {name}" for name in names], "fake")


def kill_at_random(work, seconds, stream):
    """Run a function that never ends in a process of its own, and kill it at a random moment after it began."""
    began = FORK.Event()
    child = FORK.Process(target=work, args=(began,))
    child.start()
    assert began.wait(60)
    time.sleep(stream.uniform(0, seconds))
    os.kill(child.pid, signal.SIGKILL)
    child.join()


def commands(arguments):
    """Run commands one after another; return those that succeeded."""
    return [words for words in arguments if CliRunner().invoke(app, words).exit_code == 0]


def test_what_several_commands_changed_at_once_is_all_there(tmp_path, monkeypatch):
    monkeypatch.setattr("dynarule.bank.encoders.SentenceEncoder", FakeEncoder)
    bank = str(tmp_path / "bank")
    rules(*(f"old-{i}" for i in range(12))).save(bank)
    work = []
    for worker in range(4):
        words = []
        for i in range(6):
            path, prefix = tmp_path / f"{worker}-{i}.txt", f"{worker}-{i}-"
            path.write_text(f"If {worker}, {i}.\n")
            words.append(["bank", "add", bank, str(path), "--encoder", "minilm", "--prefix", prefix])
            words.append(["bank", "remove", bank, f"old-{i * 2 + worker % 2}"])  # two workers want each
        work.append(words)
    with FORK.Pool(4) as pool:
        done = [words for each in pool.map(commands, work) for words in each]
    added = {words[-1] + "1" for words in done if words[1] == "add"}
    removed = [words[-1] for words in done if words[1] == "remove"]
    assert len(added) == 24 and len(removed) == len(set(removed)) == 12
    assert set(RuleBank.load(bank).ids) == added


def test_a_bank_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    """The header of one file and the tensors of the next are no bank; about one command in 300 met it."""
    first, second = tmp_path / "bank", tmp_path / "second"
    rules("a", "b").save(first)
    rules("c", "d").save(second)
    true_hash, times = storage.hash_tensors, []

    def late(tensors):
        times.append(1)
        if len(times) > 1:
            return true_hash(tensors)
        (second / "bank.safetensors").replace(first / "bank.safetensors")
        return "of the other file"

    monkeypatch.setattr(storage, "hash_tensors", late)
    assert RuleBank.load(first).ids == ["c", "d"] and len(times) == 2


def test_a_kill_leaves_a_whole_bank_and_the_next_writer_clears_up(tmp_path):
    bank, stream = tmp_path / "bank", random.Random(0)
    rules("0").save(bank)
    held = 1

    def grow(began):
        for i in range(1_000_000):
            with changed_bank(bank) as live:
                live.add(rules(f"{os.getpid()}-{i}"))
            began.set()

    for _ in range(12):
        kill_at_random(grow, 0.05, stream)
        assert len(RuleBank.load(bank)) > held - 1
        held = len(RuleBank.load(bank))
    (bank / f".bank.safetensors{PART}").write_bytes(b"x" * 1000)  # as a kill leaves it
    with changed_bank(bank) as live:
        live.remove(["0"])
    assert sorted(path.name for path in bank.iterdir()) == [".lock", "bank.safetensors"]
    assert len(RuleBank.load(bank)) == held - 1


def test_a_change_that_fails_writes_nothing(tmp_path):
    rules("a").save(tmp_path)
    before = (tmp_path / "bank.safetensors").read_bytes()
    with pytest.raises(KeyError), changed_bank(tmp_path) as live:
        live.add(rules("b"))
        live.remove(["c"])
    assert (tmp_path / "bank.safetensors").read_bytes() == before
    with pytest.raises(FileNotFoundError, match="no rule bank"), changed_bank(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


@torch.no_grad()
def number_of(folder, model):
    """The number that weights were filled with, and the one that the configuration says."""
    config = DynaRuleConfig.from_pretrained(folder)
    tuned = PeftModel.from_pretrained(model, folder)
    values = {float(value) for each in RuleAdapter(tuned).parameters() for value in (each.min(), each.max())}
    assert len(values) == 1
    return values.pop(), config.length_shift


@torch.no_grad()
def save_numbered(adapter, folder, number):
    for parameter in adapter.parameters():
        parameter.fill_(number)
    adapter.config.length_shift = float(number)
    adapter.save(folder)


def test_a_kill_leaves_weights_and_configuration_of_one_save(tmp_path, tiny_model):
    adapter, stream = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH)), random.Random(1)
    save_numbered(adapter, tmp_path, 1)

    def save(began):
        for number in range(2, 1_000_000):
            save_numbered(adapter, tmp_path, number)
            began.set()

    for _ in range(6):
        kill_at_random(save, 0.1, stream)
        with changing(tmp_path):  # as the next writer does
            pass
        weights, config = number_of(tmp_path, tiny_model("qwen2"))
        assert weights == config
    save_numbered(adapter, tmp_path, 1)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(PART) or path.name == SAVED]


@pytest.mark.parametrize("renamed", [0, 1])
def test_a_kill_between_two_renames_is_made_good(renamed, tmp_path, tiny_model, monkeypatch):
    adapter = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH))
    save_numbered(adapter, tmp_path, 1)
    seen, rename = [], type(tmp_path).replace

    def power_cut(self, target):
        if self.parent.name == SAVED:
            seen.append(self)
            if len(seen) > renamed:
                raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(tmp_path), "replace", power_cut)
        save_numbered(adapter, tmp_path, 2)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"was interrupted.*save or train into .* again"):
        number_of(tmp_path, tiny_model("qwen2"))
    assert contents(tmp_path) == before  # who reads moves nothing
    with changing(tmp_path):
        pass
    assert number_of(tmp_path, tiny_model("qwen2")) == (2, 2)
    assert not (tmp_path / SAVED).exists()


def contents(folder):
    """What is in a folder, links not followed."""
    files = {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    }
    return files | {path: os.readlink(path) for path in folder.rglob("*") if path.is_symlink()}


LINKS = {"out": "out/mine.txt", "a/out": "a/out/mine.txt", f"{SAVED}/taken.txt": None, SAVED: None}
"""A link in a stranger's folder, and what its unfinished save would write through it."""


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("kind", ["bank", "adapter"])
def test_a_strangers_folder_moves_nothing_when_it_is_read_or_written(kind, link, tmp_path, tiny_model):
    """It could hold files on their way through a link to files of ours, or ours on their way into it."""
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    adapter = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH))
    rules("a").save(folder) if kind == "bank" else save_numbered(adapter, folder, 1)
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(elsewhere / "mine.txt" if link.endswith("txt") else elsewhere)
    if LINKS[link]:
        (folder / SAVED / LINKS[link]).parent.mkdir(parents=True)
        (folder / SAVED / LINKS[link]).write_text("theirs")
    before = contents(tmp_path)
    done = CliRunner().invoke(app, ["inspect", str(folder)])
    if kind == "bank":
        assert done.exit_code == 0 and RuleBank.load(folder).ids == ["a"]
    else:
        assert done.exit_code and "was interrupted" in done.output.replace("\n", " ")
    assert contents(tmp_path) == before
    with pytest.raises(ValueError, match=r"is a link, so the save .* cannot be finished; remove it"):
        rules("b").save(folder, overwrite=True) if kind == "bank" else save_numbered(adapter, folder, 2)
    assert contents(tmp_path) == before


def write_often(path):
    for i in range(60):
        write_whole(path, f"{i % 10}" * 50_000)
    return True


def test_writers_of_one_file_do_not_meet(tmp_path):
    with FORK.Pool(4) as pool:
        assert all(pool.map(write_often, [tmp_path / "file"] * 4))
    assert len(set((tmp_path / "file").read_text())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_another_writer_removes_before_it_is_opened_is_made_again(tmp_path, monkeypatch):
    opened, removed = os.open, []

    def late(path, *rest, **more):
        if not removed:
            os.rmdir(path)
            removed.append(path)
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", late)
    with part_of(tmp_path / "name", folder=True) as part:
        assert part.is_dir() and removed == [part]


def test_files_that_belong_together_may_lie_in_folders(tmp_path):
    """A tokenizer with several chat templates writes one; a second save replaces what the first wrote."""
    for text in ("one", "two"):
        with changing(tmp_path), assembled(tmp_path) as work:
            (work / "templates").mkdir()
            (work / "templates" / "tool.jinja").write_text(text)
            (work / "config.json").write_text(text)
        assert (tmp_path / "templates" / "tool.jinja").read_text() == text
        assert (tmp_path / "config.json").read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "config.json", "templates"]


class Dying(FakeEncoder):
    """Encodes what it can count, and is killed in the third batch."""

    batches: ClassVar = []

    def __call__(self, texts):
        self.batches.append(len(texts))
        if len(self.batches) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor([[len(text), len(texts)] for text in texts])


def test_a_killed_build_goes_on_to_the_same_bank(tmp_path, monkeypatch):
    monkeypatch.setattr("dynarule.bank.encoders.SentenceEncoder", Dying)
    (tmp_path / "rules.txt").write_text("".join(f"If A is {i}, it is {i % 7}.\n" for i in range(9_000)))

    def build(name):
        done = CliRunner().invoke(
            app, ["bank", "build", str(tmp_path / "rules.txt"), "--out", str(tmp_path / name)]
        )
        assert done.exit_code == 0, done.output

    child = FORK.Process(target=build, args=["killed"])
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    Dying.batches[:] = [0, 0, 0]
    build("killed")
    assert Dying.batches[3:] == [9_007 - 2 * 4_096]  # nothing is encoded twice
    build("whole")
    assert [*contents(tmp_path / "killed").values()] == [*contents(tmp_path / "whole").values()]
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {".lock", "bank.safetensors"}


@pytest.mark.parametrize("link", [UNFINISHED, f"{UNFINISHED}/deep/embeddings.sqlite"])
def test_a_build_is_not_led_elsewhere_by_a_link_in_a_strangers_folder(link, tmp_path, monkeypatch):
    monkeypatch.setattr("dynarule.bank.encoders.SentenceEncoder", FakeEncoder)
    (tmp_path / "rules.txt").write_text("If A runs, A is tired.\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "bank" / link).parent.mkdir(parents=True)
    (tmp_path / "bank" / link).symlink_to(elsewhere)
    done = CliRunner().invoke(
        app, ["bank", "build", str(tmp_path / "rules.txt"), "--out", str(tmp_path / "bank")]
    )
    assert done.exit_code == 2 and "is a link, which could lead anywhere; remove it" in done.output
    assert not list(elsewhere.iterdir())


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_encoded(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "rules.txt").write_text("If A runs, A is tired.\n")
    for place in (tmp_path, tmp_path / "notes.txt"):
        words = ["bank", "build", str(tmp_path / "rules.txt"), "--out", str(place), "--encoder", "nowhere"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code and "not overwritten; choose a new folder" in done.output
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("what", ["bank", "adapter", "checkpoint"])
def test_a_full_disk_is_an_os_error_and_what_was_there_stays(what, tmp_path, tiny_model):
    """safetensors and torch have errors of their own for it, which no command would tell in a line."""
    adapter = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH))
    rules("a").save(tmp_path / "bank")
    save_numbered(adapter, tmp_path / "adapter", 1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    told = FORK.SimpleQueue()

    def write():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            if what == "bank":
                rules(*map(str, range(2000))).save(tmp_path / "bank", overwrite=True)
            elif what == "adapter":
                save_numbered(adapter, tmp_path / "adapter", 2)
            else:
                with disk_errors(tmp_path):  # as training does
                    torch.save(torch.ones(100_000), tmp_path / "optimizer.pt")
        except OSError as error:
            told.put(str(error))
        finally:
            told.put("nothing")

    child = FORK.Process(target=write)
    child.start()
    child.join(60)
    assert re.search("cannot write|File too large", told.get())
    (tmp_path / "optimizer.pt").unlink(missing_ok=True)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def example(folder):
    from dynarule.example import write_example

    try:
        return str(write_example(folder))
    except FileExistsError as error:
        return str(error)


def test_two_examples_of_one_name_and_what_a_kill_left_of_a_third(tmp_path):
    (tmp_path / f".depot{PART}").mkdir()
    (tmp_path / f".depot{PART}" / "junk").touch()
    with FORK.Pool(2) as pool:
        told = sorted(pool.map(example, [tmp_path / "depot"] * 2))
    assert told == [str(tmp_path / "depot"), f"{tmp_path / 'depot'} exists already; choose a new folder"]
    names = ["held_out.jsonl", "model", "rules.txt", "train.jsonl"]
    assert sorted(path.name for path in (tmp_path / "depot").iterdir()) == names
    assert [path.name for path in tmp_path.iterdir()] == ["depot"]
