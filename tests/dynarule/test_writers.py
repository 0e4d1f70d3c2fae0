"""Several writers of one folder, and writers that are killed: what was acknowledged is there, and it is whole."""

import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import time
from typing import ClassVar

import pytest
import torch
from dynarule._files import PART, assembled, changing, disk_errors
from dynarule.bank import changed_bank, storage
from dynarule.cli.app import app
from dynarule.cli.bank import UNFINISHED
from dynarule.config import WEIGHTS_FILE
from typer.testing import CliRunner

from dynarule import RuleAdapter, RuleBank, dynarule_config, load_adapter

from .conftest import WIDTH, FakeEncoder

FORK = multiprocessing.get_context("fork")


def rules(*names):
    keys = torch.ones(len(names), WIDTH)
    return RuleBank(keys, keys, list(names), [f"text of {name}" for name in names], "minilm@1")


def commands(arguments):
    """Run commands one after another; return those that succeeded."""
    return [words for words in arguments if CliRunner().invoke(app, words).exit_code == 0]


def build_bank(path, out, *more):
    return CliRunner().invoke(app, ["bank", "build", str(path), "--out", str(out), *more])


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
    assert RuleBank.load(first).ids == ("c", "d") and len(times) == 2


def test_a_kill_leaves_a_whole_bank_and_the_next_writer_clears_up(tmp_path):
    bank, stream = tmp_path / "bank", random.Random(0)
    rules("0").save(bank)
    held = 1

    def grow(began):
        for i in range(1_000_000):
            with changed_bank(bank) as live:
                live.add(rules(f"{os.getpid()}-{i}"))
            began.set()

    for _ in range(5):
        began = FORK.Event()
        child = FORK.Process(target=grow, args=(began,))
        child.start()
        assert began.wait(60)
        time.sleep(stream.uniform(0, 0.05))
        child.kill()
        child.join()
        assert len(RuleBank.load(bank)) > held - 1
        held = len(RuleBank.load(bank))
    old, new = (bank / f".bank.safetensors.{name}{PART}" for name in ("old", "new"))  # as kills leave them
    for left in (old, new):
        left.write_bytes(b"x" * 1000)
    os.utime(old, (0, 0))
    with changed_bank(bank) as live:
        live.remove(["0"])
    assert len(RuleBank.load(bank)) == held - 1 and new.exists() and not old.exists()


def test_a_change_that_fails_writes_nothing(tmp_path):
    rules("a").save(tmp_path)
    before = (tmp_path / "bank.safetensors").read_bytes()
    with pytest.raises(KeyError), changed_bank(tmp_path) as live:
        live.add(rules("b"))
        live.remove(["c"])
    assert (tmp_path / "bank.safetensors").read_bytes() == before
    with changed_bank(tmp_path, live) as again:
        assert again is not live and again.ids == ("a",)
    with changed_bank(tmp_path, again) as same:  # its file is not read anew
        assert same is again
    with pytest.raises(FileNotFoundError, match="no rule bank"), changed_bank(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


@torch.no_grad()
def save_numbered(adapter, folder, number):
    for parameter in adapter.parameters():
        parameter.fill_(number)
    adapter.config.length_shift = float(number)
    adapter.save(folder)


def contents(folder):
    """What is in a folder, links not followed."""
    files = {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    }
    return files | {path: os.readlink(path) for path in folder.rglob("*") if path.is_symlink()}


def test_a_kill_between_two_renames_leaves_no_adapter_and_never_half_of_each(
    tmp_path, tiny_model, monkeypatch
):
    adapter = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH))
    save_numbered(adapter, tmp_path, 1)
    rename = type(tmp_path).replace

    def power_cut(self, target):
        if target == tmp_path / "adapter_config.json":
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(tmp_path), "replace", power_cut)
        save_numbered(adapter, tmp_path, 2)
    before = contents(tmp_path)
    with pytest.raises(FileNotFoundError, match="not an adapter folder"):
        load_adapter(tiny_model("qwen2"), tmp_path)
    assert contents(tmp_path) == before  # who reads moves nothing
    save_numbered(adapter, tmp_path, 3)
    loaded = RuleAdapter(load_adapter(tiny_model("qwen2"), tmp_path))
    assert loaded.config.length_shift == float(loaded[0].k.weight.detach().min()) == 3.0
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "adapter_config.json", WEIGHTS_FILE}


def test_reading_a_strangers_folder_changes_nothing(tmp_path, tiny_model):
    """A zip with ``out -> ~`` and ``.saved/out/.bashrc`` once wrote to the home folder at ``dynarule inspect``."""
    home, bank, adapter = (tmp_path / name for name in ("home", "bank", "adapter"))
    home.mkdir()
    rules("a").save(bank)
    save_numbered(RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH)), adapter, 1)
    for folder in (bank, adapter):
        (folder / "out").symlink_to(home)
        for left in (".saved", ".out.0.part", ".new.0.part"):
            (folder / left / "out").mkdir(parents=True)
            (folder / left / "out" / ".bashrc").write_text("evil")
            os.utime(folder / left, (0, 0))
    before = contents(tmp_path)
    assert len(RuleBank.load(bank)) == 1 and load_adapter(tiny_model("qwen2"), adapter)
    assert len(commands([["inspect", str(bank)], ["inspect", str(adapter)]])) == 2
    assert contents(tmp_path) == before


def test_a_save_is_led_nowhere_by_a_link_in_a_strangers_folder(tmp_path):
    """A tokenizer with several chat templates has a folder of them; a second save replaces what the first wrote."""
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tool.jinja").write_text("mine")

    def save(text):
        with changing(folder), assembled(folder, "config.json") as work:
            (work / "templates").mkdir()
            (work / "templates" / "tool.jinja").write_text(text)
            (work / "config.json").write_text(text)

    for text in ("one", "two"):
        save(text)
        assert (folder / "templates" / "tool.jinja").read_text() == text
        assert (folder / "config.json").read_text() == text
        (folder / "config.json").unlink()
        (folder / "config.json").symlink_to(elsewhere / "tool.jinja")
    shutil.rmtree(folder / "templates")
    (folder / "templates").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic link"):
        save("three")
    assert contents(elsewhere) == {elsewhere / "tool.jinja": b"mine"}


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
        done = build_bank(tmp_path / "rules.txt", tmp_path / name)
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


@pytest.mark.parametrize("link", [".lock", UNFINISHED, f"{UNFINISHED}/deep/embeddings.sqlite"])
def test_a_build_is_not_led_elsewhere_by_a_link_in_a_strangers_folder(link, tmp_path, monkeypatch):
    monkeypatch.setattr("dynarule.bank.encoders.SentenceEncoder", FakeEncoder)
    (tmp_path / "rules.txt").write_text("If A runs, A is tired.\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "bank" / link).parent.mkdir(parents=True)
    (tmp_path / "bank" / link).symlink_to(elsewhere)
    done = build_bank(tmp_path / "rules.txt", tmp_path / "bank")
    assert done.exit_code == 2 and re.search("is a link, .*; remove it", done.output)
    assert not list(elsewhere.iterdir())


def test_a_lock_that_is_another_file_too_is_refused(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "bank").mkdir()
    os.link(tmp_path / "mine", tmp_path / "bank/.lock")
    with pytest.raises(ValueError, match=r"\.lock is a link"):
        rules("r").save(tmp_path / "bank")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_encoded(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "rules.txt").write_text("If A runs, A is tired.\n")
    for place in (tmp_path, tmp_path / "notes.txt"):
        done = build_bank(tmp_path / "rules.txt", place, "--encoder", "nowhere")
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
