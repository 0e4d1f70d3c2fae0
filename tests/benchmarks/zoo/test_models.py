"""Folders of models: replaced whole, whatever kills the writer."""

import pytest
from rwbench.zoo.models import fingerprint, replaced_folder


def write(folder, text):
    with replaced_folder(folder) as new:
        (new / "file").write_text(text)


def test_a_folder_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path):
    for text in ("one", "two"):
        write(tmp_path / "base", text)
        assert (tmp_path / "base" / "file").read_text() == text
        assert [path.name for path in tmp_path.iterdir()] == ["base"]


@pytest.mark.parametrize("when", ["writing", "between the renames"])
def test_killed_the_old_folder_is_there_for_the_next_writer_to_keep_or_replace(tmp_path, when):
    folder = tmp_path / "base"
    write(folder, "old")
    (tmp_path / ".base.part").mkdir()
    (tmp_path / ".base.part" / "half").touch()
    if when == "between the renames":
        folder.rename(tmp_path / "base.old")
    with pytest.raises(KeyboardInterrupt), replaced_folder(folder):
        assert (folder / "file").read_text() == "old"
        raise KeyboardInterrupt
    assert (folder / "file").read_text() == "old"
    write(folder, "new")
    assert (folder / "file").read_text() == "new" and [path.name for path in tmp_path.iterdir()] == ["base"]


def test_what_was_measured_of_a_base_is_no_part_of_it(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    before = fingerprint(tmp_path)
    (tmp_path / "gates.json").write_text("[]")
    assert fingerprint(tmp_path) == before
    (tmp_path / "tokenizer.json").write_text("{}")
    assert fingerprint(tmp_path) != before
