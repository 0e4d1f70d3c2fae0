"""Documents in, whole rules out: nothing torn, nothing lost, each with its line."""

import csv
import time
import zipfile
from pathlib import Path

import openpyxl
import pytest
import torch
from dynarule.bank import RuleBank
from dynarule.bank.sources import make_rules, read_rules
from dynarule.books import read_book
from dynarule.books.markdown import blocks_of
from dynarule.books.questions import draft_questions
from dynarule.books.rules import write_book
from dynarule.plus.words import words_of

from dynarule import read_documents


def rules_of(tmp_path, name, text, encoding="utf-8", **columns):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return [(rule.line, rule.text) for rule in read_documents(path, **columns)]


def pdf_of(pages, drawn=b""):
    """Return a PDF with these lines on its pages, and what is drawn on each."""
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
        stream = b"%s BT /F1 12 Tf 14 TL 50 700 Td %s ET" % (drawn, text)
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


DOCUMENTS = (Path(__file__).parent / "documents.txt").read_text(encoding="utf-8").split("\n=== ")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.partition("\n")[0])
def test_no_half_rule_and_no_lost_rule(tmp_path, document):
    """Below each text its rules, each a class of those that readers got wrong; with their lines where they matter."""
    name, _, body = document.partition("\n")
    text, _, expected = body.partition(">>>\n")
    expected = expected.strip().splitlines()
    pages = [page.splitlines() for page in text.split("%%%\n")]
    rules = rules_of(tmp_path, name, pdf_of(pages) if name.endswith(".pdf") else text)
    assert [f"{line}: {rule}" if expected[0][0].isdigit() else rule for line, rule in rules] == expected


def test_what_is_no_rule_is_shown(tmp_path):
    (tmp_path / "a.md").write_text("A pays.\n\n## Example\n\nAnn pays.\n\nBen goes.\n")
    left = [lost[:2] for lost in read_book(tmp_path / "a.md").left_out]
    assert left == [("a.md:3", "Example"), ("a.md:5", "Ann pays."), ("a.md:7", "Ben goes.")]


def test_docx(tmp_path):
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    texts = ["1.1 Flights are booked early.", "1.2 Managers must", "(a) keep receipts;", "(b) fly economy."]
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
    rules = [texts[0][4:], "Managers must keep receipts.", "Managers must fly economy."]
    read = read_documents(tmp_path / "travel.docx")
    assert [(rule.line, rule.text) for rule in read] == list(zip((1, 3, 4), rules, strict=True))


def test_a_ruled_table_of_a_pdf_stands_where_it_is(tmp_path):
    ends = [(45, y, 560, y) for y in (697, 683, 669)] + [(x, 697, x, 669) for x in (45, 300, 560)]
    drawn = b" ".join(b"%d %d m %d %d l S" % end for end in ends)
    page = pdf_of([["Fees are due at once.", "Fare|Fee", "Light|5", "Cash is not taken."]], drawn)
    rules = ["Fees are due at once.", "If fare is Light, fee is 5.", "Cash is not taken."]
    assert [text for _, text in rules_of(tmp_path, "fees.pdf", page)] == rules


def test_cells_and_footnotes_of_a_pdf_stay_with_their_words(tmp_path):
    call, note = b"BT /F1 7 Tf 223 704 Td (1) Tj ET", b"BT /F1 7 Tf 50 60 Td (1 In July a week ahead.) Tj ET"
    page = pdf_of(
        [["Boats are booked 3 days ahead.", "Boat|Fee", "Skiff|5", "Rowing boat|9"]], call + b" " + note
    )
    assert [text for _, text in rules_of(tmp_path, "boats.pdf", page)] == [
        "Boats are booked 3 days ahead (In July a week ahead).",
        "If boat is Skiff, fee is 5.",
        "If boat is Rowing boat, fee is 9.",
    ]


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
    book.active["D4"], book.active["D3"] = "=C4*2", "Total"
    book.create_sheet("Fines").append(["Dogs pay 5 euros."])
    book.save(tmp_path / "two.xlsx")
    reading = read_book(tmp_path / "two.xlsx")
    assert [rule.place for rule in reading.rules] == ["two.xlsx:Sheet:4", "two.xlsx:Fines:1"]
    assert [lost[:2] for lost in reading.left_out] == [("two.xlsx:Sheet:4", "D4 =C4*2")]
    book.active["XFD1048576"] = "far away"
    book.save(tmp_path / "far.xlsx")
    with pytest.raises(ValueError, match="17,179,869,184 cells; expected 5,000,000 at most"):
        read_documents(tmp_path / "far.xlsx")


@pytest.mark.parametrize(
    ("name", "text", "encoding", "expected"),
    [
        ("rules.csv", 'rule,conclusion\n"If A, B pays.",B pays\n', "utf-8-sig", "If A, B pays."),
        ("rules.tsv", "rule\tnote\nIf it rains, we stop.\tx\n", "utf-16", "If it rains, we stop."),
        ("fees.csv", "sep=;\nTotal;Fee\n>= 9;20 €\n", "cp1252", "If total is at least 9, fee is 20 €."),
    ],
)
def test_encodings(tmp_path, name, text, encoding, expected):
    assert [rule for _, rule in rules_of(tmp_path, name, text, encoding)] == [expected]


def test_columns_may_be_named(tmp_path):
    table = tmp_path, "fees.csv", "Fee,Zone\n5,A\n"
    assert rules_of(*table, outcomes=["Fee"]) == [(2, "If zone is A, fee is 5.")]
    with pytest.raises(ValueError, match=r"no column 'Price'; the columns are \['Fee', 'Zone'\]"):
        rules_of(*table, outcomes=["Price"])


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


@pytest.mark.parametrize("mark", [".", ". ", "1.", "[", "<!--", "**a", "![", "[a]("])
def test_a_line_of_marks_is_read_at_once(mark):
    start = time.process_time()
    blocks_of([(1, mark * (40_000 // len(mark)))])
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

    encode.fingerprint = "x key=premise"
    RuleBank.from_file(tmp_path / "rules.csv", encode).save(tmp_path / "bank")
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
        "In zone D, drivers pay if it is full.": "In zone D, it is full. What follows?",
        "Seniors pay nothing, unless the tour is private.": None,  # the private tour is not what it follows from
        "Should a guest arrive late, the bar stays open.": None,
    }
    for rule, question in stated.items():
        assert [row["question"] for row in draft_questions(make_rules([rule]))] == [question] * bool(question)
    assert len(draft_questions(make_rules(rules), 2)) == 2 and draft_questions(make_rules(rules[1:2])) == []
