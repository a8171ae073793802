"""Version 1 of the persister protocol; modules are generated from the .proto files here."""
