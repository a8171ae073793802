"""Pure parts of the Kafka listener: frames, the order and the pieces of answers, versions, pacing, SASL."""
