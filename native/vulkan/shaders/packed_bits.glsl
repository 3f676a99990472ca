// Codes of 5 and 6 bits: see native/kernels/packed_bits.h. A line has four columns in the lower bits of
// a word's bytes; what is left in the lines of a step are the bits of further fours, one behind the other.

// The i-th of three fours in what is left of five lines.
#define SPARE_FIVE(i, l0, l1, l2, l3, l4)                                             \
  ((i) == 0   ? l0 >> 5 & 0x07070707u | l1 >> 2 & 0x18181818u                         \
   : (i) == 1 ? l1 >> 7 & 0x01010101u | l2 >> 4 & 0x0E0E0E0Eu | l3 >> 1 & 0x10101010u \
              : l3 >> 6 & 0x03030303u | l4 >> 3 & 0x1C1C1C1Cu)

// The one in what is left of three lines.
#define SPARE_SIX(l0, l1, l2) (l0 >> 6 & 0x03030303u | l1 >> 4 & 0x0C0C0C0Cu | l2 >> 2 & 0x30303030u)
