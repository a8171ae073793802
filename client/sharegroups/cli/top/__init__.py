"""`sharegroups top`: a screen of what waits, and why. The screen itself needs the extra `top` (Textual)."""
