"""The verifier: a second opinion on a build, from its parquet files alone."""

from .report import CHECKS, Check, Report, render_text
from .run import verify

__all__ = ["CHECKS", "Check", "Report", "render_text", "verify"]
