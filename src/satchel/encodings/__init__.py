"""How weights lie in a program: what each encoding is, and its layouts in plain numpy."""
