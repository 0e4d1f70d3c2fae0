import io

from rwbench.run.progress import Progress, clock_text


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_plain_lines_now_and_then_when_not_on_a_terminal():
    stream, clock = io.StringIO(), Clock()
    progress = Progress(1000, stream, clock)
    for _ in range(100):
        clock.now += 1.0
        progress.step(failed=_ % 50 == 0, text="BM25")
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines == [
        "30/1,000 samples, 1 failed, 1.0/s, 16 min 10 s left  BM25",
        "60/1,000 samples, 2 failed, 1.0/s, 15 min 40 s left  BM25",
        "90/1,000 samples, 2 failed, 1.0/s, 15 min 10 s left  BM25",
        "100 samples, 2 failed in 1 min 40 s (1.0/s)",
    ]


def test_one_line_rewritten_in_place_on_a_terminal():
    stream, clock = Terminal(), Clock()
    progress = Progress(10, stream, clock)
    for _ in range(10):
        clock.now += 0.3
        progress.step()
    progress.note("encoding")
    progress.close()
    text = stream.getvalue()
    assert text.count("\n") == 2
    first = next(part for part in text.split("\r") if part.strip())
    assert first.startswith("1/10 samples")


def test_durations_read_well():
    assert [clock_text(s) for s in (0.4, 42, 185, 7830)] == ["0 s", "42 s", "3 min 05 s", "2 h 10 min"]
