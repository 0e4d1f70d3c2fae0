"""HTML and DOCX as blocks."""

import re
from email import message_from_bytes, policy
from itertools import takewhile
from pathlib import Path
from typing import Any

from .._lazy import need
from ..bank.lexicon import LISTS, WORDS, has_verb, opens_with_verb, patterns
from .blocks import BULLET, Block, Row, is_title, is_whole, nested, plain
from .markdown import blocks_of
from .parts import parted
from .sheets import tables_of

_BLOCK_TAGS = [*LISTS["block_tags"]]
_LEFT_OUT = "script style nav pre code head template noscript form footer del s strike".split()
_BOXES = "[document] html body main article section details fieldset center".split()
_TITLES = "h1 h2 h3 h4 h5 h6 summary".split()
_ASIDE = patterns("pages").aside
_WITHIN = re.compile("^#")
_BY_HAND = re.compile(r"[-•·*–] |(?:\d{1,2}[.)]|\(?[a-z]\)) |[^:.]{1,40}: \w")  # an item, not in HTML


def read_html(body: bytes | str) -> list[Block]:
    """Return the blocks of a page, without its navigation, notices and forms."""
    first = {"from_encoding": "utf-8"} if isinstance(body, bytes) else {}  # else as the page says
    soup = need("bs4", "documents").BeautifulSoup(body, "html.parser", **first)
    pressed = [b for b in soup("button") if not (b.has_attr("aria-expanded") or b.find_parent(_TITLES))]
    for tag in [*soup(_LEFT_OUT), *soup(id=_ASIDE), *soup(class_=_ASIDE), *pressed]:
        tag.decompose()
    for foot in soup("tfoot"):  # it may stand before the rows
        foot.parent.append(foot)
    for table in soup("table"):  # one column of paragraphs is a page's layout
        rows = [row.find_all("td", recursive=False) for row in table.find_all("tr")]
        if table.find([*_TITLES, "p", "ul"]) and all(len(cells) == 1 for cells in rows):
            for tag in [table, *(cell for cells in rows for cell in cells)]:
                tag.name = "div"
    for number, call in enumerate(soup("a", href=_WITHIN)):
        note = None if call.decomposed else soup.find(["li", "p", "aside", "dd"], id=call["href"][1:])
        sign = call.get_text(strip=True).strip("[]()")
        if note and (call.find_parent("sup") or sign in tuple("*†‡§")):
            for back in note("a", href=_WITHIN):
                back.decompose()
            soup.append(last := soup.new_tag("p", sourceline=note.sourceline))
            last.string = f"[^n{number}]: {note.get_text(' ', strip=True).removeprefix(sign).strip()}"
            call.replace_with(f"[^n{number}]")
            note.decompose()
    for tag in soup(["br", "sup"]):
        words = tag.get_text(strip=True)
        if digits := re.fullmatch(r"\[?(\d+)\]?", words):
            words = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in digits[1])
        tag.replace_with("\n\n" if tag.name == "br" else words)
    for tag in soup(["li", "p", "div", "ul", "ol"]):
        listed = tag.name in ("ul", "ol") and not any(is_whole(a.get_text(strip=True)) for a in tag("a"))
        within = True if listed or re.search("[|·•›»]", tag.get_text()) else _WITHIN  # "Main page | Edit"
        links = "".join(link.get_text() for link in tag("a", href=within))
        if links and re.sub(r"[\W\d]", "", tag.get_text()) == re.sub(r"[\W\d]", "", links):
            tag.decompose()  # of a table of contents, or of the site
    for box in soup("details"):
        box.insert_after(soup.new_tag("summary"))  # it ends here, and so does its answer
    soup.smooth()
    for words in soup.find_all(string=re.compile(r"\S")):
        if words.PREFIX:  # a comment
            words.extract()
        elif words.parent.name in _BOXES:  # it stands in no paragraph
            run = [words, *takewhile(lambda tag: tag.name not in _BLOCK_TAGS, words.next_siblings)]
            line = (words.find_previous(True) or words.parent).sourceline
            words.insert_before(paragraph := soup.new_tag("p", sourceline=line))
            paragraph.extend(run)
    blocks: list[Block] = []
    begun: set[int] = set()  # items of which a paragraph has been read
    for tag in soup.find_all([*_TITLES, *"p li table dt dd div blockquote button".split()]):
        if tag.find_parent("table") or tag.parent is None:
            continue
        line = tag.sourceline or 1
        if tag.name == "table":
            blocks += tables_of(_spanned(tag), plain(tag.caption.get_text(" ")) if tag.caption else "")
            continue
        # the words of the tag itself: those of a nested list or paragraph follow as blocks of their own
        own = (words for words in tag.find_all(string=True) if words.find_parent(_BLOCK_TAGS) is tag)
        text = "".join(own)
        if re.search(r"\S\t\d+$", text):
            continue  # a title, its page
        text = re.sub(r"(?<=[^\W\d])\t+(?=\S)", ": ", text)  # "Sunday", a tab, "closed"
        lines = [" ".join(part.split()) for part in text.split("\n\n")]
        if sum(bool(_BY_HAND.match(part)) for part in lines) > 1:
            blocks += blocks_of([(line, part) for part in lines])
            continue
        label = len(lines) > 1 and is_title(lines[0]) and has_verb(lines[1])  # "Renewals", and what holds
        text = " ".join(text.replace("\n\n", ": ", label).split())
        bold = tag.find(["b", "strong"])
        item = tag if tag.name == "li" else tag.find_parent("li")
        if not text and tag.name != "summary":
            continue
        if tag.name[1:].isdigit():
            blocks.append(Block("heading", text.removesuffix(":"), [(0, line)], int(tag.name[1])))
        elif tag.name in ("summary", "button") or (
            bold and tag.name != "dt" and plain(bold.get_text(" ")) == text and not is_whole(text)
        ):
            blocks.append(Block("heading", text, [(0, line)], 7))
        elif tag.name == "dd" and blocks and blocks[-1].mark == "dt":
            runs_on = is_whole(blocks[-1].text) or opens_with_verb(text)
            blocks[-1].text += f"{' ' if runs_on else ': '}{text}"
        elif (typed := BULLET.match(text) if tag.name != "dt" else None) or item:
            deep = len(tag.find_parents(["ul", "ol"])) - 1 + (id(item) in begun) if item else 0
            mark = typed[2] if typed else "1." if item.parent and item.parent.name == "ol" else ""
            blocks.append(Block("item", typed[3] if typed else text, [(0, line)], deep, mark))
            begun.update([id(item)] if item else [])
        else:
            blocks.append(Block("text", text, [(0, line)], mark=tag.name))
    return nested([*parted(blocks)])


