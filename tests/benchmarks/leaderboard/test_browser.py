"""The board in a real browser, where one is at hand."""

import json
import os
import re
import runpy
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from rwbench.leaderboard.page import render_board

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")
MADE = runpy.run_path(str(Path(__file__).with_name("test_board.py")))
EVIL, made_up_row, board_of = MADE["EVIL"], MADE["made_up_row"], MADE["board_of"]

PROBE = """<script>
const out = {errors: []};
addEventListener("error", (e) => out.errors.push(e.message));
const section = document.getElementById("answers"), table = section.querySelector("table");
const head = (text) => [...table.querySelectorAll("th button")].find((b) => b.textContent.startsWith(text));
const column = (text) => head(text).parentNode.cellIndex;
const rows = () => [...table.tBodies[0].rows].filter((r) => !r.hidden);
const shown = (cell) => cell.dataset.sort ?? cell.textContent.trim();
const values = (text) => rows().map((r) => shown(r.cells[column(text)]));
const put = (field, value, event) => { field.value = value; field.dispatchEvent(new Event(event)); };
const pick = (name, value) => put(section.querySelector(`select[data-column=${name}]`), value, "change");
const count = () => section.querySelector(".count").textContent;
%s
const done = document.createElement("p"); done.id = "probe"; done.textContent = JSON.stringify(out);
document.body.append(done);
</script></body>"""


def run(rows, script, tmp_path, address="", window="1400,900", media=None):
    page = tmp_path / "index.html"
    html = render_board(board_of(rows)).replace("</body>", PROBE % script)
    if media:  # rules of that medium hold on the screen, where a script can look at them
        assert f"@media {media}" in html
        html = html.replace(f"@media {media}", "@media all")
    page.write_text(html)
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={window}", "--dump-dom"]
    done = subprocess.run(
        [*words, page.as_uri() + address],
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
        timeout=120,
    )
    found = json.loads(unescape(re.search(r'<p id="probe">(.*?)</p>', done.stdout, flags=re.S)[1]))
    assert found["errors"] == []
    return found


def test_sorting_and_filtering(tmp_path):
    found = run(
        [made_up_row(number) for number in range(12)],
        """
        head("Exact match").click(); out.down = values("Exact match").map(Number);
        out.way = head("Exact match").parentNode.ariaSort;
        head("Exact match").click(); out.up = values("Exact match").map(Number);
        head("Cost").click(); out.cost = values("Cost");
        head("Cost").click(); out.cheap = values("Cost");
        head("Method").click(); out.names = rows().map((r) => r.querySelector("summary").textContent);
        out.hash = location.hash;
        pick("representation", "FOL"); out.fol = count(); out.forms = values("Rules");
        pick("pool", "1,000"); out.none = count();
        pick("pool", ""); pick("representation", "");
        const search = section.querySelector("input"); put(search, "METHOD 11", "input");
        out.searched = rows().map((r) => r.querySelector("summary").textContent);
        put(search, "nobody", "input"); out.nobody = count();
        """,
        tmp_path,
    )
    assert found["down"] == sorted(found["down"], reverse=True)
    assert found["way"] == "descending"
    assert found["up"] == found["down"][::-1]
    # Missing figures stay at the end both ways.
    assert found["cost"] == ["0.8", "0.4", "0.0", *[""] * 9]
    assert found["cheap"] == ["0.0", "0.4", "0.8", *[""] * 9]
    assert found["names"] == sorted(found["names"])
    assert "answers.sort=1_up" in found["hash"]
    assert found["fol"] == "4 of 12"
    assert set(found["forms"]) == {"FOL"}
    assert found["none"] == "0 of 12"
    assert found["searched"] == ["Method 11"]
    assert found["nobody"] == "0 of 12"


def test_a_view_is_in_the_address_and_nonsense_in_it_does_nothing(tmp_path):
    rows = [made_up_row(number) for number in range(12)]
    script = "out.count = count(); out.names = rows().map((r) => r.querySelector('summary').textContent);"
    wanted = "#answers.representation=FOL&answers.sort=0_down"
    found = run(rows, script, tmp_path, wanted)
    assert found["count"] == "4 of 12"
    assert found["names"] == ["Method 9", "Method 6", "Method 3", "Method 0"]
    found = run(rows, script, tmp_path, "#answers.representation=<b>&answers.sort=99_up&x[constructor]=1")
    assert found["count"] == "12 of 12"


def test_a_hostile_name_is_text(tmp_path):
    fields = dict.fromkeys(("name", "submitter", "description", "model", "hardware"), EVIL)
    found = run(
        [made_up_row(0, **fields, subtasks=[EVIL], links={"code": "https://a.example/"}), made_up_row(1)],
        """
        out.name = table.querySelector("summary").textContent; out.images = document.images.length;
        out.scripts = document.scripts.length;
        """,
        tmp_path,
    )
    assert found["name"] == EVIL
    assert found["images"] == 0
    assert found["scripts"] == 2


def test_keyboard_and_phone(tmp_path):
    found = run(
        [made_up_row(number) for number in range(3)],
        """
        const stops = [...section.querySelectorAll("button, select, input, summary, a")];
        out.reached = stops.filter((e) => e.tabIndex >= 0).length === stops.length;
        out.named = [...section.querySelectorAll("select, input")].every((e) => e.labels.length === 1);
        out.wide = document.documentElement.scrollWidth; out.window = innerWidth;
        const order = section.querySelector("select[data-order]");
        out.order = getComputedStyle(order.parentNode).display;
        out.head = getComputedStyle(table.tHead).display;
        put(order, "5_up", "change"); out.up = values("Exact match").map(Number);
        """,
        tmp_path,
        window="500,900",
    )
    assert found["reached"]
    assert found["named"]
    assert found["wide"] <= found["window"] <= 720
    assert found["order"] != "none"
    assert found["head"] == "none"
    assert found["up"] == sorted(found["up"])


def test_nothing_to_show_raises_nothing(tmp_path):
    page = tmp_path / "index.html"
    probe = "<script>document.body.append(Object.assign(document.createElement('p'), {id: 'probe'}))</script></body>"
    page.write_text(render_board(board_of([])).replace("</body>", probe))
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [*words, page.as_uri()],
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
        timeout=120,
    )
    assert '<p id="probe">' in done.stdout
    assert "CONSOLE" not in done.stderr
