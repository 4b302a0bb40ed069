"""The embedded models: corpus, tokenizer, network and training."""