def read_mail(path: Path) -> list[Block]:
    """Return the blocks of an e-mail, without its signature and the mails that it quotes; attachments are named."""
    mail: Any = message_from_bytes(path.read_bytes(), policy=policy.default)
    body = mail.get_body(("plain", "html"))
    text = "" if body is None else body.get_content()
    html = body is not None and body.get_content_subtype() == "html"
    own = re.split(r"(?m)^(?:-- ?|-{4,}.*)$", text)[0].splitlines()
    blocks = read_html(text) if html else blocks_of(list(enumerate(own, 1)), mail=True)
    why = "an attachment; read it as a file of its own"
    lost = [Block("lost", str(part.get_filename()), [(0, 1)], mark=why) for part in mail.iter_attachments()]
    return [Block("heading", str(mail["subject"] or ""), [(0, 1)], 1), *blocks, *lost]


def _spanned(table: Any) -> list[Row]:
    """Return the rows of a page's table, with the cells that go over several in each."""
    rows: list[Row] = []
    below: dict[int, tuple[int, str]] = {}  # column: how many rows more, and what
    for within in table.find_all("table"):  # in a cell: "up to 9: 1; over 9: 2"
        inner = [r.find_all(["td", "th"]) for r in within.find_all("tr") if r.find("td")]
        within.replace_with("; ".join(": ".join(cell.get_text(" ", True) for cell in r) for r in inner))
    for row in table.find_all("tr"):
        cells: list[str] = []
        for cell in [*row.find_all(["td", "th"]), None]:
            while len(cells) in below:
                left, words = below.pop(len(cells))
                below |= {len(cells): (left - 1, words)} if left > 1 else {}
                cells.append(words)
            if cell is not None:
                words = plain(cell.get_text(", " if cell("li") else " ", strip=bool(cell("li"))))
                high, wide = (int(cell.get(name) or 1) for name in ("rowspan", "colspan"))
                below |= {len(cells) + i: (high - 1, words) for i in range(wide) if high > 1}
                cells += [words] * (wide if row(["td", "th"])[1:] else 1)  # alone, a title
        rows.append((row.sourceline or 0, cells))
    kinds = [[cell.name for cell in row(["th", "td"])] for row in table("tr")]
    if len(rows) > 1 and all(len(row) > 2 and row == ["th", *["td"] * (len(row) - 1)] for row in kinds):
        return [(rows[0][0], [*column]) for column in zip(*(cells for _, cells in rows), strict=False)]
    return rows


def read_docx(path: Path) -> list[Block]:
    """Return the blocks of a DOCX, whose lines are numbers of paragraphs."""
    with path.open("rb") as file:
        html = need("mammoth", "documents").convert_to_html(file, style_map=WORDS["docx"]["styles"]).value
    blocks = read_html(html)
    for number, block in enumerate(blocks, 1):
        block.starts, block.rows = [(0, number)], [(number, cells) for _, cells in block.rows]
    return blocks
