"""Stories of access control: what each RPC needs, and what a caller without it gets."""
