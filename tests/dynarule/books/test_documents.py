"""Documents in, whole rules out: nothing torn, nothing lost, each with its line."""

import csv
import time
import zipfile

import openpyxl
import pytest
import torch
from dynarule.bank import RuleBank
from dynarule.bank.sources import make_rules, read_rules
from dynarule.books import read_book
from dynarule.books.blocks import blocks_of
from dynarule.books.questions import draft_questions
from dynarule.books.review import write_book
from dynarule.plus.words import words_of

from dynarule import read_documents

HANDBOOK = """---
title: Handbook
---
# Airline Policy

## Table of Contents
- [Baggage](#baggage)

## Baggage

Each passenger may bring:

- one personal item
- a pram, if travelling with an infant

If a checked bag weighs more than 23 kg, a fee of **€40**
applies. Otherwise it is free. Fees over 1,000 euros, incl. tax, must be
approved by Dr. Smith.

```
If x, then y.
```

## Refunds

A ticket is refunded if all of the following hold:

1. the request is made within 24 hours;
2. the flight leaves in more than 7 days; and
3. the ticket is unused.

The following fares are not refundable:
* Light
* Promo

| Status | Bags |
|--------|------|
| Gold   | 3    |

Can I bring a dog? Yes, in the cabin.
Silver members board first.
"""
AGREEMENT = """                    COLLECTIVE AGREEMENT

ARTICLE 5. SALARY CAP

5.1 If a team's salary exceeds the cap by more than 5 million dollars, the
team pays a tax of $1.50 for every dollar over.
5.2 A team may exceed the cap to re-sign its own player.

      (a) A rookie contract lasts two seasons.
      (b) The team may extend it, but only before October 31.

                              Page 3 of 120

Trades are allowed until 3 p.m. on February 8. After that date, no trade is
valid.

Trades .......................... 7
"""


def rules_of(tmp_path, name, text, encoding="utf-8", **columns):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return [(rule.line, rule.text) for rule in read_documents(path, **columns)]


def test_markdown(tmp_path):
    assert rules_of(tmp_path, "handbook.md", HANDBOOK) == [
        (13, "Each passenger may bring one personal item."),
        (14, "Each passenger may bring a pram, if travelling with an infant."),
        (16, "If a checked bag weighs more than 23 kg, a fee of €40 applies. Otherwise it is free."),
        (17, "Fees over 1,000 euros, incl. tax, must be approved by Dr. Smith."),
        (
            26,
            "A ticket is refunded if all of the following hold: the request is made within 24 hours, the flight leaves "
            "in more than 7 days and the ticket is unused.",
        ),
        (33, "The following fares are not refundable: Light."),
        (34, "The following fares are not refundable: Promo."),
        (38, "If status is Gold, bags is 3."),
        (40, "Can I bring a dog? Yes, in the cabin."),
        (41, "Silver members board first."),
    ]


def test_plain_text(tmp_path):
    assert rules_of(tmp_path, "agreement.txt", AGREEMENT) == [
        (
            5,
            "If a team's salary exceeds the cap by more than 5 million dollars, the team pays a tax of $1.50 for every "
            "dollar over.",
        ),
        (7, "A team may exceed the cap to re-sign its own player."),
        (9, "A rookie contract lasts two seasons."),
        (10, "The team may extend it, but only before October 31."),
        (14, "Trades are allowed until 3 p.m. on February 8. After that date, no trade is valid."),
    ]


def test_a_rule_a_line_stays_a_rule_a_line(tmp_path):
    lines = [
        "If it rains heavily in the morning, the match is stopped",
        "If it snows, nobody plays",
        "Dogs are not allowed",
    ]
    assert rules_of(tmp_path, "rules.txt", "\n".join(lines)) == list(enumerate(lines, 1))


