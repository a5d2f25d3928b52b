"""Trains a model: the loop, one step of it, optimizer, schedule, precision and evaluation."""
