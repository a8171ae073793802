"""Version 1 of the client-facing protocol; modules are generated from the .proto files here."""
