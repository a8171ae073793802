"""Which rule of docs/spec is shown by which test, from what pytest collects and from what people judged."""
