"""Version 1 of the persisted records; modules are generated from the .proto files here."""
