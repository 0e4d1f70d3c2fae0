"""A finished tiny build and its export, made once for all tests of this folder, which must not write to them."""

import pytest
from ruleworld_data.io import build, export


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "new" / "folder"
    build(folder, "tiny")
    return folder


@pytest.fixture(scope="session")
def exported(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "hub"
    export(built, folder)
    return folder
