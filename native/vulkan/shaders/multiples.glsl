// Weights of 4 bits whose scales are whole multiples of a step, one for each row and 1,024 columns: see
// Q4_STEPS in encodings.glsl, which comes before it. Where multiples are from -15 to 16, a code times
// its multiple is a byte, so that sums of 1,024 columns are whole numbers, which are scaled once.
const uint RUN = 1024;  // columns of a step

// Eight columns times a multiple, as signed bytes. For a multiple below zero nibbles count down, so that
// products with its size are bytes without a sign; what zero makes is taken away from them, the highest
// bits apart, so that nothing is carried from one byte to the next.
uvec2 multiplied(uint codes, int multiple) {
  const uint size = uint(abs(multiple)), zero = multiple < 0 ? size * 7 : size * 8;
  const uint flipped = multiple < 0 ? 0x0F0F0F0Fu : 0u, added = (256 - zero & 255u) * 0x01010101u;
  const uvec2 products = (uvec2(codes, codes >> 4) & 0x0F0F0F0Fu ^ flipped) * size;
  return (products & 0x7F7F7F7Fu) + (added & 0x7F7F7F7Fu) ^ (products ^ added) & 0x80808080u;
}

// Where the steps of a tile's run of columns are, and behind them its multiples.
uint run_at(Matrix m, uint tile, uint run) {
  const uint groups = c.cols / GROUP, runs = (c.cols + RUN - 1) / RUN;
  return m.scales + tile * (runs * 16 + groups * 4) + run * (16 + RUN / GROUP * 4);
}

// Where those of eight columns and four rows are, the rows from 4 * quad on, a byte each.
uint multiples_at(Matrix m, uint tile, uint eight, uint quad) {
  const uint run = eight * 8 / RUN, group = (eight * 8 - run * RUN) / GROUP;
  return run_at(m, tile, run) + 16 + group * 4 + quad;
}
