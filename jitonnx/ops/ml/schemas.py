"""The schemas of domain ai.onnx.ml, which `jitonnx.ops.generate` writes and `jitonnx.ir.schema` reads."""

TYPES = (
    "tensor(double) tensor(float) tensor(int32) tensor(int64) tensor(string)",
    "tensor(double) tensor(float) tensor(int32) tensor(int64)",
    "map(int64,tensor(float)) map(int64,tensor(string))",
    "tensor(float) tensor(int64) tensor(string)",
    "tensor(int64) tensor(string)",
    "map(int64,tensor(double)) map(int64,tensor(float)) map(int64,tensor(string)) map(string,tensor(double)) map(string,tensor(float)) map(string,tensor(int64))",
    "tensor(double) tensor(float) tensor(int64) tensor(string)",
    "tensor(double) tensor(float) tensor(int16) tensor(int32) tensor(int64) tensor(string)",
    "tensor(double) tensor(float) tensor(float16)",
    "seq(map(int64,tensor(float))) seq(map(string,tensor(float)))",
)

SCHEMAS = """\
ArrayFeatureExtractor 1 X:T Y:tensor(int64) > Z:T | T=0 |
Binarizer 1 X:T > Y:T | T=1 | threshold:FLOAT
CastMap 1 X:T1 > Y:T2 | T1=2 T2=3 | cast_to:STRING map_form:STRING max_map:INT
CategoryMapper 1 X:T1 > Y:T2 | T1=4 T2=4 | cats_int64s:INTS cats_strings:STRINGS default_int64:INT default_string:STRING
DictVectorizer 1 X:T1 > Y:T2 | T1=5 T2=6 | int64_vocabulary:INTS string_vocabulary:STRINGS
FeatureVectorizer 1 X*1:T1 > Y:tensor(float) | T1=1 | inputdimensions:INTS
Imputer 1 X:T > Y:T | T=1 | imputed_value_floats:FLOATS imputed_value_int64s:INTS replaced_value_float:FLOAT replaced_value_int64:INT
LabelEncoder 1 X:T1 > Y:T2 | T1=4 T2=4 | classes_strings:STRINGS default_int64:INT default_string:STRING
LabelEncoder 2 X:T1 > Y:T2 | T1=3 T2=3 | default_float:FLOAT default_int64:INT default_string:STRING keys_floats:FLOATS keys_int64s:INTS keys_strings:STRINGS values_floats:FLOATS values_int64s:INTS values_strings:STRINGS
LabelEncoder 4 X:T1 > Y:T2 | T1=7 T2=7 | default_float:FLOAT default_int64:INT default_string:STRING default_tensor:TENSOR keys_floats:FLOATS keys_int64s:INTS keys_strings:STRINGS keys_tensor:TENSOR values_floats:FLOATS values_int64s:INTS values_strings:STRINGS values_tensor:TENSOR
LinearClassifier 1 X:T1 > Y:T2 Z:tensor(float) | T1=1 T2=4 | classlabels_ints:INTS classlabels_strings:STRINGS coefficients:FLOATS! intercepts:FLOATS multi_class:INT post_transform:STRING
LinearRegressor 1 X:T > Y:tensor(float) | T=1 | coefficients:FLOATS intercepts:FLOATS post_transform:STRING targets:INT
Normalizer 1 X:T > Y:tensor(float) | T=1 | norm:STRING
OneHotEncoder 1 X:T > Y:tensor(float) | T=0 | cats_int64s:INTS cats_strings:STRINGS zeros:INT
SVMClassifier 1 X:T1 > Y:T2 Z:tensor(float) | T1=1 T2=4 | classlabels_ints:INTS classlabels_strings:STRINGS coefficients:FLOATS kernel_params:FLOATS kernel_type:STRING post_transform:STRING prob_a:FLOATS prob_b:FLOATS rho:FLOATS support_vectors:FLOATS vectors_per_class:INTS
SVMRegressor 1 X:T > Y:tensor(float) | T=1 | coefficients:FLOATS kernel_params:FLOATS kernel_type:STRING n_supports:INT one_class:INT post_transform:STRING rho:FLOATS support_vectors:FLOATS
Scaler 1 X:T > Y:tensor(float) | T=1 | offset:FLOATS scale:FLOATS
TreeEnsemble 5 X:T > Y:T | T=8 | aggregate_function:INT leaf_targetids:INTS! leaf_weights:TENSOR! membership_values:TENSOR n_targets:INT nodes_falseleafs:INTS! nodes_falsenodeids:INTS! nodes_featureids:INTS! nodes_hitrates:TENSOR nodes_missing_value_tracks_true:INTS nodes_modes:TENSOR! nodes_splits:TENSOR! nodes_trueleafs:INTS! nodes_truenodeids:INTS! post_transform:INT tree_roots:INTS!
TreeEnsembleClassifier 1 X:T1 > Y:T2 Z:tensor(float) | T1=1 T2=4 | base_values:FLOATS class_ids:INTS class_nodeids:INTS class_treeids:INTS class_weights:FLOATS classlabels_int64s:INTS classlabels_strings:STRINGS nodes_falsenodeids:INTS nodes_featureids:INTS nodes_hitrates:FLOATS nodes_missing_value_tracks_true:INTS nodes_modes:STRINGS nodes_nodeids:INTS nodes_treeids:INTS nodes_truenodeids:INTS nodes_values:FLOATS post_transform:STRING
TreeEnsembleClassifier 3 X:T1 > Y:T2 Z:tensor(float) | T1=1 T2=4 | base_values:FLOATS base_values_as_tensor:TENSOR class_ids:INTS class_nodeids:INTS class_treeids:INTS class_weights:FLOATS class_weights_as_tensor:TENSOR classlabels_int64s:INTS classlabels_strings:STRINGS nodes_falsenodeids:INTS nodes_featureids:INTS nodes_hitrates:FLOATS nodes_hitrates_as_tensor:TENSOR nodes_missing_value_tracks_true:INTS nodes_modes:STRINGS nodes_nodeids:INTS nodes_treeids:INTS nodes_truenodeids:INTS nodes_values:FLOATS nodes_values_as_tensor:TENSOR post_transform:STRING
TreeEnsembleClassifier 5- X:T1 > Y:T2 Z:tensor(float) | T1=1 T2=4 | base_values:FLOATS base_values_as_tensor:TENSOR class_ids:INTS class_nodeids:INTS class_treeids:INTS class_weights:FLOATS class_weights_as_tensor:TENSOR classlabels_int64s:INTS classlabels_strings:STRINGS nodes_falsenodeids:INTS nodes_featureids:INTS nodes_hitrates:FLOATS nodes_hitrates_as_tensor:TENSOR nodes_missing_value_tracks_true:INTS nodes_modes:STRINGS nodes_nodeids:INTS nodes_treeids:INTS nodes_truenodeids:INTS nodes_values:FLOATS nodes_values_as_tensor:TENSOR post_transform:STRING
TreeEnsembleRegressor 1 X:T > Y:tensor(float) | T=1 | aggregate_function:STRING base_values:FLOATS n_targets:INT nodes_falsenodeids:INTS nodes_featureids:INTS nodes_hitrates:FLOATS nodes_missing_value_tracks_true:INTS nodes_modes:STRINGS nodes_nodeids:INTS nodes_treeids:INTS nodes_truenodeids:INTS nodes_values:FLOATS post_transform:STRING target_ids:INTS target_nodeids:INTS target_treeids:INTS target_weights:FLOATS
TreeEnsembleRegressor 3 X:T > Y:tensor(float) | T=1 | aggregate_function:STRING base_values:FLOATS base_values_as_tensor:TENSOR n_targets:INT nodes_falsenodeids:INTS nodes_featureids:INTS nodes_hitrates:FLOATS nodes_hitrates_as_tensor:TENSOR nodes_missing_value_tracks_true:INTS nodes_modes:STRINGS nodes_nodeids:INTS nodes_treeids:INTS nodes_truenodeids:INTS nodes_values:FLOATS nodes_values_as_tensor:TENSOR post_transform:STRING target_ids:INTS target_nodeids:INTS target_treeids:INTS target_weights:FLOATS target_weights_as_tensor:TENSOR
TreeEnsembleRegressor 5- X:T > Y:tensor(float) | T=1 | aggregate_function:STRING base_values:FLOATS base_values_as_tensor:TENSOR n_targets:INT nodes_falsenodeids:INTS nodes_featureids:INTS nodes_hitrates:FLOATS nodes_hitrates_as_tensor:TENSOR nodes_missing_value_tracks_true:INTS nodes_modes:STRINGS nodes_nodeids:INTS nodes_treeids:INTS nodes_truenodeids:INTS nodes_values:FLOATS nodes_values_as_tensor:TENSOR post_transform:STRING target_ids:INTS target_nodeids:INTS target_treeids:INTS target_weights:FLOATS target_weights_as_tensor:TENSOR
ZipMap 1 X:tensor(float) > Z:T | T=9 | classlabels_int64s:INTS classlabels_strings:STRINGS
"""
