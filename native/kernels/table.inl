// The table of a translation unit, from the functions defined above its inclusion.

#include "winograd.inl"

namespace satchel {
namespace {

constexpr KernelTable make_table(const char* name) {
  return KernelTable{.name = name,
                     .quantize_rows = quantize_rows,
                     .linear_f32 = linear_float<float>,
                     .linear_f16 = linear_float<uint16_t>,
                     .linear_q4 = linear_q4,
                     .linear_q8 = linear_q8,
                     .linear_k = linear_k,
                     .unpack_row = unpack_row,
                     .attention = attention,
                     .rms_norm = rms_norm,
                     .layer_norm = layer_norm,
                     .layer_norm_codes = layer_norm_codes,
                     .silu_mul = silu_mul,
                     .gelu_tanh_mul = gelu_tanh_mul,
                     .rope = rope,
                     .add = add,
                     .mul = mul,
                     .float_to_half = float_to_half,
                     .half_to_float = half_to_float,
                     .quantize_rows16 = quantize_rows16,
                     .quantize_cache = quantize_cache,
                     .activate = activate,
                     .softmax_block = softmax_block,
                     .softmax_codes = softmax_codes,
                     .blend = blend,
                     .linear_i8 = linear_i8,
                     .conv_i8 = conv_i8,
                     .quantize_codes = quantize_codes,
                     .quantize_scaled = quantize_scaled,
                     .add_codes = add_codes,
                     .mul_codes = mul_codes,
                     .depthwise_f32 = depthwise_float<float>,
                     .depthwise_f16 = depthwise_float<uint16_t>,
                     .depthwise_i8 = depthwise_i8,
                     .winograd_weights = winograd_weights,
                     .winograd_input = winograd_input,
                     .winograd_output = winograd_output};
}

}  // namespace
}  // namespace satchel