def test_html(tmp_path):
    page = (
        "<nav>Home</nav><h1>Leave</h1>\n<p>Employees get 25 days\nof leave.</p>"
        "<ul>\n<li>Sick leave is reported by <b>9 a.m.</b></li>\n<li>Parental leave lasts 12 weeks.</li></ul>"
        "<table><tr><th>Years</th><th>Days</th></tr>\n<tr><td>1–5</td><td>25</td></tr></table>"
    )
    assert rules_of(tmp_path, "leave.html", page) == [
        (2, "Employees get 25 days of leave."),
        (4, "Sick leave is reported by 9 a.m."),
        (5, "Parental leave lasts 12 weeks."),
        (6, "If years is from 1 to 5, days is 25."),
    ]


def test_docx(tmp_path):
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    texts = ["Employees book flights 14 days ahead.", "Meals are paid up to 20 euros."]
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in texts)
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    package = "http://schemas.openxmlformats.org/package/2006"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Override PartName="/word/document.xml" '
        f'ContentType="{kind}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="a" Type="{office}" '
        'Target="word/document.xml"/></Relationships>',
        "word/document.xml": f"<w:document {space}><w:body>{body}</w:body></w:document>",
    }
    with zipfile.ZipFile(tmp_path / "travel.docx", "w") as file:
        for name, text in parts.items():
            file.writestr(name, text)
    assert [(rule.line, rule.text) for rule in read_documents(tmp_path / "travel.docx")] == list(
        enumerate(texts, 1)
    )


