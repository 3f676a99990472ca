"""4-bit weights in low-power blockwise form; activations are rounded to 16 bits per token."""

from satchel.quantize.scheme import Form, Scheme

SCHEME = Scheme(
    "16a4w",
    bits=4,
    forms={4: Form("matrix_lpbq4", grouped=True), 8: Form("matrix_q8")},
    activations="int16",
    groups=(32, 16, 64, 128, 256),
    embedding=(8, 0),
    head_bits=8,
)
