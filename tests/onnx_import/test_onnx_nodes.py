"""ONNX's own tests of its operators; benchmarks/onnx_coverage.py runs all of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

import satchel

# An operator and the tests of it, a few of each.
NAMES = """abs acosh add_bcast and_bcast3v1d argmax_keepdims_example_select_last_index
argmin_no_keepdims_random averagepool_2d_ceil averagepool_2d_pads_count_include_pad
averagepool_2d_same_upper averagepool_3d_default basic_conv_with_padding batchnorm_epsilon
bitwise_not_2d clip_default_min clip_outbounds concat_3d_axis_negative_2 conv_with_autopad_same
conv_with_strides_and_asymmetric_padding convtranspose convtranspose_output_shape
convtranspose_pads cumsum_1d_reverse_exclusive depthtospace_crd_mode_example
depthtospace_example dequantizelinear_axis div dropout_default
dynamicquantizelinear_max_adjusted edge_pad einsum_batch_matmul einsum_transpose elu equal_bcast
expand_dim_changed eyelike_with_dtype flatten_negative_axis2 gather_2d_indices
gather_elements_negative_indices gather_negative_indices gathernd_example_int32_batch_dim1
gelu_tanh_1 gemm_all_attributes gemm_default_no_bias globalmaxpool greater_equal_bcast
group_normalization_example gru_seq_length hardmax_axis_1 hardsigmoid if instancenorm_epsilon
isinf layer_normalization_2d_axis0 layer_normalization_default_axis leakyrelu logsoftmax_axis_1
loop11 lrn lstm_defaults matmul_3d matmulinteger max_example maxpool_2d_dilations
maxpool_2d_same_lower mish mod_int64_fmod mod_mixed_sign_int32 mvn nearest_pad
nonmaxsuppression_center_point_box_format nonmaxsuppression_flipped_coordinates
nonmaxsuppression_limit_output_size nonmaxsuppression_suppress_by_IOU_and_scores
nonmaxsuppression_two_batches nonmaxsuppression_two_classes onehot_negative_indices
onehot_with_axis or4d pow_bcast_array prelu_broadcast qlinearconv qlinearmatmul_2D_uint8_float32
quantizelinear_axis range_int32_type_negative_delta reduce_l1_keep_dims_random
reduce_log_sum_exp_negative_axes_keepdims_random reduce_max_bool_inputs
reduce_mean_default_axes_keepdims_example reduce_sum_empty_axes_input_noop reflect_pad
reshape_zero_and_negative_dim resize_downsample_sizes_linear_pytorch_half_pixel
resize_upsample_scales_cubic resize_upsample_scales_nearest
resize_upsample_sizes_nearest_ceil_half_pixel roialign_aligned_false roialign_aligned_true round
scan9_sum scatter_elements_with_negative_indices scatternd_add selu shape_start_1_end_2
shrink_soft sign simple_rnn_with_initial_bias size_example slice_default_axes slice_neg_steps
softmax_axis_0 softplus softsign spacetodepth_crd_mode_example spacetodepth_example
split_1d_uneven_split_opset18 split_variable_parts_2d_opset18 squeeze_negative_axes sub_bcast
sum_example tile top_k_negative_axis transpose_all_permutations_4 tril_neg triu_pos
unsqueeze_unsorted_axes upsample_nearest where_long_example wrap_pad xor_bcast4v2d""".split()
COMPUTED = {"float64": "float32", "uint8": "int32", "int8": "int32"}


@cache
def cases() -> dict[str, Any]:
    return {case.name: case for case in collect_testcases(None)}


@pytest.mark.parametrize("name", NAMES)
def test_operators_are_those_of_onnx(tmp_path: Path, name: str) -> None:
    case = cases().get(f"test_{name}")
    if case is None:
        pytest.skip("this version of onnx has no such test")
    inputs, outputs = ([np.asarray(a) for a in side] for side in case.data_sets[0])
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    # Whole numbers beside the first input (shapes, axes) are constants, as models have them.
    first, *rest = (value.name for value in model.graph.input)
    arrays = dict(zip([first, *rest], inputs, strict=True))
    fixed = [n for n in rest if arrays[n].dtype.kind in "iu" or arrays[n].size <= 8]
    fixed = [first, *fixed] if name.startswith(("range", "loop")) else fixed
    for constant in fixed:
        model.graph.initializer.append(numpy_helper.from_array(arrays[constant], constant))
    kept = [value for value in model.graph.input if value.name not in fixed]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    onnx.save(model, tmp_path / "model.onnx")
    program = satchel.load(satchel.export(tmp_path / "model.onnx", tmp_path / "m.satchel"))
    method = program.method()
    given = [arrays[n] for n in method.inputs]
    got = method.run(*(a.astype(COMPUTED.get(str(a.dtype), a.dtype)) for a in given))
    assert method.outputs == [value.name for value in model.graph.output]
    for mine, theirs in zip(got, outputs, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(
            mine.astype(np.float64), theirs.astype(np.float64), rtol=1e-3, atol=1e-5
        )
