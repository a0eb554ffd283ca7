// Carries the precompiled headers of LibTorch; has no code.
