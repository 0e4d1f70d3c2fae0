"""From samples to numbers: metrics, intervals, paired tests, comparisons, and classes of errors."""
