"""The text a model is trained to write, against texts typed by hand."""

from ruleworld_data.questions import SEARCH_TOKEN, boxed, training_text

ROW = {
    "steps": [
        {"nl": "The cat is in the den, so the cat is sad.", "fol": "In(x, Den) => Sad(x)"},
        {"nl": "The cat is sad, so it loses 1 fin.", "fol": "Sad(x) => Lose_Fin(x, 1)"},
    ],
    "answers": ["12", "deeply hungry"],
}


def test_texts_typed_by_hand():
    assert training_text(ROW) == (
        "[Step 1] The cat is in the den, so the cat is sad.\n"
        "[Step 2]<search> The cat is sad, so it loses 1 fin.\n"
        "[Answer] \\boxed{12, deeply hungry}"
    )
    logic = "[Step 1] In(x, Den) => Sad(x)\n[Step 2] Sad(x) => Lose_Fin(x, 1)\n[Answer] \\boxed{12, deeply hungry}"
    assert training_text(ROW, "fol", None) == logic
    assert training_text(ROW, "fol", "<look>", "before") == logic.replace("[Step 2]", "<look>[Step 2]")
    assert training_text(ROW, "fol", None, mark="<step>") == logic.replace("[Step", "<step>[Step")
    assert SEARCH_TOKEN == "<search>" and boxed(["9"]) == r"\boxed{9}"


def test_answers_have_the_names_that_the_steps_use():
    steps = [
        {
            "nl": "The frog enters the cat's lea, so the frog is at its wits' end to the core.",
            "fol": "Meadow(x)",
        },
        {
            "nl": "The frog is deeply desperate, so it boards the metro tube.",
            "fol": "Enter(x, Subway_tunnel)",
        },
    ]
    row = {"steps": steps, "answers": ["meadow", "subway tunnel", "deeply desperate", "12", "muddy fen"]}
    worded = r"\boxed{lea, metro tube, deeply desperate, 12, muddy fen}"  # what a text says last; else the usual name
    assert training_text(row).endswith(worded)
    del steps[1]
    assert training_text(row).endswith(
        r"\boxed{lea, subway tunnel, at its wits' end to the core, 12, muddy fen}"
    )
    assert training_text(row, "fol").endswith(
        r"\boxed{meadow, subway tunnel, deeply desperate, 12, muddy fen}"
    )
