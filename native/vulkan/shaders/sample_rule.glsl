// How the token of a sequence is chosen, beside its temperature: behind what all shaders see of the
// choice, words for each sequence.
struct Rule {
  uint top_k;   // 0: off
  float top_p;  // 1: off
  float reach;  // how far below the likeliest a logit may lie; infinity: as far as it likes
  float repetition, frequency, presence;
  // The text's tokens, of which the answer begins behind `question`; and tokens with what is added to
  // their logits.
  uint text_first, text_count, question, bias_first, bias_count;
};
const uint RULE = 11;

#define READ_RULE(at)                                                                              \
  Rule(choice[at], uintBitsToFloat(choice[at + 1]), uintBitsToFloat(choice[at + 2]),               \
       uintBitsToFloat(choice[at + 3]), uintBitsToFloat(choice[at + 4]), uintBitsToFloat(choice[at + 5]), \
       choice[at + 6], choice[at + 7], choice[at + 8], choice[at + 9], choice[at + 10])

// Whether some tokens are left out.
bool cuts(Rule rule) {
  return rule.top_k > 0 || rule.top_p < 1.0 || rule.reach < uintBitsToFloat(0x7F800000u);
}
