"""Sentences of a text, those that say nothing alone with the one before them, and lists with what leads in to them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from .._lazy import need
from ..bank.clauses import ABBREVIATED
from ..bank.lexicon import LISTS, MODALS, VERBS, has_verb, opens_with_verb, patterns
from ..bank.openings import leading
from ..bank.sources import LONGEST
from .blocks import Block, is_clause, is_whole, says_itself, unnumbered
from .parts import clauses

_RE = patterns("sentences")
TITLE = "a title of its paragraph"
_NO_RULE = vars(patterns("no_rule"))
"""Patterns by the reasons why what they match is no rule."""


def sentences(text: str) -> list[tuple[int, str]]:
    """Return the sentences of a text with their offsets; what says nothing by itself stays with the one before it."""
    text = _RE.proviso.sub(", provided ", text)
    whole: list[tuple[int, str]] = []
    for offset, sentence in _split(text):
        last = whole[-1][1] if whole else ""
        shortened = _RE.titled.search(last) or (sentence[:1].isdigit() and _RE.abbreviation.search(last))
        shortened = shortened or (_RE.unit.search(last) and ": " not in last and not has_verb(last))
        torn = sentence[:1].islower() or sentence[:1] in "<>=≤≥+/&:;,)" or shortened
        # "1. goals; 2. points", "... (see the log)"
        bracket = sentence[:1] == "(" and (last[-1:].isalnum() or sentence[-2:] == ".)")
        torn = torn or last[-1:] in (";", ",") or bracket
        refers = _RE.needs_last.match(sentence) and not last.isupper()  # "TERMINATION. This licence ..."
        if whole and (torn or refers or last.endswith("?")):
            whole[-1] = (whole[-1][0], f"{last}{'' if sentence[:1] in ';,)' else ' '}{sentence}")
        else:
            whole.append((offset, sentence))
    return [(offset + at, part) for offset, sentence in whole for at, part in clauses(sentence)]


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a text with their offsets."""
    process = need("syntok.segmenter", "documents").process
    starts = [tokens[0].offset for paragraph in process(text) for tokens in paragraph if tokens]
    for start, end in pairwise([*starts, len(text)]):  # not its tokens: it writes "don't" as "do not"
        at = start
        for mark in [*_RE.opener.finditer(text, start, end), None]:
            part = text[at : mark.start() if mark else end].strip().removeprefix(". ").lstrip("–—/ ")
            if mark and mark[0][:1] == ";":
                if not has_verb(text[mark.end() : end].partition(",")[2]):
                    continue  # "; if it is longer, also by finance"
                part += "."
            part = part[:1].upper() + part[1:] if text[at - 2 : at] == "; " else part
            yield at, unnumbered(_RE.counted.sub("", part) if at else part)  # "1. No dogs. 2. No bikes."
            at = mark.end() if mark else end


def no_rule(sentence: str, first: bool, alone: bool) -> str:
    """Return why a sentence is no rule, or nothing; it may be the first of several, or alone in its text."""
    words = sentence.split()
    if first and not alone and _RE.paragraph_title.fullmatch(sentence):
        return TITLE
    if len(sentence.encode()) > LONGEST:
        return f"longer than {LONGEST:,} bytes"
    party = _RE.party.search(sentence) and not has_verb(_RE.relative.split(sentence)[0])
    if party or _RE.imprint.match(sentence) or (_RE.contact.search(sentence) and not has_verb(sentence)):
        return "about the document, or where else to look"
    if reason := next((reason for reason, pattern in _NO_RULE.items() if pattern.search(sentence)), ""):
        return reason
    if "__" in sentence and (re.search(r":\s*__", sentence) or not has_verb(sentence)):
        return "a blank to fill in"
    spaced = re.search("[A-Za-z]{2}", sentence)  # Chinese and Thai have no blanks between words
    says = re.search(r"\d|: |^(?:no|not|never)\b", sentence, re.IGNORECASE)
    says = says if unnumbered(f"{sentence} X") != "X" else None
    if spaced and not says and len(words) < 3 - (alone and is_whole(sentence)) and not has_verb(sentence):
        return "no sentence"
    return ""


