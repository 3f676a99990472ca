// Rows of a cache to places before them: a workgroup for each head. A thread has the same words of
// all rows and takes the rows in order, so that none is written before it has been moved.
#version 450
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;

layout(binding = 0) buffer Cache { uint cache[]; };
layout(binding = 1) readonly buffer Items { uint items[]; };  // page and row, from and to

layout(push_constant) uniform Constants {
  uint words, head_rows, block_rows, count, items_first, cache_first;
} c;

void main() {
  for (uint i = 0; i < c.count; ++i) {
    const uint item = c.items_first + i * 4, head = gl_WorkGroupID.x * c.head_rows;
    const uint from = (items[item] * c.block_rows + head + items[item + 1]) * c.words;
    const uint to = (items[item + 2] * c.block_rows + head + items[item + 3]) * c.words;
    for (uint w = gl_LocalInvocationID.x; w < c.words; w += 64)
      cache[c.cache_first + to + w] = cache[c.cache_first + from + w];
  }
}
