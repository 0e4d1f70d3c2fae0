"""Files that are whole or not there."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from ruleworld_data.io import whole_folder, write_whole
from ruleworld_data.io.files import STALE, part_of


def test_files_are_whole_or_as_they_were(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "häufig\n")
    assert path.read_bytes() == "häufig\n".encode()
    with pytest.raises(KeyError), part_of(path) as part:
        part.write_text("half")
        raise KeyError
    assert path.read_text(encoding="utf-8") == "häufig\n"
    bodies = [bytes([i]) * 100_000 for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda body: write_whole(path, body), bodies))
    assert path.read_bytes() in bodies
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_removed_a_day_later(tmp_path):
    lefts = [tmp_path / f".[name].{part}.part" for part in ("file", "folder", "young")]
    lefts[0].write_text("half")
    lefts[1].mkdir()
    (lefts[1] / "file").write_text("half")
    for left in lefts[:2]:
        os.utime(left, (0, left.stat().st_mtime - STALE - 60))
    lefts[2].write_text("half")
    write_new(tmp_path / "[name]")
    assert sorted(each.name for each in tmp_path.iterdir()) == [lefts[2].name, "[name]"]


def write_new(path):
    with whole_folder(path) as part:
        (part / "new").touch()


def test_a_folder_becomes_a_missing_or_an_empty_one_and_no_other(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        write_new(tmp_path / name)
    with pytest.raises(FileExistsError, match="new exists already; choose a new folder"):
        write_new(tmp_path / "new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["empty", "new"]