RUNS_ON = re.compile(rf"\b(?i:{'|'.join(LISTS['runs_on'])})(?<!ed below)(?<! A)$")


def joined(lead: str, line: int, items: Sequence[Block], tail: str = "") -> Iterator[tuple[str, Block | int]]:
    """Join items with the words that lead in to them and with those below them; a tail may follow from all."""
    tops = [i for i, item in enumerate(items) if item.depth == min(item.depth for item in items)]
    groups = [(items[i], items[i + 1 : end]) for i, end in zip(tops, [*tops[1:], len(items)], strict=True)]
    plain = any(not below for _, below in groups)
    for at, (item, below) in enumerate(groups):
        if text := _explained(item.text, below, plain):
            groups[at] = replace(item, text=text), []
    *before, stem = [lead, ""] if is_whole(lead) else _RE.next.split(lead)
    stem = stem.rstrip(" :;–—-")
    if before:
        yield " ".join(before), line
    ends_of = [_RE.joins.search(item.text) for item, below in groups if not below]
    words = {match[0].strip(" ;,").lower() for match in ends_of if match}
    chosen = _RE.any.search(stem)
    some = chosen or words in ({"or"}, {"oder"})
    every = _RE.all.search(stem) or (words <= {"and", "und"} and words and not _RE.following.search(stem))
    named = tail and not RUNS_ON.search(stem) and VERBS.get(tail.split()[0]) is not False
    subjects = named and not has_verb(f"{stem} x") and not any(opens_with_verb(i.text) for i, _ in groups)
    every = (every or subjects) and not chosen
    openers = [*_RE.in_condition.finditer(stem)]  # "... if the guest": no verb since, but for the last word
    since = stem[openers[-1].end() :].strip() if openers else ","
    condition = "," not in since and not has_verb(since.rpartition(" ")[0])
    runs = (condition or not has_verb(stem)) and any(opens_with_verb(i.text) for i, _ in groups)
    noted = [(item, below) for item, below in groups if any(_is_sentence(each.text) for each in below)]
    one = condition or chosen or subjects or _RE.all.search(stem)  # several duties are rules of their own
    choice = some and (RUNS_ON.search(stem) or _RE.condition.match(stem)) and not _RE.negative.search(stem)
    rules = sum(_RE.rules.search(item.text) is not None for item, _ in groups if _is_sentence(item.text))
    if stem and (every or some) and (one or choice) and (chosen or 2 * rules < len(groups)):
        parts = []  # each item with those below it
        for item, below in groups:
            below = [] if (item, below) in noted else below
            texts = [text for text, _ in joined(item.text, 0, below)] if below else [item.text]
            ors = any(re.search(r"\bor\W*$|^or\b", each.text) for each in below)
            held = _series([bare(each.text) for each in below], "or" if ors else "and") if below else ""
            parts.append(texts[0] if len(texts) == 1 else f"{item.text.rstrip(' :–—-')} {held}")
        word = next(iter(words & {"und", "oder"}), "and" if every else "or")
        # A second sentence of an item stands behind the series.
        ends = [_RE.next.split(part, 1) for part in parts]
        series = _prefixed(lead, stem, _series([bare(part) for part, *_ in ends], word), runs)
        yield " ".join([series, *(more for _, *rest in ends for more in rest)]), line
        for item, below in noted:  # whole sentences about a part of it
            label = item.text.partition(":")[0].rstrip(" .")
            yield from ((f"{label}: {text}", where) for text, where in joined("", 0, below))
        return
    leads = lead.endswith(":") or _RE.announces.match(stem) or _RE.following.search(stem)
    stops = sum(is_whole(item.text) for item, _ in groups)
    stopped = stops > (len(groups) > 1)  # the last of all has one, too
    unused = bool(stem)
    things = stem and any(item.title and not says_itself(item.text) for item, _ in groups)
    for item, nested in groups:
        own, whole = bare(item.text), stopped and is_whole(item.text)
        says = says_itself(own) or (": " in own and has_verb(stem))  # "Hotels: 140 EUR."
        needed = RUNS_ON.search(stem) or _RE.condition.match(stem) or _RE.predicate.match(stem)
        runs_in = has_verb(stem) and not (stopped and "," in own) and _RE.purpose.match(own)
        runs_in = runs_in or (own[:1].islower() and opens_with_verb(own))
        needed = needed or runs_in or _RE.owned.match(own)
        announced = _RE.announces.match(stem) and (says_itself(own) or _RE.says.search(own))
        told = says and own[:1].isupper() and (whole or _RE.following.search(stem))
        alone = not (things or needed) and (not stem or announced or told)
        unused = unused and alone
        if alone:
            text = item.text if nested or is_whole(item.text) or not stem else f"{own}."
        else:
            own = item.text.strip() if nested else own
            text = _prefixed(lead, stem, f"{item.title[:-1]}: {own}" if item.title else own, runs)
        if nested:
            text = text if is_whole(item.text) else text.removesuffix(".")
            yield from joined(text, item.line_at(0), nested)
        else:
            yield text, item
    if unused:  # "Harvest the cells", and how: a rule, too; of others it is said that they lead in to nothing
        yield stem if has_verb(stem) and (not leads or _RE.grants.search(stem)) else f"{stem}:", line


