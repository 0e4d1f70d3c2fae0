"""Rules of tables: a row each of a decision table, a cell each of a matrix, or the texts of one column."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ..bank.lexicon import BOUNDS, LISTS, VERBS, WORDS, goes_on, has_verb, opens_with_verb, patterns
from .blocks import Row, is_whole
from .sentences import bare, lowered

TEXT_NAMES, PREMISE_NAMES, ALONE_NAMES, THEN_NAMES, _OUTCOMES, _ANY, _ELSE, _BLANK = (
    LISTS[name]
    for name in "rule_columns if_columns case_columns then_columns outcome_columns any else blank".split()
)
_DIFFERS = LISTS["else_columns"] | LISTS["unless_columns"] | LISTS["note_columns"]
"""Columns of what holds instead, and of notes."""
_UNSAID = LISTS["about"] | LISTS["titles"] | LISTS["history_columns"] | LISTS["unsaid_columns"]
OUTCOME_NAMES = THEN_NAMES | _OUTCOMES
_RE = patterns("tables")
Names = Sequence[str]
Places = Sequence[int]


class TableRule(NamedTuple):
    """A rule of a table; its premise and conclusion are None where they are to be found in the text."""

    line: int
    text: str  # empty where a row has no outcome: then the premise is what it says
    premise: str | None = None
    conclusion: str | None = None


def table_rules(
    rows: Sequence[Row], text: str | None = None, outcomes: Sequence[str] | None = None, title: str = ""
) -> tuple[list[TableRule], str]:
    """Return the rules of a table, whose first row names its columns, and how those were read.

    ``text`` is the column of rules, ``outcomes`` those of outcomes; None: guessed by their names and cells. The title
    above the table says what the values of a matrix are. A ValueError names a column that is not there.
    """
    unnamed = bool(rows) and not any(rows[0][1])  # a header of nothing: names and values
    rows = _one_header([(line, cells) for line, cells in rows if any(cells)])
    if not rows:
        return [], ""
    if not (text or outcomes) and (foreign := _foreign(rows[0][1])):
        others = ", ".join(repr(rows[0][1][i]) for i in sorted(foreign))
        own = [(line, [cell for i, cell in enumerate(cells) if i not in foreign]) for line, cells in rows]
        own[0][1][:] = [re.sub(r"(?i)(?<=\w)[ _-]+\(?en\)?$", "", name) for name in own[0][1]]
        made, read_as = table_rules(own, title=title)
        return made, f"{read_as}; left out, the same in another language: {others}"
    header, body = rows[0][1], rows[1:]
    even = len({len(cells) for _, cells in rows}) == 1
    headless = even and not _is_header(header, [cells for _, cells in body])
    two = even and len(header) == 2 and not (text or outcomes or (headless and is_whole(header[0])))
    if two and (unnamed or headless or _RE.amount.search(header[1] + header[0] * (header[0].count(" ") > 1))):
        made = [TableRule(n, f"{name}: {bare(value)}.", name, value) for n, (name, value) in rows if value]
        return made, "if first column, then second"
    if headless:
        header, body = [f"column {i}" for i in range(1, len(header) + 1)], rows
    body = _ticked([(line, [*cells, *[""] * len(header)][: len(header)]) for line, cells in body])
    header, body = _tests(header, body)
    names = [re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower() for name in header]
    cells_of = [cells for _, cells in body]
    given = {form: at for at, name in enumerate(header) for form in (name, name.lower())}
    for name in [*([text] if text else []), *(outcomes or ())]:
        if name.lower() not in given:
            raise ValueError(f"no column {name!r}; the columns are {header}")
    texts = [i for i, name in enumerate(names) if name and TEXT_NAMES.issuperset(name.split())]
    counts = {i for i in texts if all(_RE.code.fullmatch(cells[i]) for cells in cells_of)}  # "R1"
    duties = sum(bool(_RE.duty.search(cells[i])) for i in texts for cells in cells_of)
    of_case = {i for i in texts if names[i] == "description" and duties <= len(body) / 2}
    texts = [given[text.lower()]] if text else [i for i in texts if i not in counts | of_case]
    counts |= {i for i, name in enumerate(names) if _RE.counter.fullmatch(name.strip(" ."))}
    kept = [i for i in range(len(names)) if i not in counts]
    if not (texts or outcomes or {*names} & {*PREMISE_NAMES, *ALONE_NAMES}):
        if body and kept and all(is_whole(cells[kept[0]]) for cells in cells_of):
            texts = kept[:1]
        elif len(kept) == 1 or (len(kept) == 2 and names[kept[1]] in LISTS["means"]):
            texts = kept[-1:]
    decides = {*PREMISE_NAMES, *OUTCOME_NAMES}.intersection(re.findall(r"\w+", " ".join(names)))
    if texts and decides and not text:
        stated = [is_whole(cells[texts[0]]) or has_verb(cells[texts[0]]) for cells in cells_of]
        texts = texts if sum(stated) > len(stated) / 2 else []  # else an offence, and its fine
    other = {i for i in kept[1:] if names[i] in _DIFFERS or (i == kept[-1] and names[i][:3] == "if ")}
    differ, usual = ([i for i in kept if (i in other) is aside] for aside in (True, False))
    texts = usual if len(usual) == 1 else texts  # "Not covered", "Unless"
    if texts and not outcomes:
        return list(_texts(names, body, texts[0], kept)), f"rules in column {header[texts[0]]!r}"
    numbers = [int(cells[0]) if cells[0].isdecimal() else 0 for cells in cells_of]
    words = any(re.search(r"[^\W\d]|[<>]", cell) for cells in cells_of for cell in cells[1:])
    counted = numbers[:1] == [1] and numbers == sorted({*numbers}) and (words or numbers[-1] == len(numbers))
    corner = re.search(r"[/\\]", header[0]) or not (header[0] or counted)
    last = [given[name.lower()] for name in outcomes or ()] or _outcomes(names, cells_of, usual)
    first = [i for i in usual if i not in last]
    first = [i for i in first if _asks(names[i])] or first
    more = [_others(names, cells, differ) for cells in cells_of]
    amounts = len(usual) > 2 and all(_RE.amounts.match(header[i]) for i in usual[1:])
    if not outcomes and (amounts or (corner and len(header) > 2)):
        return list(_matrix(header, body, title, more, differ)), "a matrix, a rule a cell"
    if_, then = (", ".join(header[i] for i in columns) for columns in (first, last))
    if len(first) == 1 and names[first[0]] in ALONE_NAMES:
        header = ["if" if i == first[0] else name for i, name in enumerate(header)]
    made = list(_decisions(header, body, first, last, more))
    return made, f"if {if_}, then {then}"


def _asks(name: str) -> bool:
    return name in PREMISE_NAMES or name[:3] == "if "


def _tests(header: list[str], body: list[Row]) -> tuple[list[str], list[Row]]:
    """Join the columns of a field, an operator and a value as one of conditions; rows of one rule are one."""
    names = [phrase(name).lower() for name in header]
    at = next((i for i, name in enumerate(names[1:-1], 1) if name in LISTS["operator_columns"]), 0)
    if not at:
        return header, body
    joined = [at - 1, at, at + 1] + [at + 2] * (names[at + 2 : at + 3] == ["unit"])
    ids = [i for i, name in enumerate(names) if name in TEXT_NAMES or re.search(r"^$|\b(?:id|no)$", name)]
    own = [i for i in range(len(names)) if i not in (*joined, *ids)] or ids
    made: list[Row] = []
    for rest, run in groupby(body, lambda row: [row[1][i] for i in (*ids, *own)]):
        said = [(line, tested(*(cells[i] for i in joined))) for line, cells in run]
        whole = [(said[0][0], " and ".join(text for _, text in said))] if any(rest[: len(ids)]) else said
        made += [(line, [text, *rest[len(ids) :]]) for line, text in whole]
    return ["if" if own else "rule", *(header[i] for i in own)], made


def tested(field: str, sign: str, value: str, unit: str = "") -> str:
    """Return a condition as words: "total is at least 5"."""
    said = WORDS["operators"].get(sign.lower(), phrase(sign))
    return f"{phrase(field)} {said} {bare(value)} {unit}".rstrip()


def _foreign(names: Sequence[str]) -> set[int]:
    """Return the columns that say what an English one says: "fee_de" beside "fee_en"."""
    ends = [re.fullmatch(r"(.*[^\W_])[ _-]+\(?([a-z]{2})\)?", name.lower()) for name in names]
    named = {i: end.groups() for i, end in enumerate(ends) if end and end[2] in LISTS["languages"]}
    return {i for i, (name, code) in named.items() if code != "en" and (name, "en") in named.values()}


def _outcomes(names: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int]) -> Sequence[int]:
    """Guess the columns of outcomes: those called "then", else those behind what tells the rows apart, or named so."""
    then = [i for i in kept if names[i] in THEN_NAMES]
    if asked := [i for i in kept if names[i] == "if" or (i < kept[-1] and _asks(names[i]))]:
        return then or [i for i in kept if i not in asked]
    words = {i: {*re.findall(r"\w+", re.sub(r"\([^()]*\)", "", names[i]))} for i in kept}  # no units
    said = set().union(*words.values())
    ends = {end for pair in WORDS["ends"].items() if said.issuperset(pair) for end in pair}
    bounded = {
        i
        for i in kept
        if (words[i] & ends and not re.search(r"\d", names[i]))
        or _RE.bounds.search(names[i])
        or any(row[i].lower() in _ELSE or row[i][:1] in tuple("<>≤≥") for row in rows)
        or 2 * sum(bool(bound(row[i])) and ":" not in row[i] for row in rows) > len(rows)
    }
    decides = [i for i in kept if names[i] in LISTS["verdict_columns"]]
    decides = [i for i in decides if names[i] != "action"] or decides
    if decides and any(i > decides[0] for i in bounded):
        return decides  # "Action", then from where and to where
    bounded -= {*kept[-2:]} if bounded.issuperset(kept[-2:]) else {*kept[-1:]}  # "From", "To": hours
    start = max([1, *(kept.index(i) + 1 for i in bounded)])
    most = min(len(kept), 20) - 1  # all columns, of thousands, would take the square
    while start < most and len({tuple(row[i] for i in kept[:start]) for row in rows}) < len(rows):
        start += 1
    marked = [i for i in kept if {"yes"} <= {row[i].lower() for row in rows} <= {"yes", "no", ""}]
    named = [n for n, i in enumerate(kept) if n and i not in bounded and words[i] & OUTCOME_NAMES]
    if marked[1:] and marked == [*kept[-len(marked) :]] and max(named, default=0) < start:
        start = max(start, len(kept) - len(marked))  # "Area", "Action": "Admin", "Guest"
    elif named:
        filled = [row for row in rows if any(row[i] for i in kept[start + 1 :])]  # others: "not lent"
        amounts = start < named[0] and all(re.search(r"\d", row[kept[start]]) for row in filled)
        open_ = any(not row[i] or row[i].lower() in _ANY for row in rows for i in kept[:start])
        start = start if (amounts and not decides) or (bounded and open_ and start < named[0]) else named[0]
    return [i for i in kept[start:] if i not in bounded]


def _ticked(body: Sequence[Row]) -> list[Row]:
    """Write "yes" for marks, "no" for crosses, and "no" for the blanks of a column of nothing but marks."""
    says = WORDS["marks"] | {"true": "yes", "false": "no"}
    columns = zip(*([cell.lower() for cell in cells] for _, cells in body), strict=True)
    said = [{says.get(cell, cell) for cell in column} for column in columns]
    blank = ["no" if "yes" in cells and cells <= {"yes", ""} else "" for cells in said]
    return [
        (line, [says.get(cell.lower(), cell) or no for cell, no in zip(cells, blank, strict=True)])
        for line, cells in body
    ]


def _is_header(header: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: its cells are short words, unlike those of some column below."""
    if len(header) == 1:
        return header[0].lower() in TEXT_NAMES or is_whole(header[0]) < all(is_whole(row[0]) for row in body)
    if any(cell.endswith(".") and cell.count(" ") > 1 for cell in header):
        return False
    if any(re.fullmatch(r"[\d.,%€$£ ]+", cell) for cell in header[1:]):
        return not header[0] or bool(re.search(r"[/\\]", header[0]))
    return all(len(cell) < 50 for cell in header)


