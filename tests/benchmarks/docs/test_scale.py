"""What the page on scale says of all rules."""

import re
from pathlib import Path

import pyarrow.compute as pc
import pytest
from rwbench.run.data import DataSource

PAGE = Path(__file__).parents[3] / "benchmarks/docs/scale.md"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_all_rules_have_as_many_premises_and_conclusions_as_the_page_says(version):
    told = re.search(
        r"the ([\d,]+) English rules have\s+([\d,]+) premises and ([\d,]+) conclusions", PAGE.read_text()
    )
    table = DataSource("full", version=version).rules("train").table
    different = [pc.count_distinct(table.column(f"{part}_nl")).as_py() for part in ("premise", "conclusion")]
    assert [len(table), *different] == [int(number.replace(",", "")) for number in told.groups()]
