"""The code that clients and services share: ids, errors, state batches, messages, transport (KIP-932)."""
