"""Every RuleWorld method side by side: frozen runs, resumable samples, intervals, reports."""

__version__ = "0.1.0"
