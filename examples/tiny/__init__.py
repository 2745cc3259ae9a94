"""The parts of ``tiny_grpo.py``, in the shapes that slime gives them.

=============  =============================================================================
``args``       every setting, under slime's name where slime has one
``task``       the prompts, the vocabulary and the reward that checks an answer
``policy``     the transformer
``engine``     generates text with a copy of the weights, as an inference server does
``rollout``    the data source and ``generate_rollout(args, rollout_id, data_source, evaluation)``
``trainer``    the GRPO update, checkpoints
``control``    copies of what was generated, to compare the store with
``progress``   one line that says how training goes
``report``     what the store knows afterwards
=============  =============================================================================
"""
