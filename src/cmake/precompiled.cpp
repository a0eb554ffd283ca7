// Carries precompiled headers; has no code.