def _texts(names: Names, body: list[Row], column: int, kept: Places) -> Iterator[TableRule]:
    premise, conclusion = (
        next((i for i, n in enumerate(names) if n in known and i != column), None)
        for known in (PREMISE_NAMES, THEN_NAMES)
    )
    parts = (column, premise, None if premise is None else conclusion)
    beside = [i for i in kept if i not in parts and names[i] not in _UNSAID]
    ruled = TEXT_NAMES.issuperset(names[column].split())
    for line, cells in body:
        text = cells[column]
        if not text:
            yield TableRule(line, "", " | ".join(filter(None, cells)))
            continue
        label = "" if ruled or is_whole(text) else names[column].capitalize()
        if beside and beside[0] < column and (goes_on(text) or not has_verb(text)):
            label = cells[beside[0]]  # a term, and what it means
        text = f"{label}: {text}" if label else text
        asked = text.endswith("?")
        told = [i for i in beside if cells[i].lower() not in text.lower()]
        others = _others(names, cells, told, asked)[asked:]  # an answer follows its question at once
        said = f"{text.removesuffix('.')}{others}." if others else text
        before, after = (None if i is None else cells[i] or None for i in (premise, conclusion))
        yield TableRule(line, said, before, after and after.removesuffix(".") + others)


def _one_header(rows: list[Row]) -> list[Row]:
    """Join the names of columns that stand in two rows: "Day" above "Car" and "Bus", "Price" above "Zone 1"."""
    if len(rows) < 3 or "if" in rows[0][1]:
        return rows
    (line, upper), (_, lower) = rows[:2]
    spread = [*upper]
    if any(lower) and LISTS["types"].issuperset(cell.lower() for cell in lower if cell):
        return _one_header([rows[0], *rows[2:]])
    if any(lower) and len(lower) > 2 and LISTS["units"].issuperset(cell.lower() for cell in lower if cell):
        names = [f"{a} ({b})" if at and b else a for at, (a, b) in enumerate(zip(upper, lower, strict=False))]
        return [(line, names), *rows[2:]]
    for at in range(1, len(spread)):
        gap = at < len(lower) and lower[at] and not (lower[0] and upper[0])
        spread[at] = spread[at] or (spread[at - 1] if gap else "")
    values = lower[0] not in ("", upper[0]) and any(re.match(r"\W*\d", cell) for cell in lower)
    if values or len(spread) - spread.count("") == len({*spread} - {""}) or len(lower) != len(spread):
        return rows
    names = [a if a.endswith(b) else f"{a} {b}".strip() for a, b in zip(spread, lower, strict=True)]
    return _one_header([(line, names), *rows[2:]])


