"""The web page of the metric's Space: a table to paste outputs and gold answers into."""

import evaluate
from evaluate.utils import launch_gradio_widget

launch_gradio_widget(evaluate.load("ruleworld_em"))
