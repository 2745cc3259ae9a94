"""Questions about many samples at once: which ones a filter means, and their columns or sums."""
