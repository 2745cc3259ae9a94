"""The declarations of all frames: names, types, units and meanings of their columns."""
