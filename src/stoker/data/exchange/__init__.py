"""Prepared tokens in the formats of others: Megatron's indexed datasets in and out, Parquet out."""
