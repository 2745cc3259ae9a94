"""Samples to rows, documents and array packs, and back; no SQL."""
