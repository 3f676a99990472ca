"""Weights in 16 bits, computed with in 32."""

from satchel.quantize.scheme import Form, Scheme

SCHEME = Scheme("fp16", bits=16, forms={16: Form("matrix_f16")})
