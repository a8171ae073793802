"""The producer's parts: serialisation, the requests to leaders, delivery reports, transactions."""
