"""How the embedded models were made: corpus, tokenizer, network and training."""
