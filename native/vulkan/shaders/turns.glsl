// Dispatches that wait for one another by themselves, value by value. Before they begin, all places that
// they write hold NOT_YET; whoever reads one looks until a value is there. So the next dispatch is at
// work already, with the weights that it needs on their way, when the last one ends, and a value is
// under way to those who need it as soon as it is made: no barrier of the commands stands between them.
//
// Each word tells for itself whether it is there, so that nothing depends on the order in which others
// are seen. What one turn writes and another reads is declared IN_TURNS, as words of bits; it is written
// as `given` and read by AWAIT. A shader is compiled with and without IN_TURN; without it nothing waits.
const uint NOT_YET = 0xFFFFFFFFu;  // not a number, and none that a device computes

bool is_there(uint bits) { return bits != NOT_YET; }
bool is_there(uvec4 bits) { return all(notEqual(bits, uvec4(NOT_YET))); }

#ifdef IN_TURN
#define IN_TURNS coherent volatile

// Whether somebody has waited in vain.
layout(binding = 7) coherent volatile buffer Sign { uint waited_in_vain; };

const uint MOST_LOOKS = 1u << 15;  // some 20 ms

bool may_look_again(uint looks) {
  if (looks == MOST_LOOKS) waited_in_vain = 1;
  return looks < MOST_LOOKS && (looks % 1024 > 0 || waited_in_vain == 0);
}

// Does LOOK until IS_THERE.
#define AWAIT(LOOK, IS_THERE)                          \
  for (uint looks = 1;; ++looks) {                     \
    LOOK;                                              \
    if ((IS_THERE) || !may_look_again(looks)) break; \
  }

uint given(float number) {
  const uint bits = floatBitsToUint(number);
  return bits == NOT_YET ? 0x7FC00000u : bits;
}
#else
#define IN_TURNS
#define AWAIT(LOOK, IS_THERE) LOOK;
uint given(float number) { return floatBitsToUint(number); }
#endif
