# The kernels, one .cu an op (more where forward and backward are long). nvcc compiles them for devices (kernels/cuda), a C++ compiler for
# the emulator (tests/support).
set(HADAL_CUDA_SOURCES
  activation.cu
  adam.cu
  add.cu
  attention_backward.cu
  attention_forward.cu
  cached_attention.cu
  column_merge.cu
  convert.cu
  cross_entropy.cu
  embedding.cu
  glu.cu
  head_scale.cu
  hyper_connection.cu
  linear_epilogue.cu
  residual_norm_backward.cu
  residual_norm_forward.cu
  scatter_rows.cu
  shift_scale.cu
  sum_of_squares.cu
  tensor_attention_forward.cu
  tensor_attention_key_gradients.cu
  tensor_attention_query_gradient.cu
  top_candidates.cu
  unfold.cu
  weighted_sum.cu)
