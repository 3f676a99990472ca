"""4-bit weights in groups that share a scale; activations are rounded to 8 bits per token."""

from satchel.quantize.scheme import Form, Scheme

SCHEME = Scheme(
    "8da4w",
    bits=4,
    forms={4: Form("matrix_q4", grouped=True), 8: Form("matrix_q8", grouped=True)},
    activations="int8",
    groups=(32, 64, 128, 256),
    embedding=(4, None),
    head_bits=4,
)
