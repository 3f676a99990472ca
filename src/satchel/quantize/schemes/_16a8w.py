"""8-bit weights with one scale per output row; activations are rounded to 16 bits per token."""

from satchel.quantize.scheme import Form, Scheme

SCHEME = Scheme(
    "16a8w",
    bits=8,
    forms={8: Form("matrix_q8")},
    activations="int16",
    embedding=(8, 0),
    head_bits=8,
)
