"""Decisions of a producer: the buffer, its batches and their order, what is unconfirmed. Pure."""
