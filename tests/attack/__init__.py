"""Hostile and clumsy clients against real nodes: each attack is bounded in time; afterwards the calls of a canary and
the records of producers and consumers are judged."""
