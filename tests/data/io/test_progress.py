"""Progress on stderr, and files that are whole or not there."""

import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from ruleworld_data.io import part_of, whole_file, whole_folder, write_whole


def test_files_are_whole_or_as_they_were(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "häufig\n")
    assert path.read_bytes() == "häufig\n".encode()
    with pytest.raises(KeyError), whole_file(path) as part:
        part.write_text("half")
        raise KeyError
    assert path.read_text(encoding="utf-8") == "häufig\n"
    bodies = [bytes([i]) * 100_000 for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda body: write_whole(path, body), bodies))
    assert path.read_bytes() in bodies
    assert list(tmp_path.iterdir()) == [path]


def hold(path, folder, began):
    with part_of(path, folder=folder) as part:
        (part / "half" if folder else part).write_text("half")
        began.set()
        signal.pause()


@pytest.mark.parametrize("folder", [False, True])
def test_a_writer_waits_for_a_living_one_and_takes_over_what_a_killed_one_left(tmp_path, folder):
    path, fork = tmp_path / "name", multiprocessing.get_context("fork")
    began = fork.Event()
    other = fork.Process(target=hold, args=(path, folder, began))
    other.start()
    assert began.wait(60)
    write = ThreadPoolExecutor(1).submit(write_new, path, folder)
    with pytest.raises(TimeoutError):
        write.result(0.2)
    assert [each.name for each in tmp_path.iterdir()] == [".name.part"]
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    write.result(60)
    assert [each.name for each in tmp_path.rglob("*")] == ["name", "new"][: 1 + folder]
    assert folder or path.read_text() == "new"


def write_new(path, folder):
    if not folder:
        write_whole(path, "new")
        return
    with whole_folder(path) as part:
        (part / "new").touch()


def test_a_link_in_place_of_a_part_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".file.part").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="symbolic links"):
        write_whole(tmp_path / "file", "new")
    (tmp_path / ".file.part").unlink()
    os.link(tmp_path / "mine", tmp_path / ".file.part")
    write_whole(tmp_path / "file", "new")
    assert (tmp_path / "mine").read_text() == "mine" and (tmp_path / "file").read_text() == "new"


def test_a_folder_becomes_a_missing_or_an_empty_one_and_no_other(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        write_new(tmp_path / name, True)
    with pytest.raises(FileExistsError, match="new exists already; choose a new folder"):
        write_new(tmp_path / "new", True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["empty", "new"]
