"""The `evaluate` metric of RuleWorld: a thin wrapper over `ruleworld_data.scoring`."""

# evaluate reads the import lines of this file with a regular expression: one module per line.
import datasets
import evaluate
from ruleworld_data.scoring import in_order, mean_scores, score_output, split_answers

_DESCRIPTION = """
Exact match on the comma-separated answer list in the last complete box of a model's output, as in the
RuleWorld paper: after normalisation, an output scores the fraction of positions that equal the gold answers,
and 0 if the lists differ in length.
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions (list of str): whole model outputs, each with its answers in \\\\boxed{...}.
    references (list of list of str, or list of str): the gold answers of each question, as a list or as one
        comma-separated string.
    confidences (list of float, optional): how sure each output is, higher where more so.
Returns:
    exact_match (float): mean position-wise score, 0 to 1.
    strict_match (float): share of outputs with every position right.
    length_mismatch (float): share of outputs whose box holds another number of answers than the gold list.
    missing_box (float): share of outputs without a complete box.
    Where "unknown" is among the references: coverage (share of questions answered, not refused as unknown),
        answered_match (exact match of these), refused_unknown (share refused of the questions without an answer) and
        refused_known (share refused of the others).
    With confidences: aurc, the area under the risk-coverage curve.
Examples:
    >>> metric = evaluate.load("ruleworld_em")
    >>> metric.compute(predictions=["\\\\boxed{12, stone bridge}"], references=[["12", "desert"]])
    {'exact_match': 0.5, 'strict_match': 0.0, 'length_mismatch': 0.0, 'missing_box': 0.0}
"""

_CITATION = """
@misc{ruleworld,
  title = {Beyond Factual Knowledge: Benchmarking and Learning Step-Level Procedural Rule Reasoning in Large
           Language Models},
  author = {Yu, Bohan and Cao, Pengfei and Han, Chen and Zhou, Chenxi and Zhang, Zhiheng and Xie, Zhiyang and
            Teng, Wenhao and Liao, Xiangwen and Zhao, Jun and Liu, Kang},
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class RuleWorldEM(evaluate.Metric):
    """Mean scores of a batch of outputs."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(
                {
                    "predictions": datasets.Value("string"),
                    "references": datasets.Sequence(datasets.Value("string")),
                }
            ),
        )

    def add(self, *, prediction=None, reference=None, **kwargs):
        """Add one output after the same checks."""
        self.add_batch(predictions=[prediction], references=[reference], **kwargs)

    def add_batch(self, *, predictions=None, references=None, **kwargs):
        """Add a batch after checks: `evaluate` fails on empty ones, takes sets, and writes texts by str()."""
        predictions, references = in_order("predictions", predictions), in_order("references", references)
        if not predictions:
            raise ValueError("there are no predictions to score; give one output per question")
        if odd := [text for text in predictions if not isinstance(text, str)]:
            raise ValueError(f"a prediction must be a text, got {odd[0]!r:.60}; '' for no answer")
        # Half a surrogate pair, which a model may write and Arrow does not hold, becomes a question mark.
        predictions = [text.encode(errors="replace").decode() for text in predictions]
        golds = [split_answers(g) if isinstance(g, str) else in_order("a reference", g) for g in references]
        super().add_batch(predictions=predictions, references=golds, **kwargs)

    def _compute(self, predictions, references, confidences=None):
        scores = [score_output(output, gold) for output, gold in zip(predictions, references, strict=True)]
        return mean_scores(scores, references, confidences)
