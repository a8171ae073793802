"""The messages stored in logs; the services' replay, the tools and the metrics pipeline all read them."""
