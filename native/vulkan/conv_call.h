// A convolution, or a layer whose rows are pixels, as shaders/conv_call.glsl has it.
#pragma once

#include "../runtime/conv_panel.h"
#include "op.h"

namespace satchel::vulkan {

// A linear layer: its rows as the pixels of one image.
ConvShape shape_of_rows(const NodeCall& call);

// Why shaders cannot count an array's elements; empty if they can.
std::string refuses_size(const NodeCall& call, const DeviceInfo& device);
// Why a layer with a weight in floats or static integers cannot be multiplied; empty if it can.
std::string refuses_product(const NodeCall& call, const DeviceInfo& device);

struct Product {
  Product(const NodeCall& layer, const ConvShape& of) : call(layer), shape(of) {}
  void record(Work& work) const;

  const NodeCall& call;
  ConvShape shape;
  const Tensor *bias = nullptr, *residual = nullptr;
  // Of codes.
  const Tensor* scale = nullptr;
  int32_t x_zero = 0, out_zero = 0, residual_zero = 0;
  float inverse_out_scale = 0, residual_scale = 0;
};

}  // namespace satchel::vulkan
