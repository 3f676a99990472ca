"""Everything in 32 bits: what the others are compared with."""

from satchel.graph.ir import DType
from satchel.quantize.scheme import Form, Scheme

SCHEME = Scheme("fp32", bits=32, forms={32: Form("matrix_f32")}, cache=DType.f32)