def _explained(text: str, below: Sequence[Block], plain: bool = False) -> str:
    """Return a thing, "glass", with what is said of it below, if plain ones stand beside it or it is called "it"."""
    says = is_whole(text) or text.endswith(("-", "–", "—", ":")) or has_verb(text) or leading(text)
    if says or not below or not all(_is_sentence(each.text) for each in below):
        return ""
    about = plain or text[:1].islower() or _RE.anaphor.search(below[0].text)
    return f"{text} ({'; '.join(bare(each.text) for each in below)})" if about else ""


def _is_sentence(text: str) -> bool:
    return text[:1].isupper() and is_whole(text) and has_verb(text)


def whole_item(title: str, text: str) -> str:
    """Put the title above an item before what says nothing alone: "passport", "must sign in"."""
    if opens_with_verb(text) and (text[:1].islower() or _RE.owned.match(text)):
        return f"{title}{'' if text[:1].islower() else ':'} {text}"
    if _RE.status.fullmatch(title) and MODALS.isdisjoint(_RE.relative.split(text.lower())[0].split()):
        return f"{title}: {text}"  # "Prohibited", "Open fire": a verb in it would not say that
    verb = is_clause(text) if len(text.split()) < 5 else has_verb(text)  # "Team lead"
    says = is_whole(text) or verb or leading(text) or _RE.says.search(text)
    of_pages = _RE.no_title.search(title) and not text[:1].isdigit()  # "Contents", but for "2 dice"
    return text if says or of_pages else f"{title}: {text}"


def _prefixed(lead: str, stem: str, text: str, runs: bool = False) -> str:
    """Put the words that lead in before an item: at once where the sentence runs on, else behind a comma or a colon."""
    mark = ":"
    begun = RUNS_ON.search(stem) or "," in stem or leading(stem)  # what follows from the condition, too
    if _RE.condition.match(stem) and has_verb(stem) and not begun:
        mark = ","
    runs = runs and has_verb(f"it {text.partition(' ')[0].lower()}")
    opens = RUNS_ON.search(stem) or (_RE.open.search(stem) and not lead.endswith((":", ";")))
    if mark == ":" and (opens or runs or stem.endswith(",") or _RE.goes_on.match(text)):
        mark = ""
    end = "" if text.endswith((":", "!", "?", ".")) else "."
    return f"{stem}{mark} {text if mark == ':' else lowered(text)}{end}".replace(" not to to ", " not to ")


def bare(text: str) -> str:
    """Return a text without its last stop, comma, "and" or "or"."""
    text = _RE.joins.sub("", text.strip()).rstrip(" ;,")
    return text if ABBREVIATED.search(text) else text.rstrip(" ;,.")


def _series(texts: Sequence[str], word: str) -> str:
    texts = [lowered(text) for text in texts]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {word} {texts[-1]}"


def lowered(text: str) -> str:
    """Begin a text in lower case, where its first word is a usual one."""
    first = text.split(" ")[0]
    usual = first.lower() in LISTS["lower"] or (has_verb(first) and not first.isupper())
    return first.lower() + text[len(first) :] if usual else text
