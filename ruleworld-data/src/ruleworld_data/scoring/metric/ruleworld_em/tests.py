"""Cases that the Space shows as examples, and that the test suite of `ruleworld-data` runs."""

test_cases = [
    {
        "predictions": [r"So the answer is \boxed{12, \text{Stone Bridge}}."],
        "references": [["12", "stone bridge"]],
        "result": {"exact_match": 1.0, "strict_match": 1.0, "length_mismatch": 0.0, "missing_box": 0.0},
    },
    {
        "predictions": [r"\boxed{12, desert}", r"\boxed{7}"],
        "references": [["12", "stone bridge"], ["7"]],
        "result": {"exact_match": 0.75, "strict_match": 0.5, "length_mismatch": 0.0, "missing_box": 0.0},
    },
    {
        "predictions": [r"\boxed{12}", "It is 7.", r"\boxed{deeply hungry}", r"\boxed{0}"],
        "references": ["12, 3", "7", "deeply hungry", "4"],
        "result": {"exact_match": 0.25, "strict_match": 0.25, "length_mismatch": 0.25, "missing_box": 0.25},
    },
    {
        "predictions": [r"\boxed{unknown}", r"\boxed{9}", r"\boxed{7}", r"\boxed{unknown}"],
        "references": [["unknown"], ["unknown"], ["7"], ["8"]],
        "result": {
            "exact_match": 0.5,
            "strict_match": 0.5,
            "length_mismatch": 0.0,
            "missing_box": 0.0,
            "coverage": 0.5,
            "answered_match": 0.5,
            "refused_unknown": 0.5,
            "refused_known": 0.5,
        },
    },
]
