"""What a question's sample and a run's results hold, and from samples to numbers: metrics, intervals, error classes."""
