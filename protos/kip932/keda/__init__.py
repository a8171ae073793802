"""Messages generated from the .proto files in this folder; see hatch_build.py."""
