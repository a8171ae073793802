"""Adversarial schedules of whole clusters on a virtual clock; invariants are checked from the outside."""
