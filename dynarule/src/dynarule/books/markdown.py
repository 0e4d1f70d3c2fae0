"""Markdown, reStructuredText and plain text as blocks."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..bank.lexicon import MODALS, RESTRICTS, VERBS, has_verb, opens_with_verb, patterns
from ..bank.openings import CLAUSAL
from .blocks import BULLET, NUMBER, OPEN, Block, Line, count_of, is_clause, is_title, is_whole, nested, plain
from .parts import parted

_RE = patterns("markdown")
DEFINED, UNBARRED = _RE.defined, _RE.unbarred
_CODE = "\1"  # stands for a block of code
_WRAPPED = 0.3
"""Share of lines after a line that begin in lower case, from which on a text counts as wrapped."""


def blocks_of(lines: Sequence[Line], mail: bool = False) -> list[Block]:
    """Return the blocks of Markdown or plain text, whose paragraphs may be wrapped at any width.

    Left out: code, logs, front matter, rulers, tables of contents, page numbers; of what a mail quotes, all but its
    questions.
    """
    lines = [(n, re.sub(r"(?<=\S)\t+", "   ", text).expandtabs(4)) for n, text in _without_code(lines)]
    lines = [(n, part) for n, text in lines for part in _RE.boxes.split(text)]
    tabbed = _without_quotes(_sectioned(_without_titles(lines)), mail)
    rows = _dotted([(n, _RE.grid.sub("|-|", _RE.prefix.sub("", text)).rstrip()) for n, text in tabbed])
    kept, drawn = _aligned(rows), any(text == "|-|" for _, text in rows)
    pairs = [(a, b) for (_, a), (_, b) in itertools.pairwise(rows) if a and b and not _starts(b)]
    torn = sorted(len(a) for a, b in pairs if b.lstrip()[0].islower())
    usual = torn[len(torn) // 2] if len(torn) > _WRAPPED * len(pairs) else 0  # width of a wrapped text
    usual = usual if usual and usual > max(25, 0.7 * torn[-1]) else 0
    width = min(100, max((len(text) for _, text in rows if not _RE.cells.match(text)), default=0))
    lettered = any(re.match(r"\s*B\.\s+\S", text) for _, text in rows)
    blocks: list[Block] = []
    above = ""  # the line above as far as it belongs to the last block
    for number, text in kept:
        last = blocks[-1] if blocks and above else None
        if text == _CODE:
            text = ""
            if blocks:
                blocks[-1].text = _closed(blocks[-1].text)
        folio = _RE.page.match(text) and not (last and OPEN.search(above))  # a page's number
        least = len(last.text) if last and last.mark else 0
        lined = _RE.underline.match(text) and len(text.strip()) >= least
        if lined and last and (last.kind == "text" or count_of(last)) and len(last.starts) == 1:
            last.kind, last.depth, above = "heading", 1 if "=" in text else 2, ""
        elif not text or folio or _RE.ruler.match(text) or _RE.of_contents.search(text):
            above = "" if not text or above.endswith((".", "!", "?")) else above  # else within a sentence
        elif heading := _RE.heading.match(text):
            blocks.append(Block("heading", plain(heading[2]), [(0, number)], len(heading[1])))
            above = ""
        elif _RE.cells.match(text):
            if last is None or last.kind != "table":
                last = Block("table", "", [(0, number)])
                blocks.append(last)
            if not _RE.separator.match(text):
                cells = [plain(_RE.picture.sub(r"\1", c)) for c in re.split(r"(?<!\\)\|", text.strip()[1:-1])]
                if drawn and last.rows and not cells[0] and (len(cells) == 2 or "" in cells[1:]):
                    number, upper = last.rows.pop()  # a cell of two lines
                    cells = [f"{a} {b}".strip() for a, b in zip(upper, cells, strict=False)]
                last.rows.append((number, cells))
            above = text
        elif (bullet := BULLET.match(text)) or (bullet := _numbered(text, blocks, lettered)):
            blocks.append(Block("item", plain(bullet[3]), [(0, number)], len(bullet[1]), bullet[2]))
            above = text
        elif blocks and blocks[-1].kind == "item" and (arrow := _RE.arrow.match(text)):
            for item in itertools.takewhile(lambda block: block.kind == "item", reversed(blocks)):
                item.text += f" -> {plain(text[arrow.end() :])}"
            above = ""
        elif last and (_goes_on(above, text, last, usual, width) or (last.mark == ":" and text[0] == " ")):
            last.go_on(plain(text), number)
            above = text
        else:
            column, over = _indent(text), blocks[-1] if blocks else Block("text", "", [])
            within = over.kind == "item" and over.mark != ":" and not over.text.endswith("?")
            nests = within and column >= over.depth + 2 * bool(over.mark)  # below it, or beside the last
            blocks.append(Block("item" if nests else "text", plain(text), [(0, number)], column * nests))
            above = text
    listed = False  # directly below a lead-in, or another such line
    for at, block in enumerate(blocks):
        over = blocks[at - 1] if at else block
        listed = block.kind == "text" and (listed or over.text[-1:] == ":") and not block.text.isupper()
        listed = listed and block.starts[0][1] == over.starts[-1][1] + 1
        block.text = _RE.asked.sub(r"\1 ", block.text)
        beside = blocks[max(0, at - 1) : at] + blocks[at + 1 : at + 2]
        alone = block.kind == "item" and all(other.kind != "item" for other in beside)
        below = blocks[at + 1] if at + 1 < len(blocks) else block
        # "5. HOW TO CLAIM", "5. Claims" above "5.1"
        loud = block.mark[:1].isdigit() and (block.text.isupper() or below.text.startswith(f"{block.mark}1"))
        title = _RE.clause_title.match(f"{block.mark} {block.text}" if alone else block.text)
        named = title and (below.kind == "item" or len(below.text) > 40)
        named = named and not is_clause(title[1])  # "14.32.030 Parking limits."
        named = named and (not NUMBER.match(below.text) or below.text.startswith(block.text.split()[0]))
        if block.kind == "text" and _RE.sum.fullmatch(block.text):
            block.kind, block.mark = "lost", "a sum"
            blocks[at - 1].text = _closed(blocks[at - 1].text)
        elif named or ((block.kind == "text" or alone or loud) and not listed and is_title(block.text)):
            above = block.mark or _RE.chapter.match(block.text)
            block.kind, block.depth = "heading", 5 if named else 3 if above else 8
        mark = NUMBER.match(block.text)
        if mark and len(mark[0]) < len(block.text):
            block.text = block.text[len(mark[0]) :]
            block.starts = [(offset - len(mark[0]), line) for offset, line in block.starts]
    return nested([*parted(block for block in blocks if block.text or block.rows)])


def _without_titles(lines: Sequence[Line]) -> list[Line]:
    """Leave out titles of pages, which come again with the next number, and the blank lines around them."""
    forms = [re.sub(r"\d+", "#", text) for _, text in lines]
    sums: dict[str, list[int]] = {}
    for form, (_, text) in zip(forms, lines, strict=True):
        if _RE.running.search(text[:200]) and not _RE.cells.match(text):
            sums.setdefault(form, []).append(sum(map(int, re.findall(r"\d{1,9}", text[:200]))))
    titles = {form for form, found in sums.items() if {b - a for a, b in itertools.pairwise(found)} == {1}}
    heads = Counter(head for foot, head in itertools.pairwise(filter(str.strip, forms)) if foot in titles)
    titles |= {head for head, count in heads.items() if count > 1}
    kept: list[Line] = []
    within = False  # from a title to the text below it
    for form, (number, text) in zip(forms, lines, strict=True):
        if form in titles:
            while kept and not kept[-1][1].strip():
                kept.pop()
            kept += [(number, "")] if not kept or is_whole(kept[-1][1]) else []
            within = True
        elif text.strip() or not within:
            kept.append((number, text))
            within = False
    return kept


def _without_quotes(lines: Sequence[Line], mail: bool) -> Iterator[Line]:
    """Of quotes that are answered keep the questions; take the marks off the others."""
    headed, above = any(_RE.header.match(text) for _, text in lines[:9]), ""
    for _, run in itertools.groupby(lines, key=lambda line: bool(_RE.quote.match(line[1]))):
        quote = list(run)
        is_quote = any(_RE.quoted.match(text) for _, text in quote)
        bare = [(number, _RE.quote.sub("", text) if is_quote else text) for number, text in quote]
        asked = re.findall(r"[^.!?]+\?", " ".join(text for _, text in bare)) if is_quote else []
        if is_quote and (mail or _RE.wrote.match(above) or (headed and asked)):
            bare = [(quote[-1][0], "".join(asked).strip()), (quote[-1][0], "")]
        yield from bare
        above = quote[-1][1]


def _closed(text: str) -> str:
    """Return what stands before code or a sum and says enough itself with a stop: "Ensure that all tests pass:"."""
    bare = re.fullmatch(r"(?i)(?:for )?examples?:", text)
    return text if _RE.announces_code.search(text) and not bare else re.sub(":$", ".", text)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _starts(text: str) -> bool:
    """Whether a line begins a block, whatever is above it."""
    return bool(BULLET.match(text) or _RE.heading.match(text) or _RE.cells.match(text) or NUMBER.match(text))


def _goes_on(above: str, text: str, block: Block, usual: int, width: int) -> bool:
    """Whether a line goes on with the block of the line above."""
    lower = text.lstrip(" (")[:1].islower()
    step = None if is_whole(above) else _RE.step.match(text)
    if step and re.match(r"(?i:if|when|given)\b", block.text):
        return step[0].lower() != "when" or block.text[:5].lower() == "given"
    if block.kind not in ("text", "item") or _RE.begins.match(text) or (lower and _RE.stop.search(above)):
        return False
    if block.kind == "item" and text.lstrip()[:1] == "(":
        return True  # "(Pull on the plug, not on the cable.)"
    if _RE.labelled.match(text) and (above[-1:] == ":" or _RE.labelled.match(above)):
        return False  # "ground floor: first week"
    ends = count_of(block) and above.endswith((",", ";")) and _indent(text) <= block.depth
    outer = _indent(text) < block.depth and len(above) < 45 and _RE.proviso.match(text)
    if outer or (ends and (opens_with_verb(text) or (len(above) < 45 and text.split()[0] in RESTRICTS))):
        return False  # "(b) refuses to stop," - "is liable to a fine": of all items
    torn = block.text[:1].isupper() and len(above) > 30  # a rule of its own would begin as the last one did
    torn = torn or (CLAUSAL.match(block.text) and "," not in block.text and not CLAUSAL.match(text.lstrip()))
    torn = torn or usual > 0 or len(above) > max(45, 0.7 * width) or text.lstrip().startswith(("and ", "or "))
    if OPEN.search(above) or _RE.unclosed.search(block.text) or text[:1] == "=" or (lower and torn):
        return True
    return 0 < usual <= len(above) + len(text.split()[0]) and not (is_title(block.text) or above[-1:] == ":")


def _without_code(lines: Sequence[Line]) -> Iterator[Line]:
    last = {text.lstrip()[:3]: at for at, (_, text) in enumerate(lines)}
    within, fence, front = -1, "", bool(lines) and lines[0][1].strip() == "---"
    for at, (number, text) in enumerate(lines):
        mark = _RE.fence.match(text)
        if within >= 0 and (not text.strip() or _indent(text) > within):
            continue
        directive = _RE.directive.match(text)
        literal = not fence and _RE.literal.fullmatch(text) and not lines[(at + 1) % len(lines)][1].strip()
        within = _indent(text) if directive or literal else -1
        if directive or literal:
            yield from [(number, text.rstrip()[:-1]), (number, _CODE)] * bool(literal)
            continue
        if front:
            front = not at or text.strip() not in ("---", "...")
        elif fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark and mark[1][0] == "~" and len(mark[1]) >= len(lines[at - 1][1].strip()) > 0:
            yield number, text  # the line below a title
        elif mark:  # what never ends is no code
            fence = mark[1] if at < last[mark[1][:3]] else ""
            yield number, _CODE
        else:
            yield number, text


def _sectioned(lines: list[Line]) -> list[Line]:
    """Mark titles in the middle or left of their text, and what counts sections, "5 Lost items", but orders."""
    found = list[tuple[int, re.Match[str]]]()
    shown = [at for at, (_, text) in enumerate(lines) if text.strip()]
    width = max((len(text) for _, text in lines if len(text) < 90), default=0)
    offs = {at: _indent(lines[at][1]) + len(lines[at][1].rstrip()) - width for at in shown}
    middle = {at for at in shown if abs(offs[at]) < 9 and _RE.middle.fullmatch(lines[at][1])}
    above = -2
    for at, after in itertools.pairwise([*shown, -1]):
        text, below = lines[at][1], lines[after][1]
        title = _RE.counted.fullmatch(text) if after > at + 1 or not OPEN.search(text) else None
        if title and not (is_clause(title[3]) and title[3].count(" ") > 2):
            deeper = below.lstrip().startswith(f"{title[1]}.")
            found += [] if _RE.goes_on.match(below) and not deeper else [(at, title)]
        elif at in middle and {above, after} <= middle | ({above, after} - {at - 1, at + 1}):
            lines[at] = lines[at][0], f"{'#' * (1 + (above in middle))} {text.strip()}"
        elif above < at - 1 and _RE.left.fullmatch(text) and _indent(below) > _indent(text) + 1:
            loud, sub, words = text.isupper() and not below.isupper(), text[0] == " ", text.lower().split()
            says = len(words) > 1 and VERBS.get(words[0]) and is_clause(text.strip())
            titles = loud or (_RE.below.match(below) and (sub or after > at + 1))
            if titles and not says and MODALS.isdisjoint(words):
                lines[at] = lines[at][0], f"{'#' * (3 if loud else 5 + sub)} {text.strip()}"
        above = at
    orders = sum(is_clause(title[3]) for _, title in found)
    for at, title in found if len(found) > max(1, 2 * orders) else ():
        marks = "#" * (4 + title[1].count("."))
        lines[at] = lines[at][0], f"{marks} {title[3] if title[2] else title[0].strip()}"
    return lines


def _dotted(lines: list[Line]) -> list[Line]:
    """Put dots behind numbers, as "3" or "R03", or letters that count sentences; put a mark alone before its text."""
    for least, pattern in ((2, r"\s*[A-Z]{0,3}-?(\d{1,2}) +[A-Z]"), (3, r"\s*([A-Z]) +[A-Z]")):
        counted: list[int] = []
        for at, (_, text) in enumerate(lines):
            mark = re.match(pattern, text)
            count = f"{len(counted) + 1}", chr(ord("A") + len(counted) % 26)
            if mark and mark[1].lstrip("0") in count and has_verb(text[mark.end() - 1 :]):
                counted.append(at)
        for at in counted if len(counted) >= least else ():
            number, text = lines[at]
            lines[at] = number, re.sub(r"(?:[A-Z]{1,3}-?)?(\d+)|([A-Z])", r"\1\2.", text, count=1)
    for at, ((_, above), (number, text)) in enumerate(itertools.pairwise(lines)):
        if text.strip() and not _starts(text) and _RE.alone.fullmatch(above):
            lines[at : at + 2] = (number, ""), (number, f"{above} {text.strip()}")
    return lines


def _aligned(lines: Sequence[Line]) -> list[Line]:
    """Put bars around the cells of lines that blanks set in columns; those of two columns are items of a list."""
    ruled = any(_RE.columns.match(text) for _, text in lines)
    gap = re.compile(r"\s{2,}" if ruled else r"\s{3,}|\s\s(?=[\d€$£])")
    lines = [(number, text) for number, text in lines if not _RE.columns.match(text)]
    cells = [[] if "__" in text or _starts(text) else gap.split(text.strip()) for _, text in lines]
    begins: list[int] = []  # the columns of the last whole row
    for (_, text), row in zip(lines, cells, strict=True):
        if not 1 < len(row) < len(begins) > 2:
            begins = [text.find(cell) for cell in row]
            continue
        near = [min((abs(x - text.find(cell)), i) for i, x in enumerate(begins))[1] for cell in row]
        if len({*near}) == len(row):  # each cell stands below the one that begins nearest
            row[:] = [row[near.index(i)] if i in near else "" for i in range(len(begins))]
    kept, contents = [], False
    for size, group in itertools.groupby(zip(lines, cells, strict=True), key=lambda pair: len(pair[1])):
        rows = list(group)
        two = size == 2 and all(len(name) < 50 and len(value) < 45 for _, (name, value) in rows)
        first, *numbers = [bool(re.search(r"\d", row[1])) for _, row in rows] if two else [True]
        named = not first and all(numbers)
        for (number, text), row in rows:
            if len(rows) > 1 and (size > 2 or two) and not contents:
                text = f"|{'|'.join(row)}|" if size > 2 or named else f"- {row[0].rstrip(':')}: {row[1]}"
            kept.append((number, text))
        contents = bool(_RE.contents.match(text)) if text else contents
    return kept


def _numbered(text: str, blocks: Sequence[Block], lettered: bool) -> re.Match[str] | None:
    """Return a match as of `BULLET` for "4.1 any claim" or "A. claims", below a lead-in or, if lettered, none."""
    item = re.match(r"(\s*)(\d{1,2}(?:\.\d{1,2}){1,3}|[A-Z]\.)\s+(?=[\w\"“])(.*)", text)
    if item is None:
        return None
    chapter, _, number = item[2].rpartition(".")
    first = number == "1" or item[2] == "A."
    above = f"{chapter}.{int(number) - 1}" if number else f"{chr(ord(chapter) - 1)}."
    begins = first and ((lettered and not number) or (blocks and blocks[-1].text[-1] in ":—–-"))
    list_above = itertools.takewhile(lambda block: block.kind == "item", reversed(blocks))
    return item if begins or any(block.mark == above for block in list_above) else None
