// Brings what the host knows of a run to where its commands find it: regions of words, a workgroup for
// each, into either of two buffers.
#version 450
layout(local_size_x = 256) in;

layout(binding = 0) readonly buffer From { uint from[]; };
layout(binding = 1) writeonly buffer First { uint first[]; };
layout(binding = 2) writeonly buffer Second { uint second[]; };

struct Region {
  uint from, to, words, is_second;
};
layout(push_constant) uniform Constants {
  Region regions[7];
} c;

void main() {
  const Region region = c.regions[gl_WorkGroupID.x];
  for (uint i = gl_LocalInvocationID.x; i < region.words; i += 256) {
    if (region.is_second != 0)
      second[region.to + i] = from[region.from + i];
    else
      first[region.to + i] = from[region.from + i];
  }
}
