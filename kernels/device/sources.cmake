# The operations: for GPUs (CMakeLists.txt) and for the emulated device (tests/support).
set(HADAL_OPERATION_SOURCES
  adam_operation.cc
  add_operation.cc
  attention_operation.cc
  batch_block.cc
  convert_operation.cc
  cross_entropy_operation.cc
  embedding_operation.cc
  head_scale_operation.cc
  launch_memory.cc
  linear_operation.cc
  operations.cc
  residual_norm_operation.cc
  shift_scale_operation.cc
  sum_of_squares_operation.cc
  weighted_sum_operation.cc)
