"""Real nodes and stores that do one thing wrong: the judge of the chaos experiments must find each."""
