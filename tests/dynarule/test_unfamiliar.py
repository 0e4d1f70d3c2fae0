"""Words that no training held, of any script, by a byte-level tokenizer."""

import pytest
from dynarule.serve.unfamiliar import unfamiliar

ENGLISH = (
    "if the reader is late, he pays a fine of two euros for each week; dogs must stay outside this building"
)
KNOWN = {*ENGLISH.replace(",", "").replace(";", "").split()}


class Bytes:
    """Known words are tokens; others are taken apart in threes, letters beyond Latin in bytes."""

    unk_token_id = None

    def __call__(self, text, **_):
        word = text.strip()
        size = 1 if word in KNOWN else len(word.encode()) if not word.isascii() else -(-len(word) // 3)
        return {"input_ids": [0] * size}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ENGLISH, ""),
        (ENGLISH + " of Kowalski", ""),  # a name
        ("Hunde bleiben draussen, wenn jemand anderes zahlen muss", "Hunde bleiben"),
        ("Если читатель опоздал", "Если читатель"),
        ("借五本书", "借 五"),
    ],
)
def test_words_of_other_languages_are_named(text, expected):
    words, count = unfamiliar(Bytes(), [text])
    assert words[:2] == expected.split() and len(words) <= count
