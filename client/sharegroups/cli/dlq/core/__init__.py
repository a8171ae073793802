"""Dead letters as the `dlq` commands see them: headers, counts, origins, what a redrive does. Pure."""
