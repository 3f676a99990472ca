"""What a quantised checkpoint has, as it is; activations are rounded to 16 bits per token.

Tensors that are not quantised, or in a form that no encoding holds, are stored in 16 bits.
"""

from satchel.quantize.scheme import Form, Scheme

SCHEME = Scheme("keep", bits=16, forms={16: Form("matrix_f16")}, activations="int16")
