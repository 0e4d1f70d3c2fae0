"""A document's blocks as rules: sentences with what they need to be whole, below the headings above them."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise, takewhile
from typing import Any

from ..bank.clauses import split_rule
from ..bank.lexicon import ARTICLES, LISTS, RESTRICTS, VERBS, has_verb, is_told, opens_with_verb, patterns
from ..bank.openings import CLAUSAL, leading
from .blocks import OPEN, SECTION, Block, count_of, is_clause, is_title, is_whole
from .parts import FOREIGN
from .rules import BookReading, DocumentRule
from .sentences import RUNS_ON, TITLE, joined, lowered, no_rule, sentences, whole_item
from .tables import led_in, table_rules, why_no_rule

LONGEST_ANSWER = 800
"""Characters below a heading that asks: a longer answer is no rule but a chapter."""
EXAMPLE, ELSEWHERE = "an example", "where else to look"
_RE, _SAID = patterns("document"), patterns("sentences")


@dataclass
class Document:
    """One document: its rules so far, and the headings above the next."""

    source: str
    reading: BookReading
    columns: dict[str, Any]
    part: str = ""
    rules: list[DocumentRule] = field(default_factory=list)
    prose: list[DocumentRule] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)

    def read(self, blocks: list[Block]) -> list[DocumentRule]:
        """Return the rules of a document, whose blocks may be changed."""
        at, notice, listed = 0, 0, ""
        named = [(a, b) for a, b in pairwise(blocks) if a.kind == "heading" and SECTION.match(a.text)]
        titled = any(below.kind != "heading" for _, below in named)
        while at < len(blocks):
            block, end = blocks[at], at + 1
            after = blocks[end] if end < len(blocks) else Block("heading", "", [(0, 0)])
            self.part = f":{block.part}" if block.part else ""
            self._put_aside(block, blocks[end:])
            bare = block.kind == after.kind == "heading" and after.depth <= block.depth
            said = _RE.notice.match(block.text) or (block.text.endswith(".") and has_verb(block.text))
            told = block.kind == "heading" and said and (bare or notice == block.depth)
            if name := SECTION.match(block.text):  # "Schedule A: Monday, Tuesday"
                says = not titled or notice > 0 or bool({",", ":"} & {*block.text[name.end() :]})
                told = told or (bare and says) or block.text.split()[0] == listed
                listed = block.text.split()[0] if told else ""
            if block.kind == after.kind == "heading" and block.depth > 2 and not (at or told or name):
                block.depth = 1  # the title of the document
            notice = block.depth if told else 0  # the last of several has text below it
            excepts = after.kind == "item" and not has_verb(after.text) and _RE.exceptions.match(block.text)
            leads = after.kind == "item" and (block.text[-1:] == ":" or ": " not in block.text)
            imprint = block.kind in ("heading", "text") and not leads and _SAID.imprint.match(block.text)
            lists = after.kind == "item" and not (imprint or is_whole(block.text))
            titles = block.kind == after.kind == "text" and is_title(block.text) and not said
            if told or excepts or imprint:
                block.kind = "text"
            elif after.mark == ":":  # a term, and what it means
                block.kind, block.depth = "heading", 20
            elif block.kind in ("text", "item") and (_is_heading(block, after) or (titles and not at)):
                of_table = after.kind == "table" and block.text.endswith(":")  # alone
                run_in = block.text.endswith(".")  # its list or table ends with the next text
                block.kind, block.depth = "heading", 19 if run_in else 8 + block.depth + of_table
                block.text = block.text.rstrip(":.")
            torn = OPEN.search(block.text) and _RE.goes_on.match(after.text) and not imprint
            order = VERBS.get(after.text.split(" ")[0].lower())
            runs = RUNS_ON.search(block.text[:-1]) or _SAID.following.search(block.text)
            beside = after.line_at(0) == block.starts[-1][1] + 1 or block.text.endswith(" of:")
            if beside and block.text.endswith(":") and has_verb(block.text):  # "You are ill:", "Go home."
                torn = is_whole(after.text) and not (_SAID.following.search(block.text) or (runs and order))
            proviso = _SAID.proviso.match(f"{block.text[-1:]} {after.text}")
            if (torn and block.kind == after.kind == "text") or (proviso and after.kind in ("text", "item")):
                block.go_on(after.text, after.line_at(0))
                blocks[end], at = block, end
                continue
            if block.text.endswith("?") and (block.kind in ("heading", "text") or after.kind == "text"):
                end = self._answer(block, blocks[end:]) + end
            depth = block.depth if block.kind == "heading" else 20 + (block.mark == ":")
            depth -= block.kind == "text"
            self.headings = [heading for heading in self.headings if heading[0] < depth]
            if block.kind == "heading":
                self.headings += [(block.depth, block.text)] if block.text else []
            elif block.kind == "table":
                self._table(block)
            elif block.kind == "rule":
                self._add(block.text, block.line_at(0))
            elif block.kind == "lost":
                self._leave(block.line_at(0), block.text, block.mark)
            elif (premise := _RE.if_line.match(block.text)) and (then := _RE.then_line.match(after.text)):
                text = f"If {premise[1]}, {then[1].rstrip('.')}."
                self._add(text, block.line_at(0), f"If {premise[1]}", then[1])
                end += 1
            elif end == at + 1:
                for line in blocks[end:] if block.text.endswith(":") else ():  # "Opening hours:"
                    verb = is_clause if len(line.text.split()) < 5 else has_verb  # "Treasurer's report"
                    says = verb(line.text) and not (_RE.label.match(line.text) or line.text[:1].isdigit())
                    says = says and not (runs and VERBS.get(line.text.split(" ")[0].lower()))
                    whole = line.text[-1:] == ":" or is_whole(line.text) or _SAID.imprint.match(line.text)
                    if whole or says or line.kind != "text":
                        break
                    line.kind, line.depth, lists = "item", block.depth + (block.kind == "item"), True
                if block.kind == "item" or lists:
                    end += sum(1 for _ in takewhile(partial(_is_below, block, after), blocks[end:]))
                items = blocks[at + 1 : end]
                after = blocks[end] if items and end < len(blocks) else Block("heading", "", [])
                # "if:", its items, "the fee is waived"; "unless it is late"
                ended = bool(items) and is_whole(items[-1].text) and not CLAUSAL.match(block.text)
                torn = _RE.goes_on.match(after.text) and not ended
                tails = after.kind == "text" and (torn or CLAUSAL.fullmatch(block.text.rstrip(" :—–")))
                end += bool(tails)
                self._sentences(block, items, after if tails else None)
            at = end
        self._tell_apart()
        return self._kept(any(_RE.minutes.match(b.text) for b in blocks[:2] if b.kind != "item"))

    def _put_aside(self, block: Block, blocks: Sequence[Block]) -> None:
        """Leave out a section of what changed, or examples with what leads in to them."""
        heading, first = block.kind == "heading", blocks[0] if blocks else Block("heading", "", [(0, 0)])
        dated = _RE.changes.fullmatch(block.text) and _RE.dated.match(first.text)
        if heading and (dated or _RE.history.match(block.text)):
            reason = "what changed from version to version"
        elif heading and _RE.references.fullmatch(block.text):
            reason = ELSEWHERE
        elif self.rules and _RE.examples.fullmatch(block.text) and (heading or block.text.endswith(":")):
            reason = EXAMPLE
        else:
            return
        if heading:
            below = list(takewhile(lambda b: b.kind != "heading" or b.depth > block.depth, blocks))
        else:
            most = None if first.kind == "item" else 1  # a list, or a paragraph
            below = list(takewhile(lambda b: b.kind == first.kind in ("item", "text"), blocks[:most]))
        says = [b.text for b in below if has_verb(b.text)]
        rules = any(is_whole(text) or OPEN.search(text) for text in says)  # "Fire safety policy" is none
        if {EXAMPLE: not says, ELSEWHERE: rules}.get(reason):
            return
        for left in (block, *below):
            left.text = left.text or " | ".join(cell for _, cells in left.rows[:1] for cell in cells)
            left.kind, left.mark = "lost", reason

    def _tell_apart(self) -> None:
        """Put its title before what reads otherwise below others: "Action: call Ann.", a row, a sentence."""
        alike: defaultdict[str, list[DocumentRule]] = defaultdict(list)
        for rule in self.rules:
            alike[re.sub(r"\d\S* \w+|\d+", "#", rule.premise)].append(rule)
        for rules in alike.values():
            shared = set.intersection(*({*rule.context} for rule in rules))
            several = len({rule.text for rule in rules}) > 1
            for rule in rules:
                title = next((title for title in reversed(rule.context) if title not in shared), "")
                label = rule.text.startswith(f"{rule.premise}: ")
                if title and (label or several) and not rule.text.startswith(title):
                    before, rule.text = rule.text, f"{title}: {rule.text}"
                    if rule.sure and before.startswith(rule.premise):
                        rule.premise = f"{title}: {rule.premise}"
                    else:
                        rule.premise, rule.conclusion, rule.sure = split_rule(rule.text)

    def _kept(self, minutes: bool) -> list[DocumentRule]:
        """Return the rules without stories, in most of a text or all of a section."""
        stories: set[int] = set()
        # what a list is led in by, "what we agreed:", is no story of its items
        said = {id(rule): is_told(rule.text.rpartition(": ")[2]) for rule in self.prose}
        story = minutes or sum(said[id(r)] or -has_verb(r.text) for r in self.prose) > 0
        for _, section in groupby(self.prose, lambda rule: rule.context):
            part = [(rule, said[id(rule)]) for rule in section]
            history = len(part) > 1 and all(told for _, told in part)
            for rule, told in part:
                half = told or not has_verb(rule.text) or not is_whole(rule.text)
                if (history or (story and half)) and not _RE.decided.match(rule.text):
                    stories.add(id(rule))
                    self._leave(rule.line, rule.text, "tells what happened")
        foreign = [rule for rule in self.prose if FOREIGN.match(rule.text)]
        if 0.3 * len(self.prose) < len(foreign) < 0.6 * len(self.prose):  # each comes in English, too
            stories.update(map(id, foreign))
            for rule in foreign:
                self._leave(rule.line, rule.text, "the same in another language")
        return [rule for rule in self.rules if id(rule) not in stories]

    def _leave(self, line: int, text: str, reason: str) -> None:
        self.reading.left_out.append((f"{self.source}{self.part}:{line}", text[:300], reason))

    def _add(self, text: str, line: int, premise: str | None = None, conclusion: str | None = None) -> None:
        context, text = tuple(title for _, title in self.headings), text.rstrip(" ;,")
        rule = DocumentRule(text, premise or "", conclusion or "", self.source + self.part, line, context)
        if premise is None or conclusion is None:
            rule.premise, rule.conclusion, rule.sure = split_rule(text)
        self.rules.append(rule)

    def _answer(self, question: Block, blocks: Sequence[Block]) -> int:
        """Add a question with its answer; return their number: all below a title, else one and its list."""
        said = takewhile(lambda block: block.kind in ("text", "item") and block.mark != "dt", blocks)
        taken = list(takewhile(lambda b: not ("? " in f"{b.text} " or _SAID.imprint.match(b.text)), said))
        texts: list[str] = []
        at = 0
        while at < len(taken) and (not at or question.kind == "heading"):
            text = re.sub(r"^A(?:nswer)?\s?\d*[.:]\s+", "", taken[at].text)
            if text[:2] == "- ":
                taken[at].kind, text = "item", text[2:]
            below = list(takewhile(lambda b: b.kind == "item", taken[at + 1 :]))
            if taken[at].kind == "text":
                texts += [part for part, _ in joined(text, 0, below)] if below else [text]
            else:
                texts += [text, *(block.text for block in below)]
            at += 1 + len(below)
        bare = [text.rstrip(" ;,") for text in texts]
        whole = sum(map(is_whole, bare)) > (len(bare) > 1)  # the last of a list has a stop, too
        answer = " ".join(t if is_whole(t) else f"{t}." for t in bare) if whole else ", ".join(bare)
        answer = answer if is_whole(answer) else f"{answer}."
        if not at or len(answer) > LONGEST_ANSWER:
            return 0
        if question.kind == "heading":
            self.headings = [heading for heading in self.headings if heading[0] < question.depth]
        asked = re.sub(r"^Q(?:uestion)?\s?\d*[.:]\s+", "", question.text)
        self._add(f"{asked} {answer}", question.line_at(0))
        self.prose.append(self.rules[-1])
        question.kind = "text"
        return at

    def _table(self, block: Block) -> None:
        above = self.headings
        self.headings = [*above, (9, block.text)] if block.text else above
        title = next((text for _, text in self.headings[::-1] if not _SAID.imprint.match(text)), "")
        (line, names), *_ = block.rows
        if len(LISTS["history_columns"].intersection(map(str.lower, names))) > 2:
            self._leave(line, " | ".join(names), "the history of the document")
            return
        rows = block.rows[:1]
        for at, cells in block.rows[1:]:
            if reason := why_no_rule([name.lower() for name in names], cells):
                self._leave(at, " | ".join(cells), reason)
            else:
                rows.append((at, cells))
        made, read_as = table_rules(rows, title=title, **self.columns)
        if above[-1:] and above[-1][0] == 9:
            made = list(led_in(title, made, rows))
        if made:
            self.reading.tables.append((f"{self.source}{self.part}:{line}", read_as))
        for rule in made:
            if rule.text and _SAID.imprint.match(rule.text):
                self._leave(rule.line, rule.text, "about the document")
            elif rule.text:
                self._add(rule.text, rule.line, rule.premise, rule.conclusion)
            else:
                self._leave(rule.line, str(rule.premise), "a row that says nothing of what follows")
        self.headings = [heading for heading in above if heading[0] != 9]

    def _sentences(self, block: Block, items: Sequence[Block], after: Block | None = None) -> None:
        """Add the rules of a text, joined with the items below it, and with what follows from all of them."""
        tail, *more = _SAID.next.split(after.text, 1) if after else [""]
        pieces: list[tuple[str, Block | int]] = [(block.text, block)]
        pieces = [*joined(block.text, block.line_at(0), items, tail)] if items else pieces
        if tail:
            joins = tail.split()[0] in RESTRICTS or opens_with_verb(tail)  # else a clause
            ends = f"{'' if joins else ','} {lowered(tail)}"
            pieces = [(text.rstrip(" .,;") + ends, where) for text, where in pieces]
        pieces += [(text, after.line_at(len(tail) + 1)) for text in more if after]
        if items and (_RE.exceptions.match(block.text) or _RE.examples.fullmatch(block.text)):
            label = block.text.rstrip(" :")
            bare = [bare for text, _ in pieces if (bare := text.removeprefix(label).strip(" :."))]
            whole = all(map(has_verb, bare))
            pieces = [(f"{label}: {('. ' if whole else ', ').join(bare)}.", block)]
        for text, where in pieces:
            parts, above, label = sentences(text), self.headings, ""
            if isinstance(where, Block) and where.title and f"{where.title[:-1]}: " not in text:
                label = f"{where.title[:-1]}: "
                self._leave(where.line_at(0), where.title, TITLE)
            begins = isinstance(where, Block) and (where.kind == "item" or _RE.begins.match(text))
            led = items and block.kind == "text" and text.startswith(block.text.rstrip(" :—–"))
            if above and begins and not led and len(parts) == 1 and not _SAID.imprint.match(parts[0][1]):
                parts = [(0, whole_item(re.sub(r"^[\d.]+ ", "", above[-1][1]), parts[0][1]))]
            held = _RE.condition.match(parts[0][1])  # "If in eyes: rinse. Call a doctor."
            named = held or _RE.label.match(parts[0][1])  # "Red: chest pain. See at once."
            several = named and _RE.label.match(parts[0][1][named.end() :])  # "Points: Win: 3. Draw: 1."
            orders = [VERBS.get(part.split(" ")[0].lower()) for _, part in parts]  # "Wear gloves. Wash ..."
            item = isinstance(where, Block) and where.kind == "item"
            for n, (at, part) in enumerate(parts):
                says = has_verb(part) and not part.startswith(("Not ", "Only "))
                own = part[:1] in ("(", "[") or (_RE.label.match(part) and not several)
                if n and named and not own and (held or item or orders[n] or not says):
                    parts[n] = at, f"{named[0]}{part}"
            term = above[-1][1] if above and isinstance(where, Block) and where.mark == ":" else ""
            parts = [(at, part if part.startswith(term) else f"{term}: {part}") for at, part in parts]
            example = False  # from its label to the end of the text
            excepts = _RE.except_label.match(parts[0][1])
            for number, (offset, sentence) in enumerate(parts):
                line = where if isinstance(where, int) else where.line_at(offset)
                sentence = sentence if has_verb(sentence) or sentence[:1] in "[(" else label + sentence
                said = _RE.example.match(sentence)
                bracket = sentence[:1] == "(" and not _SAID.imprint.match(sentence)
                joins = not number or said or excepts or (bracket and has_verb(sentence.strip("().")))
                last = self.rules[-1] if self.rules and joins else None
                context = tuple(title for _, title in self.headings)
                refers = (excepts or _SAID.refers_back.match(sentence)) and not sentence.endswith(":")
                told = said and (not last or said[0] == sentence or has_verb(sentence.strip("()")))
                example = example or bool(told and said["label"])
                if told or example:
                    self._leave(line, sentence, EXAMPLE)
                elif (said or bracket or refers) and last and last.context == context:
                    last.go_on(sentence)
                elif reason := no_rule(sentence, not (number or all(orders[:2])), len(parts) == 1):
                    self._leave(line, sentence, reason)
                    label = f"{sentence.rstrip('.–—-')}: " if reason == TITLE else label
                else:
                    self._add(sentence, line)
                    self.prose.append(self.rules[-1])


def _is_heading(block: Block, after: Block) -> bool:
    """Whether a text is the title of the table, list or sentence below it, though it is not written as one."""
    text = block.text
    numbered = block.mark[-1:] in (".", ")") and not text[:1].islower()
    if block.kind == "item" and (not (numbered and after.text[:1].isupper()) or _SAID.purpose.match(text)):
        return False
    run_in = _SAID.paragraph_title.fullmatch(text) and (" " not in text or not has_verb(text))
    if run_in and block.kind == "text" and after.kind in ("item", "table"):
        return True  # "Rent."
    if after.kind == "table":
        words = text.split()  # "Seasons and limits", "Leave policy 2026"
        verb = has_verb(text if len(words) > 4 else " ".join(words[1:-1]))
        return block.kind == "text" and (text.endswith(":") or not (verb or is_whole(text)))
    asks = _SAID.asked.match(text) and len(text.split()) < 8 and after.kind in ("text", "item")
    asks = asks and text[-1].isalpha() and not split_rule(text).sure
    if asks or (SECTION.match(text) and is_title(text)):
        return True
    ends = text.endswith((":", "-", "—", ",")) or is_whole(text.removesuffix("etc.")) or RUNS_ON.search(text)
    words = text.lower().split()
    short = len(words) < 5 and ARTICLES.isdisjoint(words[1:2])  # no "Lock the door"
    verb = is_clause(text) if block.kind == "item" or short else has_verb(text)
    if ends or verb or leading(text):
        return False
    lists = block.kind == "text" and after.kind == "item"
    runs_on = after.text[:1].islower() and opens_with_verb(after.text)
    if lists and not is_title(text) and (runs_on or _RE.leads.match(text)):
        return False  # "Where a driver", "The following officers"
    below = after.kind == "text" or after.depth > block.depth
    whole = is_whole(after.text) or ": " in f"{after.text} " or bool(RUNS_ON.search(after.text))
    title = _RE.numbered.sub("", text)
    return lists or (below and whole and not re.search(r"\d|: |^no\b|^not\b", title, re.IGNORECASE))


def _is_below(lead: Block, first: Block, item: Block) -> bool:
    """Whether a block is an item of what stands above the first of a list."""
    if item.depth == first.depth and count_of(item) != count_of(first):
        return False  # numbers behind bullets, or "A)" behind "(a)", are another list
    if item.kind != "item" or lead.kind != "item" or item.depth > lead.depth:
        return item.kind == "item"
    return lead.text.endswith(":") and item.text[:1].islower()
