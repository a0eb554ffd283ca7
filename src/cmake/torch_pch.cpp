// Carries the precompiled <torch/torch.h>; has no code.
