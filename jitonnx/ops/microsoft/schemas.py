"""The schemas of domain com.microsoft, which `jitonnx.ops.generate` writes and `jitonnx.ir.schema` reads."""

TYPES = (
    "tensor(bfloat16) tensor(float) tensor(float16)",
    "tensor(int32)",
    "tensor(double) tensor(float)",
    "tensor(float) tensor(float16)",
    "tensor(float) tensor(float16) tensor(int32)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16)",
    "tensor(bool)",
    "tensor(double) tensor(float) tensor(float16)",
    "tensor(int64)",
    "tensor(uint32)",
    "tensor(uint8)",
    "tensor(int16) tensor(int32) tensor(int4) tensor(int8) tensor(uint16) tensor(uint4) tensor(uint8)",
    "tensor(int8)",
    "tensor(float)",
    "tensor(int8) tensor(uint8)",
    "tensor(bfloat16) tensor(float) tensor(float16) tensor(int8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(double) tensor(float) tensor(float16) tensor(int32) tensor(int64) tensor(uint32) tensor(uint64)",
    "tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int4) tensor(uint4) tensor(uint8)",
    "tensor(int32) tensor(int64)",
    "tensor(bfloat16) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e5m2)",
    "tensor(float16)",
    "tensor(bfloat16) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(int8) tensor(uint8)",
    "tensor(bfloat16)",
    "tensor(bfloat16) tensor(float16)",
    "tensor(float8e4m3fn)",
    "tensor(int16) tensor(uint16)",
    "tensor(int32) tensor(uint32)",
    "tensor(bfloat16) tensor(float) tensor(float16) tensor(uint8)",
    "tensor(double) tensor(float) tensor(int32) tensor(int64) tensor(string) tensor(uint32) tensor(uint64)",
    "tensor(bfloat16) tensor(float16) tensor(float8e4m3fn) tensor(int8) tensor(uint8)",
    "tensor(float) tensor(int8) tensor(uint8)",
    "tensor(float8e4m3fn) tensor(uint8)",
    "tensor(bfloat16) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e8m0)",
    "tensor(int16) tensor(int4) tensor(int8) tensor(uint16) tensor(uint4) tensor(uint8)",
    "tensor(bfloat16) tensor(float)",
    "tensor(double) tensor(float) tensor(int16) tensor(int32) tensor(int64)",
    "tensor(float) tensor(uint16) tensor(uint8)",
    "tensor(bfloat16) tensor(float16) tensor(int8)",
    "sparse_tensor(double) sparse_tensor(float) sparse_tensor(int32) sparse_tensor(int64) sparse_tensor(uint32) sparse_tensor(uint64)",
    "tensor(double) tensor(float) tensor(int32) tensor(int64) tensor(uint32) tensor(uint64)",
    "tensor(string)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
)

