// How fast memory is read: threads add up words that lie one behind the other, for `satchel bench`.
#version 450
layout(local_size_x = 256) in;

layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Constants { uint count; } c;

void main() {
  const uint threads = gl_NumWorkGroups.x * 256;
  uvec4 sum = uvec4(0);
  for (uint i = gl_WorkGroupID.x * 256 + gl_LocalInvocationID.x; i < c.count; i += threads) sum += x[i];
  const uint all = sum.x + sum.y + sum.z + sum.w;
  if (all == 0xFFFFFFFFu) y[0] = all;  // never, but nobody can know
}
