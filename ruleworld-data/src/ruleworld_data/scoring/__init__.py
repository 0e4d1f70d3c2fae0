"""From the text of an answer to numbers: the scorer, recall of rules, files of predictions, the `evaluate` metric."""
