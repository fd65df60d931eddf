"""specdec_jax: lossless speculative decoding for language models, in one compiled program."""
