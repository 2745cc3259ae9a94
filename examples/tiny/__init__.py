"""The parts of ``tiny_grpo.py``, in the shapes that slime gives them.

Training, as slime does it:

===============  ===========================================================================
``args``         every setting, under slime's name where slime has one
``task``         the prompts, the vocabulary and the reward that checks an answer
``policy``       the transformer
``engine``       generates text with a copy of the weights, as an inference server does
``data_source``  hands out prompts
``rollout``      ``generate_rollout(args, rollout_id, data_source, evaluation)``
``trainer``      the GRPO update
``checkpoints``  the training state on disk, and its digest
``train``        the loop
``plugin``       the store: put around the data source and the rollout function by their paths
===============  ===========================================================================

And what is done with it:

===============  ===========================================================================
``events``       what a training process says about itself
``process``      a training process, which can be killed
``crash``        when it is killed
``experiment``   one run that is killed and started again, beside one that is left alone
``tally``        what was generated, and what was generated again
``copies``       what the trainer was handed, to compare the store with
``progress``     one line that says how training goes
``report``       what the store knows afterwards
``verdict``      what the crash cost, and whether all is as without it
===============  ===========================================================================
"""