def pdf_of(pages):
    """Return a PDF with these lines on its pages."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for lines in pages:
        # what stands behind a bar is set in a second column
        columns = [line.encode().partition(b"|")[::2] for line in lines]
        text = b" ".join(b"(%s) Tj 260 0 Td (%s) Tj -260 -14 Td" % sides for sides in columns)
        stream = b"BT /F1 12 Tf 14 TL 50 700 Td %s ET" % text
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        kids.append(b"%d 0 R" % (len(objects) + 1))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Resources "
            b"<< /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(kids))
    body = b"%PDF-1.4\n"
    for number, value in enumerate(objects, 1):
        body += b"%d 0 obj\n%s\nendobj\n" % (number, value)
    return body + b"trailer << /Root 1 0 R /Size %d >>\n%%%%EOF" % (len(objects) + 1)


def test_pdf(tmp_path):
    pages = [
        [
            "ACME Handbook",
            "If the invoice is over 1,000 euros, the director and the",
            "head of the department sign it. It is",
            "1",
        ],
        ["ACME Handbook", "paid by the clerk.", "Invoices are kept for 7 years.", "2"],
        ["ACME Handbook", "Copies are not needed.", "3"],
    ]
    assert rules_of(tmp_path, "acme.pdf", pdf_of(pages)) == [
        (
            1,
            "If the invoice is over 1,000 euros, the director and the head of the department sign it. It is paid by "
            "the clerk.",
        ),
        (2, "Invoices are kept for 7 years."),
        (3, "Copies are not needed."),
    ]


def test_two_columns_of_a_pdf_are_read_one_after_the_other(tmp_path):
    left = [
        "1. A player may be loaned to a",
        "club of the same league for one",
        "season. He may not return be-",
    ]
    left += ["fore its end, and his wages are", "paid by the club that he plays", "for."]
    right = [
        "2. A club that fails to pay the",
        "transfer fee is barred from the",
        "next transfer window until all",
    ]
    right += ["sums are paid in full and the", "other club has confirmed that it", "has received them."]
    pages = [[f"{a}|{b}" for a, b in zip(left, right, strict=True)]]
    assert [text for _, text in rules_of(tmp_path, "league.pdf", pdf_of(pages))] == [
        "A player may be loaned to a club of the same league for one season. He may not return before its end, and his "
        "wages are paid by the club that he plays for.",
        "A club that fails to pay the transfer fee is barred from the next transfer window until all sums are paid in "
        "full and the other club has confirmed that it has received them.",
    ]


FAULTS = [  # what readers made of such documents before, each a class of them
    (
        "law.txt",
        "(2) It shall be granted unless—\n(a) it is late; or\n(b) he says that—\n(i) it is bad, and\n(ii) it is old.\n",
        ["It shall be granted unless it is late or he says that it is bad and it is old."],
    ),
    (
        "fee.md",
        "Pets:\n\n- 0.50 EUR per day\n- 2.50 EUR per week\n",
        ["Pets: 0.50 EUR per day.", "Pets: 2.50 EUR per week."],
    ),
    (
        "note.md",
        "Bags are free.[^1] Dogs stay out.\n\n[^1]: Except on Sundays.\n",
        ["Bags are free. Except on Sundays.", "Dogs stay out."],
    ),
    (
        "more.md",
        "- Dogs stay out.\n- This does not apply to guide dogs.\n\nExceptions:\n- cats\n- birds\n",
        ["Dogs stay out. This does not apply to guide dogs. Exceptions: cats, birds."],
    ),
    (
        "if.md",
        "If we cancel:\n- you get a refund.\n- you may rebook.\n",
        ["If we cancel, you get a refund.", "If we cancel, you may rebook."],
    ),
    (
        "faq.md",
        "**Q: Do I need a visa?**\nA: No.\n\n## How do I pay?\n\n1. Open the app.\n2. Confirm.\n",
        ["Do I need a visa? No.", "How do I pay? Open the app. Confirm."],
    ),
    (
        "mail.txt",
        "From: Ann <a@b.example>\nSubject: Rules\n\n> Taxis are paid if the trip takes more\n> than one hour.\n",
        ["Taxis are paid if the trip takes more than one hour."],
    ),
    (
        "triage.txt",
        "* SpO2 < 90 %\n* temp. >= 39.5 C\n-> call the doctor\n",
        ["SpO2 < 90 % -> call the doctor", "temp. >= 39.5 C -> call the doctor"],
    ),
    ("bars.md", "Fare | Fee\n--- | ---\nLight | 5\n", ["If fare is Light, fee is 5."]),
    (
        "grid.rst",
        "+----+-----+\n| Of | Fee |\n+====+=====+\n| A  | 5   |\n+----+-----+\n",
        ["If of is A, fee is 5."],
    ),
    (
        "hand.html",
        "<p>We repair it if:<br>- it is new;<br>- you have the bill.</p><div class='cookie'>We use cookies.</div>",
        ["We repair it if it is new.", "We repair it if you have the bill."],
    ),
    (
        "span.html",
        "<table><tr><th>Lot</th><th>Day</th><th>Fee</th></tr><tr><td rowspan=2>A</td><td>Mon</td><td>5</td></tr>"
        "<tr><td>Sun</td><td>0</td></tr></table><dl><dt>Lost key</dt><dd>9 EUR</dd></dl>",
        ["If lot is A and day is Mon, fee is 5.", "If lot is A and day is Sun, fee is 0.", "Lost key: 9 EUR"],
    ),
    (
        "due.csv",
        "Risk;Amount;Decision;Approver\n>= 80;-;reject;-\n50..79;<= 10;accept;clerk\n\nNote: x is paid by the bank.\n",
        [
            "If risk is at least 80, decision is reject.",
            "If risk is from 50 to 79 and amount is at most 10, decision is accept and approver is clerk.",
            "Note: x is paid by the bank.",
        ],
    ),
    (
        "sick.csv",
        "Condition,Age,Action\nPain,> 40,ECG\nFever,any,wait\n",
        [
            "If condition is Pain and age is more than 40, action is ECG.",
            "If condition is Fever, action is wait.",
        ],
    ),
    (
        "tree.json",
        '{"policies": [{"title": "Fire", "rules": ["Leave at once.", "Close doors."]}]}',
        ["Leave at once.", "Close doors."],
    ),
    (
        "when.jsonl",
        '{"ruleId": 1, "antecedent": {"tier": "gold", "land": ["DE", "FR"]}, "consequent": "pay 0"}\n',
        ["If tier is gold and land is DE, FR, pay 0."],
    ),
    ("say.pl", ":- dynamic f/1.\n/* two\nlines. */\nmsg('A. B') :- f(1.5).\n", ["msg('A. B') :- f(1.5)."]),
    ("zh.txt", "一、读者可以借五本书。违者罚款五十元。\n", ["读者可以借五本书。", "违者罚款五十元。"]),
    (
        "terse.txt",
        "Pool rules\n\nno running\nshower before you swim\nentry 4.50\n",
        ["no running", "shower before you swim", "entry 4.50"],
    ),
    ("not.md", "If you don't pay, we don't ship.\n", ["If you don't pay, we don't ship."]),
    (
        "number.txt",
        "We will not pay for:\n\n4.1 any loss of keys;\n\n4.2 the first 100 euros.\n\n5. CLAIMS\n\nTell us at once.\n",
        [
            "We will not pay for any loss of keys.",
            "We will not pay for the first 100 euros.",
            "Tell us at once.",
        ],
    ),
    (
        "plot.csv",
        "Size,Full,Reduced\nup to 9,£4,£2\n10-19,£7,£3\n",
        [
            "If size is up to 9, full is £4 and reduced is £2.",
            "If size is from 10 to 19, full is £7 and reduced is £3.",
        ],
    ),
    (
        "semi.md",
        "If you bring a bird, cage it; if you bring a fish, keep it wet.\n",
        ["If you bring a bird, cage it.", "If you bring a fish, keep it wet."],
    ),
]


@pytest.mark.parametrize(("name", "text", "expected"), FAULTS, ids=[name for name, *_ in FAULTS])
def test_no_half_rule_and_no_lost_rule(tmp_path, name, text, expected):
    assert [rule for _, rule in rules_of(tmp_path, name, text)] == expected


def test_sheets_have_merged_cells_titles_and_two_rows_of_names(tmp_path):
    book = openpyxl.Workbook()
    for row in (["Bonus"], [None, "Weekday", None], ["Role", "Day", "Night"], ["Nurse", 0.05, 12]):
        book.active.append(row)
    book.active.merge_cells("A1:C1")
    book.active.merge_cells("B2:C2")
    book.active["B4"].number_format = "0%"
    book.save(tmp_path / "bonus.xlsx")
    (rule,) = read_documents(tmp_path / "bonus.xlsx")
    assert (rule.line, rule.text) == (4, "If role is Nurse, weekday Day is 5% and weekday Night is 12.")
    assert rule.context == ("Bonus",)
    book.active["XFD1048576"] = "far away"
    book.save(tmp_path / "far.xlsx")
    with pytest.raises(ValueError, match="17,179,869,184 cells; expected 5,000,000 at most"):
        read_documents(tmp_path / "far.xlsx")


@pytest.mark.parametrize(
    ("name", "text", "encoding", "expected"),
    [
        ("rules.csv", 'rule,conclusion\n"If A, B pays.",B pays\n', "utf-8-sig", ["If A, B pays."]),
        (
            "rules.tsv",
            "rule\tnote\nIf it rains, the match stops.\tx\n",
            "utf-16",
            ["If it rains, the match stops."],
        ),
        (
            "fees.csv",
            "sep=;\nOrder total;Country;Shipping\n>= 100;US;0\n-;other;20 €\n",
            "cp1252",
            [
                "If order total is at least 100 and country is US, shipping is 0.",
                "If country is other, shipping is 20 €.",
            ],
        ),
        (
            "zones.csv",
            "From / To,Zone 1,Zone 2\nZone 1,5,8\n",
            "utf-8",
            ["For From Zone 1 and To Zone 1: 5.", "For From Zone 1 and To Zone 2: 8."],
        ),
        (
            "tax.csv",
            "Income tax 2026,,\nfrom,to,Rate\n0,100,0 %\n101,-,20 %\n",
            "utf-8",
            ["If from is 0 and to is 100, rate is 0 %.", "If from is 101, rate is 20 %."],
        ),
        (
            "law.txt",
            "1 General\n1.1 Drivers must carry a licence.\n1.2 Passengers must\n (i) wear a belt;\n (ii) not smoke\n",
            "utf-8",
            ["Drivers must carry a licence.", "Passengers must wear a belt.", "Passengers must not smoke."],
        ),
        (
            "faq.html",
            "<p>Do we get a laptop?</p><p>Yes, on day one<sup>3</sup>.</p><div>Fees are due<br>at once.</div>",
            "utf-8",
            ["Do we get a laptop? Yes, on day one.", "Fees are due at once."],
        ),
        (
            "rules.json",
            '{"rules": [{"name": "a", "if": "the bag is heavy", "then": "pay 40"}]}',
            "utf-8",
            ["If the bag is heavy, pay 40."],
        ),
        (
            "members.csv",
            "Status,Bags,Open if\nGold,3,it is late\nSilver,2,it is early\n",
            "utf-8",
            [
                "If status is Gold, bags is 3 and open if it is late.",
                "If status is Silver, bags is 2 and open if it is early.",
            ],
        ),
        ("r.jsonl", '{"text": "If A, then B is done."}\n', "utf-8", ["If A, then B is done."]),
        (
            "family.pl",
            "% kin\ngrand(X, Z) :-\n    parent(X, Y), parent(Y, Z).\n",
            "utf-8",
            ["grand(X, Z) :- parent(X, Y), parent(Y, Z)."],
        ),
        (
            "a.rego",
            'package a\nallow if {\n  input.role == "x"  # y\n}\n',
            "utf-8",
            ['allow if { input.role == "x" }'],
        ),
    ],
)
def test_tables_and_logic(tmp_path, name, text, encoding, expected):
    assert [rule for _, rule in rules_of(tmp_path, name, text, encoding)] == expected


def test_columns_may_be_named(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["Fee", "Zone"])
    book.active.append([5, "A"])
    book.save(tmp_path / "fees.xlsx")
    assert [rule.text for rule in read_documents(tmp_path / "fees.xlsx", outcomes=["Fee"])] == [
        "If zone is A, fee is 5."
    ]
    with pytest.raises(ValueError, match=r"no column 'Price'; the columns are \['Fee', 'Zone'\]"):
        read_documents(tmp_path / "fees.xlsx", outcomes=["Price"])


def test_what_cannot_be_read_is_named_and_the_rest_is_read(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4 broken")
    (tmp_path / "b.md").write_text("Welcome!\n")
    (tmp_path / "c.md").write_text("If A is late, B pays.\n")
    (tmp_path / "d.md").symlink_to(__file__)
    for name in ("e.docx", "f.xlsx"):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("word/document.xml", bytes(11 << 20))
    reading = read_book(tmp_path)
    assert [rule.place for rule in reading.rules] == ["c.md:1"]
    told = ("a.pdf", "b.md", "d.md is a link", "it unpacks to 11 MiB", "it unpacks to 11 MiB")
    assert [part in problem for part, problem in zip(told, reading.problems, strict=True)] == [True] * 5
    with pytest.raises(ValueError, match="holds no rules"):
        read_documents(tmp_path / "b.md")


@pytest.mark.parametrize(
    "line",
    [
        "." * 20_000,
        ". " * 10_000,
        "1." * 10_000,
        "[" * 40_000,
        "<!--" * 5_000,
        "**a" * 7_000,
        "![" * 20_000,
        "[a](" * 10_000,
    ],
)
def test_a_line_of_marks_is_read_at_once(line):
    start = time.process_time()
    blocks_of([(1, line)])
    assert time.process_time() - start < 1  # of dots 17 seconds, where time grew with the square


def test_files_of_one_name_are_told_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "policy.md").write_text(f"Room {folder} is locked.\n")
    assert [rule.place for rule in read_documents(tmp_path)] == [f"{tmp_path}/{n}/policy.md:1" for n in "ab"]


def test_a_book_is_read_back_with_its_places(tmp_path):
    (tmp_path / "a.md").write_text("Dogs stay out. Cats stay in.\n")
    (tmp_path / "b.md").write_text("# Pets\n\nDogs stay out.\n")
    (tmp_path / "c.csv").write_text("rule\n=HYPERLINK(1) if it rains\n@SUM(1) if it snows\n")
    reading = read_book([tmp_path / name for name in ("a.md", "b.md", "c.csv")])
    write_book(tmp_path / "book", reading)
    rules = read_rules(tmp_path / "book" / "rules.csv")
    assert rules.ids == ["a.md:1", "a.md:1.2", "c.csv:2", "c.csv:3"] and rules.texts[0] == "Dogs stay out."
    assert rules.texts[2:] == ["=HYPERLINK(1) if it rains", "@SUM(1) if it snows"]
    with (tmp_path / "book" / "rules.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["also"] for row in rows] == ["b.md:3", "", "", ""]
    assert not [cell for row in rows for cell in row.values() if cell[:1] in ("=", "@")]  # no formula runs
    assert "Dogs stay out." in (tmp_path / "book" / "review.html").read_text()


def test_an_edited_premise_counts(tmp_path):
    (tmp_path / "a.md").write_text("Bags fly free if light. Members who pay early save 5 euros.\n")
    write_book(tmp_path / "book", read_book(tmp_path / "a.md"))
    rules = (tmp_path / "book" / "rules.csv").read_text().replace(",if light,", ",If a bag is feathery,")
    (tmp_path / "rules.csv").write_text(rules.replace(",Members who pay early,save 5 euros,", ",,,"))
    read = []

    def encode(texts):
        read.extend(texts)
        return torch.ones(len(texts), 2)

    RuleBank.from_file(tmp_path / "rules.csv", encode, encoder="x key=premise").save(tmp_path / "bank")
    assert read == ["If a bag is feathery", "Members who pay early", "Bags fly free", "save 5 euros"]
    bank = RuleBank.load(tmp_path / "bank")
    assert words_of(bank).premises("something feathery").tolist()[0] > 0.1
    bank.remove(["a.md:1"])
    assert bank.parts == {}


def test_drafts_of_questions_follow_chains_by_words(tmp_path):
    rules = [
        "If a bag weighs over 23 kg, it counts as heavy luggage.",
        "Heavy luggage costs 40 euros.",  # no condition: no question
        "If luggage counts as heavy, it goes to counter 5.",
        "If luggage goes to counter 5, a porter carries it.",
        "If a bag weighs over 23 kg, it gets a red label.",
        "If a dog travels, it needs a box.",
    ]
    drafts = draft_questions(make_rules(rules, None, [f"policy.md:{n}" for n in range(1, 7)]), 40)
    chains = {tuple(name[-1] for step in row["steps"] for name in step["rule_ids"]): row for row in drafts}
    assert [*chains] == [("1",), ("1", "3", "4"), ("3",), ("3", "4"), ("4",), ("5",), ("6",)]
    assert chains["1", "3", "4"]["question"] == "A bag weighs over 23 kg. What follows in the end?"
    assert chains["1", "3", "4"]["answers"] == ["a porter carries it"] and chains["1",]["also"] == [
        "policy.md:5"
    ]
    stated = {
        "Whenever a dog travels, it needs a box.": "A dog travels. What follows?",
        "Provided that the fee is paid, the visa is issued.": "The fee is paid. What follows?",
        "Seniors pay nothing, unless the tour is private.": None,  # the private tour is not what it follows from
        "Should a guest arrive late, the bar stays open.": None,
    }
    for rule, question in stated.items():
        assert [row["question"] for row in draft_questions(make_rules([rule]))] == [question] * bool(question)
    assert len(draft_questions(make_rules(rules), 2)) == 2 and draft_questions(make_rules(rules[1:2])) == []
