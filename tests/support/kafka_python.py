"""kafka-python. It reads its definitions by a function that Python has deprecated, which tests take for an error."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import (
        KafkaAdminClient,
        KafkaConsumer,
        KafkaProducer,
        TopicPartition,
    )
    from kafka.admin import NewTopic

__all__ = ["KafkaAdminClient", "KafkaConsumer", "KafkaProducer", "NewTopic", "TopicPartition"]
