"""The messages that logs store: the services' replay, the tools and the metrics pipeline all read them."""
