"""Answers of a language model, kept in a file that survives being killed at any moment."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock


class AnswerCache:
    """The answers so far, in a JSON Lines file that is appended to and flushed per answer.

    A last line that was not written to its end is dropped.

    Raises
    ------
    ValueError
        If any other line is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers: dict[str, str] = {}
        self._lock = Lock()
        if not path.exists():
            return
        data = path.read_bytes()
        good = 0
        lines = data.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                if not line.endswith(b"\n"):
                    raise ValueError("no line end")
                self._answers[str(entry["key"])] = str(entry["answer"])
            except (ValueError, KeyError, TypeError) as error:
                if number < len(lines):
                    raise ValueError(
                        f"{path}, line {number} is damaged ({error!r}); remove that line to ask its question again"
                    ) from None
                break
            good += len(line)
        if good < len(data):
            with path.open("r+b") as file:
                file.truncate(good)

    def get(self, key: str) -> str | None:
        """Return the answer kept under a key."""
        return self._answers.get(key)

    def add(self, key: str, question: str, answer: str) -> None:
        """Keep an answer; safe to call from several threads."""
        line = json.dumps({"key": key, "question": question, "answer": answer}) + "\n"
        with self._lock, self.path.open("ab", buffering=0) as file:
            file.write(line.encode())
            self._answers[key] = answer
