"""Decisions of a producer: the buffer, its batches and their order, and which batches are unconfirmed. Pure."""
