"""Exact documents: any value that a sample's metadata may hold, as JSON text with tags, and back."""

from slime_store.codecs.documents.classes import register_type
from slime_store.codecs.documents.decoder import BlobSource, DocumentDecoder, part_of
from slime_store.codecs.documents.encoder import BlobSink, DocumentEncoder
from slime_store.codecs.documents.plain import is_clean

__all__ = ["BlobSink", "BlobSource", "DocumentDecoder", "DocumentEncoder", "is_clean", "part_of", "register_type"]
