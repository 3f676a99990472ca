// Blocks of keys, put together one after the other.
struct Joined {
  float largest, total;
  vec2 values;
};

Joined nothing_joined() { return Joined(uintBitsToFloat(0xFF800000u), 0.0, vec2(0.0)); }

Joined join(Joined before, float largest, float total, vec2 values) {
  precise Joined after;
  after.largest = max(before.largest, largest);
  const float old = exp(before.largest - after.largest), now = exp(largest - after.largest);
  after.total = before.total * old + total * now;
  after.values = before.values * old + values * now;
  return after;
}
