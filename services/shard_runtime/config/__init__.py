"""Settings of a process and configs of topics, groups and brokers: declared, read, checked, looked up."""
