"""The admin client's calls: groups and their offsets, transactions, records, explanations."""
