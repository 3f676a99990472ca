// The sum of the products of four signed bytes each.
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_of_bytes(uint a, uint b, spirv_literal int packed);
int dot4(uint a, uint b) { return dot_of_bytes(a, b, 0); }
