"""One module per API of Kafka: its request becomes the RPC of the same name, and the response an answer."""
