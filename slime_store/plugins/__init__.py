"""Plug-ins for training frameworks: ``slime_store.plugins.slime`` and ``slime_store.plugins.miles``.

Neither imports its framework before the framework calls it.
"""
