"""Persister protocol between partition leader, group coordinator and share coordinator."""
