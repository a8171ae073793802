"""Dead letters as the `dlq` commands see them: headers, counts, origins, and what a redrive does with each. Pure."""