def _matrix(header: Names, body: list[Row], title: str, more: Names, aside: Places) -> Iterator[TableRule]:
    row_name, _, column_name = re.sub(r"[/\\]", "\0", header[0]).partition("\0")
    for (line, cells), added in zip(body, more, strict=True):
        for at, (name, cell) in enumerate(zip(header, cells, strict=True)):
            if at and at not in aside and cell and cell not in _BLANK:
                pairs = (row_name, cells[0]), (column_name, name)
                where = " and ".join(f"{kind.strip()} {value}".strip() for kind, value in pairs)
                value = f"{title}{'' if title.endswith('?') else ':'} {cell}" if title else cell
                said = f"For {where}{',' if title else ':'} {value}{added}."
                yield TableRule(line, said, f"For {where}", f"{value}{added}")


def _decisions(names: Names, body: list[Row], ifs: Places, last: Places, more: Names) -> Iterator[TableRule]:
    for (line, cells), added in zip(body, more, strict=True):
        conditions = [
            lowered(cells[i].removesuffix("."))
            if names[i].lower() in PREMISE_NAMES
            else f"{phrase(names[i])[3:]} {bound(cells[i]) or cells[i]}"
            if names[i][:3].lower() == "if "  # "If you have no": "eggs"
            else f"{phrase(names[i])} is {bound(cells[i]) or bare(cells[i])}"
            for i in ifs
            if cells[i] and cells[i].lower() not in _ANY
        ]
        effects = [_effect(names[i], cells[i]) for i in last if cells[i] and cells[i] not in _BLANK]
        if not effects:  # a row of dashes says that there is none
            effects = [_effect(names[i], cells[i].strip("-–—*") or "none") for i in last if cells[i]]
        other = "In all other cases" if line == body[-1][0] and len(body) > 1 else "In any case"
        premise = f"If {' and '.join(conditions)}" if conditions else other
        conclusion = " and ".join(effects) + added
        yield TableRule(line, f"{premise}, {conclusion}." if effects else "", premise, conclusion)