SCHEMAS = """\
Attention 1 input:T weights:T bias?:T mask_index?:M past?:T attention_bias?:T past_sequence_length?:M > output:T present?:T | T=0 M=1 | do_rotary:INT mask_filter_value:FLOAT num_heads:INT! past_present_share_buffer:INT qkv_hidden_sizes:INTS rotary_embedding_dim:INT scale:FLOAT unidirectional:INT
AttnLSTM 1 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T initial_c?:T P?:T QW?:T MW?:T V?:T M?:T memory_seq_lens?:T1 AW?:T > Y?:T Y_h?:T Y_c?:T | T=2 T1=1 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT input_forget:INT
BeamSearch 1 input_ids:F max_length:I min_length?:I num_beams:I num_return_sequences:I length_penalty?:T repetition_penalty?:T vocab_mask?:M prefix_vocab_mask?:M attention_mask?:I decoder_input_ids?:I logits_processor?:I > sequences:I sequences_scores?:T scores?:T | T=3 F=4 I=1 M=1 | decoder:GRAPH! decoder_start_token_id:INT early_stopping:INT encoder:GRAPH eos_token_id:INT! init_decoder:GRAPH model_type:INT no_repeat_ngram_size:INT pad_token_id:INT! vocab_size:INT
BiasAdd 1 X:T bias:T skip:T > Y:T | T=3 |
BiasDropout 1 data:T bias:T residual?:T ratio?:T1 training_mode?:T2 > output:T mask?:T2 | T=5 T1=5 T2=6 | seed:INT
BiasGelu 1 A:T B:T > C:T | T=5 |
BiasSoftmax 1 data:T bias:T > output:T | T=7 | axis:INT is_inner_broadcast:INT!
BiasSplitGelu 1 X:T bias:T > Y:T | T=3 |
BifurcationDetector 1 src_tokens:T cur_tokens:T prev_suffix_match_idx:T pred_tokens?:T > tokens:T suffix_match_idx:T | T=8 | max_ngram_size:INT min_ngram_size:INT
BitmaskBiasDropout 1 data:T bias:T residual?:T ratio?:T1 training_mode?:T2 > output:T mask?:T3 | T=5 T1=5 T2=6 T3=9 | seed:INT
BitmaskDropout 1 data:T ratio?:T1 training_mode?:T2 > output:T mask?:T3 | T=5 T1=5 T2=6 T3=9 | seed:INT
BranchwiseRMSNorm 1 X:T scale?:M > Y:T | T=0 M=0 | epsilon:FLOAT num_branches:INT
CDist 1 A:T B:T > C:T | T=2 | metric:STRING
CausalConvWithState 1 input:T weight:T bias?:T past_state?:T > output:T present_state:T state_update?:T | T=0 | activation:STRING channels_last:INT dilation:INT input_channel_offset:INT input_channels:INT ndim:INT state_channels_last:INT state_length:INT state_update_capacity:INT state_window:INT
ComplexMul,ComplexMulConj 1 A:T B:T > C:T | T=7 |
ConvStateReplay 1 source_backing:T capture_backing:T destination_backing:T metadata:TI > destination_out:T | T=3 TI=8 |
ConvTransposeWithDynamicPads 1 X:T W:T Pads?:tensor(int64) B?:T > Y:T | T=7 | auto_pad:STRING dilations:INTS group:INT kernel_shape:INTS output_padding:INTS strides:INTS
CropAndResize 1 X:T1 rois:T1 batch_indices:T2 crop_size:T2 > Y:T1 | T1=7 T2=1 | extrapolation_value:FLOAT mode:STRING
DecoderAttention 1 query:T key:T q_weight:T kv_weight:T bias:T key_padding_mask?:B key_cache?:T value_cache?:T static_kv:B use_past:B has_layer_state:B has_key_padding_mask:B > output:T new_key_cache?:T new_value_cache?:T | T=3 B=6 | mask_filter_value:FLOAT num_heads:INT!
DecoderMaskedMultiHeadAttention 1 query:T key?:T value?:T mask_index?:M attention_bias?:T past_key?:T past_value?:T past_sequence_length?:M beam_width?:M cache_indirection?:M bias?:T > output:T present_key?:T present_value?:T qk?:QK | T=3 QK=3 M=1 | mask_filter_value:FLOAT num_heads:INT! output_qk:INT past_present_share_buffer:INT scale:FLOAT
DecoderMaskedSelfAttention 1 input:T weights:T bias:T mask_index?:M past:T attention_bias?:T past_sequence_length:M beam_width?:M cache_indirection?:M > output:T present:T | T=3 M=1 | do_rotary:INT mask_filter_value:FLOAT num_heads:INT! past_present_share_buffer:INT scale:FLOAT
DequantizeBFP 1 x:T1 shape:T2 strides:T2 > y:T3 | T1=10 T2=8 T3=0 | bfp_type:INT! block_dim:INT dtype:INT
DequantizeLinear 1 x:T1 x_scale:T2 x_zero_point?:T1 > y:T2 | T1=11 T2=3 | axis:INT
DequantizeWithOrder 1 input:Q scale_input:S > output:F | Q=12 F=3 S=13 | order_input:INT! order_output:INT! to:INT!
DynamicQuantizeLSTM 1 X:T W:T2 R:T2 B?:T sequence_lens?:T1 initial_h?:T initial_c?:T P?:T W_scale:T W_zero_point:T2 R_scale:T R_zero_point:T2 > Y?:T Y_h?:T Y_c?:T | T=13 T1=1 T2=14 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT input_forget:INT
DynamicQuantizeMatMul 1 A:T1 B:T2 b_scale:T1 b_zero_point?:T2 bias?:T1 > Y:T1 | T1=13 T2=14 |
DynamicSparseAttention 1 query:TQuery key?:TQuery value?:TValue past_key?:TCache past_value?:TCache auxiliary_key?:T auxiliary_value?:T selected_indices:M selected_counts:M seqlens_k:M total_sequence_length:M cos_cache?:T sin_cache?:T position_ids?:tensor(int64) q_norm_weight?:T k_norm_weight?:T head_sink?:T committed_length?:M key_scale?:S value_scale?:S > output:T present_key?:TCache present_value?:TCache validation_status?:M | T=0 TQuery=0 TValue=0 TCache=15 S=13 M=1 | attention_mode:STRING auxiliary_kv_shared:INT do_rotary:INT is_causal:INT kv_num_heads:INT! local_window_size:INT num_heads:INT! output_bf16:INT qk_norm_epsilon:FLOAT rotary_interleaved:INT rotary_offset:INT scale:FLOAT selected_kv_source:STRING smooth_softmax:INT
DynamicTimeWarping 1 input:F > output:I | F=13 I=1 |
EPContext 1 inputs**0:T > outputs**1:T | T=16 | embed_mode:INT ep_cache_context:STRING ep_sdk_version:STRING hardware_architecture:STRING main_context:INT max_size:INT notes:STRING onnx_model_filename:STRING partition_name:STRING source:STRING
EmbedLayerNormalization 1 input_ids:T1 segment_ids?:T1 word_embedding:T position_embedding:T segment_embedding?:T gamma:T beta:T mask?:T1 position_ids?:T1 > output:T mask_index?:T1 embedding_sum?:T | T1=1 T=3 | epsilon:FLOAT mask_index_type:INT
EngramGate 1 key:T query:T value:T key_norm_scale:T query_norm_scale:T conv_norm_scale?:T > output:T gated_value_normed?:T | T=0 | epsilon:FLOAT
ExpandDims 1 X:T axis:tensor(int32) > Y:T | T=17 |
FastGelu 1 X:T bias?:T > Y:T | T=5 |
FusedConv 1 X:T W:T B?:T Z?:T > Y:T | T=7 | activation:STRING activation_params:FLOATS auto_pad:STRING dilations:INTS group:INT kernel_shape:INTS pads:INTS strides:INTS
FusedGemm 1 A:T B:T C?:T > Y:T | T=18 | activation:STRING activation_alpha:FLOAT activation_beta:FLOAT activation_gamma:FLOAT alpha:FLOAT beta:FLOAT transA:INT transB:INT
FusedMatMul 1 A:T B:T > Y:T | T=5 | alpha:FLOAT transA:INT transB:INT transBatchA:INT transBatchB:INT
FusedMatMulActivation 1 A:T B:T > Y:T | T=5 | activation:STRING! activation_alpha:FLOAT activation_axis:INT activation_beta:FLOAT activation_gamma:FLOAT alpha:FLOAT transA:INT transB:INT transBatchA:INT transBatchB:INT
GatedAdd 1 X:T Y:T gate:T gate_weight?:T > output:T | T=0 |
GatedDeltaNet 1 query:T key?:T value?:T cu_seqlens?:TI decay?:TG beta?:TG initial_state?:TS a_log?:TS dt_bias?:TS capture_count?:TI state_update_active?:TI > output:T final_state?:TS state_update?:TS | T=0 TS=13 TG=0 TI=1 | beta_activation:STRING chunk_size:INT gate_activation:STRING gate_lower_bound:FLOAT qk_l2_norm:INT scale:FLOAT state_update_capacity:INT update_rule:STRING
GatedDeltaNetStateReplay 1 source_backing:T capsule_backing:T destination_backing:T metadata:TI > destination_out:T | T=13 TI=8 |
GatedRMSNorm 1 X:T scale:T gate:T > Y:T | T=0 | activation:STRING epsilon:FLOAT
GatedRelativePositionBias 1 query_layer:T query_bias:T rel_pos:T weight:T bias:T eco_a:T token_offset?:M > output:T | T=3 M=1 | num_heads:INT!
GatherBlockQuantized 1 data:T1 indices:Tind scales:T2 zero_points?:T1 > output:T2 | T1=19 T2=0 Tind=20 | bits:INT block_size:INT gather_axis:INT quantize_axis:INT
GatherND 1 data:T indices:Tind > output:T | T=17 Tind=20 |
GatherPacked 1 data:T1 indices:Tind > output:T2 | T1=10 T2=0 Tind=20 | K:INT! output_dtype:INT packed_type:INT!
Gelu 1 X:T > Y:T | T=5 |
GemmFastGelu 1 X:T W:T bias?:T > Y:T | T=0 |
GemmFloat8 1 A:TA B:TB C?:TC scaleA?:TS scaleB?:TS scaleY?:TS > Y:TR | TA=21 TB=21 TC=0 TR=21 TS=13 | activation:STRING alpha:FLOAT beta:FLOAT dtype:INT transA:INT transB:INT
GemmaRotaryEmbedding 1 emb:U q:T q_rot:T k:T k_rot:T > output1:T output2:T | T=22 U=13 |
GreedySearch 1 input_ids:I max_length:I min_length?:I repetition_penalty?:T vocab_mask?:I prefix_vocab_mask?:I attention_mask?:I > sequences:I | T=13 I=1 | decoder:GRAPH! decoder_start_token_id:INT encoder:GRAPH eos_token_id:INT! init_decoder:GRAPH model_type:INT no_repeat_ngram_size:INT pad_token_id:INT! vocab_size:INT
GridSample 1 X:T1 Grid:T1 > Y:T2 | T1=17 T2=7 | align_corners:INT mode:STRING padding_mode:STRING
GroupNorm 1 X:T gamma:M beta:M > Y:T | T=3 M=3 | activation:INT! channels_last:INT epsilon:FLOAT groups:INT!
GroupQueryAttention 1 query:T key?:T value?:T past_key?:T_CACHE past_value?:T_CACHE seqlens_k:M total_sequence_length:M cos_cache?:T sin_cache?:T position_ids?:tensor(int64) attention_bias?:T head_sink?:T k_scale?:T_KV_SCALE v_scale?:T_KV_SCALE q_norm_weight?:T k_norm_weight?:T query_seqlens?:M > output:T present_key?:T_CACHE present_value?:T_CACHE output_qk?:T | T=0 T_CACHE=23 T_KV_SCALE=13 M=1 | causal:INT do_rotary:INT k_norm_epsilon:FLOAT k_quant_type:STRING kv_cache_bit_width:INT kv_num_heads:INT! local_window_size:INT num_heads:INT! q_norm_epsilon:FLOAT qk_norm_epsilon:FLOAT qk_output:INT rotary_interleaved:INT scale:FLOAT sliding_window_cache:INT smooth_softmax:INT softcap:FLOAT v_quant_type:STRING
HyperConnectionLowRankMix 1 streams:T norm_scale:T down_weight:T up_weight:T inject_weight:T prev_block_output?:T prev_post_gate?:T > pre_output:T post_gate:T streams_out?:T | T=0 | epsilon:FLOAT gate_div:FLOAT gate_mul:FLOAT num_branches:INT! reduction_scale:FLOAT silu_alpha:FLOAT
HyperConnectionPostMix 1 streams:T block_output:T post_mix:M stream_mix?:M > output:T | T=0 M=0 | num_branches:INT
HyperConnectionPreMix 1 streams:T pre_mix:M > output:T | T=0 M=0 | num_branches:INT reduction_scale:FLOAT
Inverse 1 X:T > Y:T | T=7 |
Irfft 1 X:T > Y:T | T=7 | normalized:INT onesided:INT signal_ndim:INT!
IsAllFinite 1 input*1:V > output:T | V=5 T=6 | isinf_only:INT isnan_only:INT
LinearAttention 1 query:T key:T value:T past_state?:S decay?:T beta?:T > output:T present_state:S | T=0 S=0 | chunk_size:INT kv_num_heads:INT! q_num_heads:INT! scale:FLOAT state_window:INT update_rule:STRING
LinearAttentionGate 1 a:T dt_bias:TF decay_scale:TF b?:T > decay:T beta?:T | T=0 TF=13 |
LongformerAttention 1 input:T weight:T bias:T mask:T global_weight:T global_bias:T global:G > output:T | T=3 G=1 | num_heads:INT! window:INT!
MRotaryEmbedding 1 input:T position_ids:M cos_cache:T sin_cache:T > output:T | T=0 M=8 | interleaved:INT is_packed_batching:INT mrope_layout:INT mrope_section:INTS! num_heads:INT rotary_embedding_dim:INT scale:FLOAT
Mamba2Verify 1 projection:T conv_state:T ssm_state:F conv_weight:T conv_bias:T dt_bias:F A_negative:F D:F norm_weight:F state_row:I > Y:T conv_snapshots:T ssm_snapshots:F xbc?:T readout?:F | T=24 F=13 I=1 | d_state:INT epsilon:FLOAT head_dim:INT heads:INT! n_groups:INT! time_step_min:FLOAT
MatMulBlockQuantizedFp4Weight 1 A:T B:T1 weight_scale:T2 weight_scale_2:T3 input_scale?:T3 bias?:T > Y:T | T=25 T1=10 T2=10 T3=13 | block_size:INT
MatMulBlockQuantizedFp8Weight 1 A:T B:T1 b_scale:T2 a_scale?:T2 bias?:T > Y:T | T=25 T1=26 T2=13 | block_size:INT
MatMulBnb4 1 A:T1 B:T2 absmax:T1 > Y:T1 | T1=0 T2=10 | K:INT! N:INT! block_size:INT! quant_type:INT! training_mode:INT transB:INT
MatMulFpQ4 1 A:T1 B:T2 B_shape:T3 > Y:T1 | T1=13 T2=10 T3=8 | blk_quant_type:INT
MatMulInteger16 1 A:T1 B:T2 > Y:T3 | T1=27 T2=27 T3=28 |
MatMulIntegerToFloat 1 A:T1 B:T2 a_scale:T3 b_scale:T3 a_zero_point?:T1 b_zero_point?:T2 bias?:T3 > Y:T3 | T1=14 T2=14 T3=3 |
MatMulNBits 1 A:T1 B:T2 scales:T1 zero_points?:T3 g_idx?:T4 bias?:T1 > Y:T1 | T1=0 T2=10 T3=29 T4=1 | K:INT! N:INT! accuracy_level:INT bits:INT block_size:INT! weight_prepacked:INT
MatMulNBitsMlp 1 A:T1 skip?:T1 norm_scale?:T1 gate_B:T2 gate_scales:T1 gate_bias?:T1 up_B:T2 up_scales:T1 up_bias?:T1 > Y:T1 input_skip_bias_sum?:T1 | T1=0 T2=10 | K:INT! N:INT! accuracy_level:INT activation:STRING! bits:INT block_size:INT! epsilon:FLOAT
MatMulNBitsQLoRA 1 X:T W:TQ scales:T lora_A:TQ lora_A_scales:T lora_B:TQ lora_B_scales:T > Y:T | T=3 TQ=10 | K:INT! N:INT! accuracy_level:INT bits:INT block_size:INT lora_bits:INT lora_block_size:INT
MatMulNBitsQkv 1 A:T1 skip?:T1 norm_scale:T1 q_B:T2 q_scales:T1 q_bias?:T1 k_B:T2 k_scales:T1 k_bias?:T1 v_B:T2 v_scales:T1 v_bias?:T1 > Q:T1 K:T1 V:T1 input_skip_bias_sum?:T1 | T1=0 T2=10 | K:INT! Nkv:INT! Nq:INT! accuracy_level:INT bits:INT block_size:INT! epsilon:FLOAT
MatMulPacked 1 A:T1 B:T2 global_scale?:Tscale > Y:T1 | T1=25 T2=10 Tscale=13 | K:INT! N:INT! activation_type:STRING packed_type:INT!
MaxpoolWithMask 1 X:T M:tensor(int32) > Y:T | T=13 | auto_pad:STRING kernel_shape:INTS pads:INTS storage_order:INT strides:INTS
MoE 1 input:T router_probs:T fc1_experts_weights:T fc1_experts_bias?:T fc2_experts_weights:T fc2_experts_bias?:T fc3_experts_weights?:T fc3_experts_bias?:T > output:T | T=0 | activation_alpha:FLOAT activation_beta:FLOAT activation_type:STRING k:INT normalize_routing_weights:INT swiglu_fusion:INT swiglu_limit:FLOAT swiglu_limit_after_activation:INT use_sparse_mixer:INT
MoEGroupRouter 1 logits:T expert_bias:TF projection_weight?:T > router_probs?:T selection_scores?:TF router_weights?:TF | T=0 TF=13 | group_topk:INT n_group:INT router_sentinel:FLOAT top_k:INT! topk_group:INT
MoEPacked 1 input:T router_probs:TR gate_experts_weights:T2 up_experts_weights?:T2 down_experts_weights:T2 router_weights?:TR > output:T | T=25 T2=10 TR=0 | activation_type:STRING down_type:INT! gate_type:INT! k:INT normalize_routing_weights:INT routed_scaling_factor:FLOAT routing_epsilon:FLOAT up_type:INT
MulInteger 1 A:T A_zero_point?:T B:T B_zero_point?:T > C:T1 | T=14 T1=1 |
MultiHeadAttention 1 query:T key?:T value?:T bias?:T key_padding_mask?:M attention_bias?:T past_key?:T past_value?:T past_sequence_length?:M cache_indirection?:M > output:T present_key?:T present_value?:T qk?:QK | T=0 QK=0 M=1 | mask_filter_value:FLOAT num_heads:INT! scale:FLOAT unidirectional:INT
MurmurHash3 1 X:T1 > Y:T2 | T1=30 T2=28 | positive:INT seed:INT
NGramHashMapping 1 input_ids:M multipliers:M vocab_sizes:M past_ids?:M head_offsets?:M eos_token_id?:M segment_ids?:tensor(int32) > hash_ids:M present_ids?:M | M=20 | max_ngram_size:INT! n_head_per_ngram:INT! pad_id:INT! reset_on_eos:INT
NGramRepeatBlock 1 input_ids:Tid scores:T > scores_out:T | Tid=8 T=13 | ngram_size:INT!
NhwcConv 1 X:T W:T B?:T > Y:T | T=7 | auto_pad:STRING dilations:INTS group:INT kernel_shape:INTS pads:INTS strides:INTS
NhwcFusedConv 1 X:T W:T B?:T Z?:T > Y:T | T=3 | activation:STRING activation_params:FLOATS auto_pad:STRING dilations:INTS group:INT kernel_shape:INTS pads:INTS strides:INTS
NhwcMaxPool 1 x:T > y:T | T=14 | auto_pad:STRING ceil_mode:INT dilations:INTS kernel_shape:INTS! pads:INTS strides:INTS
PackedAttention 1 input:T weights:T bias:T token_offset:M cumulative_sequence_length:M attention_bias?:T > output:T | T=3 M=1 | num_heads:INT! qkv_hidden_sizes:INTS scale:FLOAT
PackedMultiHeadAttention 1 query:T key?:T value?:T bias?:T token_offset:M cumulative_sequence_length:M attention_bias?:T > output:T | T=3 M=1 | mask_filter_value:FLOAT num_heads:INT! scale:FLOAT
PackedSparseAttentionIndexer 1 query:T key?:T query_norm_weight:T key_norm_weight:T cos_cache:T sin_cache:T cumulative_sequence_lengths:M past_sequence_lengths:M gate?:T position_bias?:T head_weights?:T position_ids?:I past_key_state:T_KEY past_kv_buffer:T past_gate_buffer?:T past_state_lengths:M state_update_capture_count?:M state_update_active?:M indexshare_mode?:M merged_indices?:M merged_counts?:M merged_status?:M > selected_indices:M selected_counts:M present_key_state:T_KEY present_kv_buffer:T present_gate_buffer?:T present_state_lengths:M state_update?:T indexshare_status?:M state_status?:M | T=0 T_KEY=0 I=8 M=1 | compress_ratio:INT! epsilon:FLOAT head_weight_scale:FLOAT index_topk:INT indexshare_state_policy:STRING max_output_entries:INT policy_mode:STRING! scale:FLOAT state_capacity:INT! state_update_capacity:INT token_budget:INT
PackedSparseAttentionIndexerMerge 1 base_indices:T base_counts:T base_row_indices:T range_starts?:T range_ends?:T additional_indices?:T additional_counts?:T > selected_indices:T selected_counts:T status:T | T=1 | max_output_entries:INT! policy_mode:STRING!
Pad 1 data:T pads:tensor(int64) value?:T > output:T | T=7 | mode:STRING
PagedAttention 1 query:T key?:T value?:T key_cache:T_CACHE value_cache?:T_CACHE cumulative_sequence_length:S past_seqlens:S block_table:S cos_cache?:T sin_cache?:T slot_mapping?:S head_sink?:T q_norm_weight?:T k_norm_weight?:T k_scale?:T_KV_SCALE v_scale?:T_KV_SCALE attention_metadata?:S > output:T key_cache_out?:T_CACHE value_cache_out?:T_CACHE | T=25 T_CACHE=31 T_KV_SCALE=13 S=1 | do_rotary:INT is_causal:INT k_cache_dtype:STRING k_quant_type:STRING kv_cache_layout:STRING kv_num_heads:INT! local_window_size:INT num_heads:INT! qk_norm_epsilon:FLOAT rotary_interleaved:INT rotary_offset:INT scale:FLOAT softcap:FLOAT v_cache_dtype:STRING v_head_size:INT v_quant_type:STRING
QAttention 1 input:T1 weight:T2 bias:T3 input_scale:T3 weight_scale:T3 mask_index?:T4 input_zero_point?:T1 weight_zero_point?:T2 past?:T3 > output:T3 present?:T3 | T1=14 T2=14 T3=3 T4=1 | do_rotary:INT mask_filter_value:FLOAT num_heads:INT! past_present_share_buffer:INT scale:FLOAT unidirectional:INT
QEmbedLayerNormalization 1 input_ids:T1 segment_ids?:T1 word_embedding_quant:T2 position_embedding_quant:T2 segment_embedding?:T2 gamma_quant:T2 beta_quant:T2 mask?:T1 word_embedding_scale:T position_embedding_scale:T segment_embedding_scale?:T gamma_scale:T beta_scale:T word_embedding_zero_point:T2 position_embedding_zero_point:T2 segment_embedding_zero_point?:T2 gamma_zero_point:T2 beta_zero_point:T2 > layernorm_out:T mask_index_out:T1 | T1=1 T2=14 T=13 | epsilon:FLOAT
QGemm 1 A:TA a_scale:T a_zero_point:TA B:TB b_scale:T b_zero_point:TB C?:TC y_scale?:T y_zero_point?:TYZ > Y:TY | T=13 TA=14 TB=14 TC=1 TYZ=14 TY=32 | alpha:FLOAT transA:INT transB:INT
QLinearAdd,QLinearMul 1 A:T A_scale:tensor(float) A_zero_point?:T B:T B_scale:tensor(float) B_zero_point?:T C_scale:tensor(float) C_zero_point?:T > C:T | T=14 |
QLinearAveragePool 1 X:T x_scale:tensor(float) x_zero_point?:T y_scale:tensor(float) y_zero_point?:T > Y:T | T=14 | auto_pad:STRING ceil_mode:INT channels_last:INT count_include_pad:INT kernel_shape:INTS! pads:INTS strides:INTS
QLinearConcat 1 Y_scale:TF Y_zero_point:T8 inputs**1:TV > Y:T8 | T8=14 TF=13 TV=32 | axis:INT!
QLinearConv 1 x:T1 x_scale:tensor(float) x_zero_point:T1 w:T2 w_scale:tensor(float) w_zero_point:T2 y_scale:tensor(float) y_zero_point:T3 B?:T4 > y:T3 | T1=14 T2=14 T3=14 T4=1 | auto_pad:STRING channels_last:INT dilations:INTS group:INT kernel_shape:INTS pads:INTS strides:INTS
QLinearGlobalAveragePool 1 X:T x_scale:tensor(float) x_zero_point:T y_scale:tensor(float) y_zero_point:T > Y:T | T=14 | channels_last:INT
QLinearLeakyRelu 1 X:T X_scale:tensor(float) X_zero_point?:T Y_scale:tensor(float) Y_zero_point?:T > Y:T | T=14 | alpha:FLOAT
QLinearReduceMean 1 data:T data_scale:tensor(float) data_zero_point?:T reduced_scale:tensor(float) reduced_zero_point?:T > reduced:T | T=14 | axes:INTS! keepdims:INT!
QLinearSigmoid 1 X:T X_scale:tensor(float) X_zero_point?:T Y_scale:tensor(float) Y_zero_point?:T > Y:T | T=14 |
QLinearSoftmax 1 X:T X_scale:tensor(float) x_zero_point?:T y_scale:tensor(float) y_zero_point:T > Y:T | T=14 | axis:INT opset:INT!
QLinearWhere 1 condition:B X:T x_scale:TF x_zero_point:T Y:T y_scale:TF y_zero_point:T z_scale:TF z_zero_point:T > Z:T | B=6 TF=13 T=14 |
QMoE 1 input:T router_probs:T fc1_experts_weights:T1 fc1_scales?:T2 fc1_experts_bias?:T fc2_experts_weights:T1 fc2_scales?:T2 fc2_experts_bias?:T fc3_experts_weights?:T1 fc3_scales?:T2 fc3_experts_bias?:T fc1_zero_points?:T1 fc2_zero_points?:T1 fc3_zero_points?:T1 router_weights?:T fc1_global_scale?:T4 fc2_global_scale?:T4 fc1_act_scale?:T4 fc2_act_scale?:T4 fc1_act_block_scale?:T2 fc2_act_block_scale?:T2 > output:T | T=0 T1=33 T2=34 T4=13 | accuracy_level:INT activation_alpha:FLOAT activation_beta:FLOAT activation_type:STRING block_size:INT expert_weight_bits:INT fc1_expert_weight_bits:INT fc2_expert_weight_bits:INT fc3_expert_weight_bits:INT k:INT normalize_routing_weights:INT quant_type:STRING swiglu_fusion:INT swiglu_limit:FLOAT swiglu_limit_after_activation:INT use_sparse_mixer:INT weights_prepacked:INT
QOrderedAttention 1 input:Q scale_input:S scale_Q_gemm:S scale_K_gemm:S scale_V_gemm:S Q_weight:Q K_weight:Q V_weight:Q scale_Q_weight:S scale_K_weight:S scale_V_weight:S Q_bias:S K_bias:S V_bias:S scale_QKT_gemm?:S scale_QKT_softmax?:S scale_values_gemm:S mask_index?:G past?:Q attention_bias?:S > output:Q | Q=12 S=13 G=1 | num_heads:INT! order_input:INT! order_output:INT! order_weight:INT! qkv_hidden_sizes:INTS unidirectional:INT
QOrderedGelu 1 X:Q scale_X:S scale_Y:S > Y:Q | Q=12 S=13 | order_X:INT order_Y:INT
QOrderedLayerNormalization 1 X:Q scale_X:S scale:F B?:F scale_Y:S > Y:Q | F=3 S=13 Q=12 | axis:INT epsilon:FLOAT order_X:INT order_Y:INT
QOrderedLongformerAttention 1 input:Q scale_input:S weight:Q scale_weight:S bias:S scale_bias:S scale_qkv_gemm:S mask:F global_weight:Q scale_global_weight:S global_bias:S scale_global_gemm:S global:G scale_output:S > output:Q | Q=12 S=13 G=1 F=22 | num_heads:INT! order_global_weight:INT! order_input:INT! order_output:INT! order_weight:INT! window:INT!
QOrderedMatMul 1 A:Q scale_A:S B:Q scale_B:S scale_Y:S bias?:S C?:Q scale_C?:S > Y:Q | Q=12 S=13 | order_A:INT! order_B:INT! order_Y:INT!
QuantizeBFP 1 x:T1 > y:T2 shape:T3 strides:T3 | T1=0 T2=10 T3=8 | bfp_type:INT! block_dim:INT
QuantizeLinear 1 x:T1 y_scale:T1 y_zero_point?:T2 > y:T2 | T1=3 T2=35 | axis:INT
QuantizeWithOrder 1 input:F scale_input:S > output:Q | Q=12 F=3 S=13 | order_input:INT! order_output:INT!
QuickGelu 1 X:T > Y:T | T=5 | alpha:FLOAT
RMSNormRotary 1 X:T scale:F position_ids:I cosine:TCos sine:TCos prefill_numerics?:TI > Y:TOut normalized_fp32?:F | T=25 TCos=36 TOut=25 F=13 I=8 TI=1 | epsilon:FLOAT flatten_batch:INT input_start:INT input_width:INT output_fp16:INT rotary_embedding_dim:INT! use_fp32_arithmetic:INT
Range 1 start:T limit:T delta?:T > Y:T | T=37 |
ReduceSumInteger 1 data:T1 > reduced:T2 | T1=14 T2=28 | axes:INTS! keepdims:INT!
RelativePositionBias 1 bias_table:T query_length:U key_length:U > output:T | T=3 U=8 | is_bidirectional:INT max_distance:INT!
RemovePadding 1 input:T sequence_token_count:M > output:T token_offset:M cumulated_seq_len:M max_seq_len:M | T=3 M=1 |
RestorePadding 1 input:T token_offset:M > output:T | T=3 M=1 |
Rfft 1 X:T > Y:T | T=7 | normalized:INT onesided:INT signal_ndim:INT
RotaryEmbedding 1 input:T position_ids:M cos_cache:T sin_cache:T > output:T | T=0 M=8 | interleaved:INT is_packed_batching:INT num_heads:INT rotary_embedding_dim:INT scale:FLOAT
RouterGateUpProj 1 X:T W:T > router:T activated:T | T=25 | activation:STRING activation_alpha:FLOAT activation_beta:FLOAT limit:FLOAT router_size:INT!
SampleOp 1 X:T > Y:T | T=18 |
Sampling 1 input_ids:I max_length:I min_length?:I repetition_penalty?:T vocab_mask?:I prefix_vocab_mask?:I attention_mask?:I presence_mask?:I seed?:I > sequences:I filtered_logits?:T | T=13 I=1 | custom:INT decoder:GRAPH! decoder_start_token_id:INT encoder:GRAPH eos_token_id:INT! filter_value:FLOAT init_decoder:GRAPH min_tokens_to_keep:INT model_type:INT no_repeat_ngram_size:INT pad_token_id:INT! presence_penalty:FLOAT temperature:FLOAT top_p:FLOAT vocab_size:INT
ScaledSiLU 1 X:T scale?:M > Y:T | T=0 M=0 | alpha:FLOAT
SkipGroupNorm 1 X:T gamma:M beta:M skip:T bias?:T > Y:T S?:T | T=3 M=3 | activation:INT! channels_last:INT epsilon:FLOAT groups:INT!
SkipLayerNormalization 1 input:T skip:T gamma:T beta?:T bias?:T > output:T mean?:U inv_std_var?:U input_skip_bias_sum?:T | T=0 U=13 | epsilon:FLOAT
SkipSimplifiedLayerNormalization 1 input:T skip:T gamma:T bias?:T > output:T mean?:U inv_std_var?:U input_skip_bias_sum?:T | T=0 U=13 | epsilon:FLOAT
Snpe 1 inputs*1:T > outputs*1:T | T=38 | DLC:STRING! notes:STRING snpe_version:STRING target_device:STRING
SparseAttention 1 query:T key?:T value?:T past_key:T past_value:T block_row_indices:M block_col_indices:M total_sequence_length:M key_total_sequence_lengths:M cos_cache?:T sin_cache?:T > output:T present_key:T present_value:T | T=0 M=1 | do_rotary:INT kv_num_heads:INT! num_heads:INT! rotary_interleaved:INT scale:FLOAT sparse_block_size:INT!
SparseAttentionIndexer 1 query:T key?:T query_norm_weight:T key_norm_weight:T cos_cache:T sin_cache:T mask?:TB past_key:T gate?:T position_bias?:T head_weights?:T position_ids?:I past_sequence_length?:M past_proj_buffer?:T > selected_indices:M present_key:T present_proj_buffer?:T | T=0 TB=8 I=8 M=1 | compress_ratio:INT! epsilon:FLOAT head_weight_scale:FLOAT index_topk:INT policy_mode:STRING! scale:FLOAT token_budget:INT
SparsePagedAttention 1 query:T key?:T value?:T key_cache:T_CACHE value_cache:T_CACHE cumulative_sequence_length:S past_seqlens:S block_table:S slot_mapping?:S selected_indices:S selected_counts:S auxiliary_key?:T auxiliary_value?:T auxiliary_lengths?:S cos_cache?:T sin_cache?:T head_sink?:T q_norm_weight?:T k_norm_weight?:T k_scale?:T_KV_SCALE v_scale?:T_KV_SCALE attention_metadata?:S > output:T key_cache_out?:T_CACHE value_cache_out?:T_CACHE | T=25 T_CACHE=39 T_KV_SCALE=13 S=1 | attention_mode:STRING auxiliary_cache_layout:STRING auxiliary_kv_shared:INT do_rotary:INT is_causal:INT k_quant_type:STRING kv_num_heads:INT! local_window_size:INT num_heads:INT! qk_norm_epsilon:FLOAT rotary_interleaved:INT rotary_offset:INT scale:FLOAT selected_kv_source:STRING softcap:FLOAT v_quant_type:STRING
SparseToDenseMatMul 1 A:T B:T1 > Y:T1 | T=40 T1=41 | alpha:FLOAT transA:INT transB:INT
SpeculativePrefixCommit 1 next_tokens:I64 input_ids:I64 status:I32 ctl:I64 ctx_commit:I64 prefixes:I64 ptrs:I64 > head_c:I32 updated_ctl:I64 updated_ctx_commit:I64 | I64=8 I32=1 | head_rows:INT
SwiGLU 1 gate:T up?:T > output:T | T=0 | activation_alpha:FLOAT activation_beta:FLOAT limit:FLOAT round_activation:INT
Tokenizer 1 X:T > Y:T | T=42 | mark:INT! mincharnum:INT! pad_value:STRING! separators:STRINGS tokenexp:STRING
TorchEmbedding 1 weight:T indices:tensor(int64) padding_idx?:tensor(int64) scale_grad_by_freq?:tensor(bool) > Y:T | T=43 |
TransposeMatMul 1 A:T B:T > Y:T | T=5 | alpha:FLOAT transA:INT transB:INT
Trilu 1 X:T k?:tensor(int64) > Y:T | T=16 | upper:INT
UnfoldTensor 1 input:T > output:T | T=44 | dim:INT size:INT! step:INT
Unique 1 x:T > y:T idx:tensor(int64) counts:tensor(int64) | T=17 |
VarlenCausalConvWithState 1 input:T weight:T cumulative_sequence_length:M bias?:T initial_state:T capture_count?:M kernel_delta?:T previous_mask?:T > output:T final_state:T state_update?:T | T=0 M=1 | activation:STRING delta_offset:INT dilation:INT group_size:INT state_update_capacity:INT
VarlenNGramHashMapping 1 input_ids:M multipliers:M vocab_sizes:M cumulative_sequence_length:S past_ids?:M head_offsets?:M eos_token_id?:M segment_ids?:tensor(int32) past_segment_ids?:S capture_count?:S > hash_ids:M present_ids?:M present_segment_ids?:S state_update?:M | M=20 S=1 | max_ngram_size:INT! n_head_per_ngram:INT! pad_id:INT! reset_on_eos:INT state_update_capacity:INT
WhisperBeamSearch 1 input_ids:F max_length:I min_length?:I num_beams:I num_return_sequences:I length_penalty?:T repetition_penalty?:T vocab_mask?:M prefix_vocab_mask?:M attention_mask?:I decoder_input_ids?:I logits_processor?:I cross_qk_layer_head?:I extra_decoding_ids?:I temperature?:T > sequences:I sequences_scores?:T scores?:T cross_qk?:V non_speech_probs?:T | T=3 F=4 I=1 M=1 V=13 | beginning_timestamp_token_id:INT decoder:GRAPH! decoder_output_cross_qk:INT decoder_start_token_id:INT early_stopping:INT encoder:GRAPH eos_token_id:INT! init_decoder:GRAPH model_type:INT no_repeat_ngram_size:INT no_speech_token_id:INT no_timestamps_token_id:INT pad_token_id:INT! start_of_lm_token_id:INT transcribe_token_id:INT translate_token_id:INT vocab_size:INT
WordConvEmbedding 1 Sequence:T W:T1 B:T1 C:T1 > Y:T1 | T=1 T1=13 | char_embedding_size:INT conv_window_size:INT embedding_size:INT
"""
