"""The text of a file, in whatever encoding."""

from __future__ import annotations

from pathlib import Path


def decoded(path: Path) -> str:
    """Return the text of a file in UTF-8, UTF-16 or cp1252, with or without a byte order mark."""
    body = path.read_bytes()
    if body[:5] == b"%PDF-" or body[:4] == b"PK\x03\x04":
        raise ValueError("it is a PDF or an office document under the name of a text")
    marks = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    encoding = next((name for mark, name in marks.items() if body.startswith(mark)), "")
    if not encoding and body[1::2].count(0) > len(body) // 8:
        encoding = "utf-16-le"
    elif not encoding and body[::2].count(0) > len(body) // 8:
        encoding = "utf-16-be"
    try:
        text = body.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        text = body.decode("cp1252", errors="replace")
    if "\0" in text:
        raise ValueError("it is no text: it holds zero bytes")
    return text
