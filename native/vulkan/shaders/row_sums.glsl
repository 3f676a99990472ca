// Sums and largest numbers over a workgroup, in an order that does not depend on the shader. A shader
// asks at most twice between two barriers of its own, with another `slot` each time.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

shared vec2 of_subgroups[2][64];

// The sum of the first numbers and the largest of the second ones.
vec2 sum_and_largest(uint slot, float first, float second) {
  const vec2 own = vec2(subgroupAdd(first), subgroupMax(second));
  if (subgroupElect()) of_subgroups[slot][gl_SubgroupID] = own;
  barrier();
  vec2 all = of_subgroups[slot][0];
  for (uint i = 1; i < gl_NumSubgroups; ++i)
    all = vec2(all.x + of_subgroups[slot][i].x, max(all.y, of_subgroups[slot][i].y));
  return all;
}

float largest_of(vec4 v) { return max(max(v.x, v.y), max(v.z, v.w)); }
