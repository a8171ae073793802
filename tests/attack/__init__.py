"""Hostile and clumsy clients against real nodes: each attack is bounded, and a canary's calls and books are judged."""
