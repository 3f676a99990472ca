"""8-bit weights with one scale per output row; activations are rounded to 8 bits per token."""

from satchel.quantize.scheme import Form, Scheme

SCHEME = Scheme(
    "8a8w",
    bits=8,
    forms={8: Form("matrix_q8")},
    activations="int8",
    embedding=(8, 0),
    head_bits=8,
)
