// How fast cooperative matrices of bytes are multiplied, for `satchel bench`: eight products of 16 x 32 x
// 16 in turn, by each of four subgroups.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 128) in;

layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) writeonly buffer Y { int y[]; };

layout(push_constant) uniform Constants { uint rounds; } c;

shared int results[256];

#define Integers coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define Left coopmat<int8_t, gl_ScopeSubgroup, 16, 32, gl_MatrixUseA>
#define Right coopmat<int8_t, gl_ScopeSubgroup, 32, 16, gl_MatrixUseB>

void main() {
  Left a[2];
  Right b[4];
  Integers sums[8];
  [[unroll]] for (uint i = 0; i < 2; ++i)
    coopMatLoad(a[i], x, i * 32, 2, gl_CooperativeMatrixLayoutRowMajor);
  [[unroll]] for (uint i = 0; i < 4; ++i)
    coopMatLoad(b[i], x, 64 + i * 32, 2, gl_CooperativeMatrixLayoutColumnMajor);
  [[unroll]] for (uint i = 0; i < 8; ++i) sums[i] = Integers(0);
  for (uint round = 0; round < c.rounds; ++round) {
    [[unroll]] for (uint i = 0; i < 8; ++i) sums[i] = coopMatMulAdd(a[i % 2], b[i / 2], sums[i]);
  }
  Integers all = sums[0];
  [[unroll]] for (uint i = 1; i < 8; ++i) all += sums[i];
  coopMatStore(all, results, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
  barrier();
  if (results[gl_LocalInvocationID.x] == 0x7FFFFFFF) y[0] = 1;  // never, but nobody can know
}
