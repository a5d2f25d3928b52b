"""Export to Hugging Face transformers: the folder other tools load, checked against the model it came from."""
