"""Programs that make vectors of texts, with their tokenizer and pooling in the file."""
