"""servebound's top floor: how far a schedule is from the best possible, reports, and the command line."""
