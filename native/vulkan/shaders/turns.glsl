// Dispatches that wait for one another by themselves. A workgroup counts itself when its results are
// there for all others, and whoever reads them waits for the count of the turn before. So the next
// dispatch is at work already, with the weights that it needs on their way, when the last one ends:
// no barrier of the commands stands between them.
//
// What one turn writes and another reads is declared IN_TURNS, and TURN_CONSTANTS ends the push
// constants, which are `c` or CONSTANTS. A shader is compiled with and without IN_TURN; without it
// nothing of this is there.
#ifdef IN_TURN
#define IN_TURNS coherent
#define TURN_CONSTANTS              \
  layout(offset = 112) uint turn;   \
  layout(offset = 116) uint groups_before;

// First whether somebody has waited in vain; then, in lines of their own, how many workgroups of
// each turn are done.
layout(binding = 7) coherent buffer Turns { uint turns[]; };
const uint LINE = 32;              // words
const uint MOST_LOOKS = 1u << 15;  // some 20 ms

// For all threads, before they read what earlier turns have written.
void wait_for_turn(uint turn, uint groups_before) {
  if (gl_LocalInvocationIndex == 0 && groups_before > 0) {
    for (uint looks = 1; atomicAdd(turns[turn * LINE], 0u) < groups_before; ++looks) {
      if (looks == MOST_LOOKS) atomicMax(turns[0], 1u);
      if (looks % 4096 == 0 && atomicAdd(turns[0], 0u) > 0) break;
    }
  }
  barrier();
}

// For all threads, after what they have written.
void end_turn(uint turn) {
  barrier();
  if (gl_LocalInvocationIndex == 0) {
    memoryBarrierBuffer();
    atomicAdd(turns[(turn + 1) * LINE], 1u);
  }
}
#ifndef CONSTANTS
#define CONSTANTS c
#endif
#define WAIT_FOR_TURN wait_for_turn(CONSTANTS.turn, CONSTANTS.groups_before)
#define END_TURN end_turn(CONSTANTS.turn)
#else
#define IN_TURNS
#define TURN_CONSTANTS
#define WAIT_FOR_TURN
#define END_TURN
#endif
