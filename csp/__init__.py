"""servebound's middle floor: optimal schedules, with proof."""
