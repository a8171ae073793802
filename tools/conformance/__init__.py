"""Works out which tests show which rules of docs/spec, from the tests that pytest collects and from people's
judgements."""