def _others(names: Sequence[str], cells: Sequence[str], columns: Iterable[int], asked: bool = False) -> str:
    """Return what a row says in other columns, such as "Else", "Exception" and "Penalty"; of notes, some words."""
    said = [(names[i], cells[i].removesuffix(".")) for i in columns if cells[i] and cells[i] not in _BLANK]
    said = [(name, cell) for name, cell in said if name not in LISTS["note_columns"] or " " in cell]
    bare = [name in LISTS["said"] and (asked or has_verb(cell)) for name, cell in said]
    labels = ["" if own else f"{name.capitalize()}: " for own, (name, _) in zip(bare, said, strict=True)]
    return "".join(f". {label}{cell}" for label, (_, cell) in zip(labels, said, strict=True))


def _effect(name: str, cell: str) -> str:
    said, whole, cell = phrase(name), is_whole(cell), bare(cell)
    if name.lower() in (*THEN_NAMES, "rule"):
        return cell
    order = " " in cell and VERBS.get(cell.split()[0].lower())
    if (whole and has_verb(cell)) or (order and (whole or said in LISTS["orders"])):
        return lowered(cell)  # "action": "call Ann"
    if opens_with_verb(cell) or (";" in cell and has_verb(cell)):
        return f"{said}: {lowered(cell)}"  # "conditions": "must travel with an adult"
    return f"{said} {cell}" if _RE.joins.search(said) else f"{said} is {cell}"


def why_no_rule(names: Sequence[str], cells: Sequence[str]) -> str:
    """Return why a row is no rule of its own, or nothing: it adds up those above it, or is switched off."""
    name, *others = [*filter(None, cells), ""]
    if _RE.sum.fullmatch(name) and any(re.search(r"\d", cell) for cell in others):
        return "a sum"
    enabled = [cell.lower() for at, cell in enumerate(cells) if names[at : at + 1] == ["enabled"]]
    return "switched off" if {*enabled} & {"no", "false"} else ""


def led_in(lead: str, rules: Sequence[TableRule], rows: Sequence[Row]) -> Iterator[TableRule]:
    """Put what leads in to a table, and says when or what holds, before each of its rules."""
    effect, case = _RE.cases.fullmatch(lead), _RE.limits.match(lead)
    premises = [re.sub("^If ", "", f"{rule.premise} and {rule.conclusion}") for rule in rules]
    pairs = all(len(cells) == 2 for _, cells in rows)  # "Age", "< 18", but not "zone A", "alarm red"
    if pairs and (_RE.names.fullmatch(rows[0][1][0]) or all(re.search(r"\d", row[1][1]) for row in rows[1:])):
        premises = [f"{phrase(name)} is {bound(cell) or cell}" for _, (name, cell) in rows[-len(rules) :]]
    if effect and effect["all"]:
        premises = [" and ".join(premises)]
    for rule, premise in zip(rules, premises, strict=False):
        if effect:
            conclusion = lowered(effect["then"])
            yield TableRule(rule.line, f"If {premise}, {conclusion}.", f"If {premise}", conclusion)
        elif case and rule.text:
            mark = ":" if has_verb(lead) else ","
            said = None if rule.premise is None else f"{lead}{mark} {lowered(rule.premise)}"
            yield rule._replace(text=f"{lead}{mark} {lowered(rule.text)}", premise=said)
        else:
            yield rule


def bound(cell: str) -> str:
    """Return the words of a cell that is a bound, such as ">= 3", "0..5" or "]2..9]", or a text as DMN writes it."""
    for pattern, said in BOUNDS:
        if match := re.fullmatch(pattern, cell):
            return match.expand(said).rstrip()
    if cell[:1] not in tuple("<>≤≥"):
        return ""
    cell = re.sub(r"^(>\s*[\d.,]+)\s*(?:–|-|to\b|bis\b)\s*(?=\d)", r"\1 and <=", cell)  # ">5-20"
    return " ".join(re.sub(r"[<>]=?|[≤≥]", lambda sign: f" {WORDS['signs'][sign[0]]} ", cell).split())


def phrase(name: str) -> str:
    """Return a column's name as words: "order_total" is "order total"."""
    words = re.sub("_" if " " in name else r"(?<=[a-z])(?=[A-Z][a-z])|_", " ", name).strip(" ?:")
    return words if words[1:2].isupper() else words[:1].lower() + words[1:]
