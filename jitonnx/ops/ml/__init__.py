"""ONNX's operators of classical machine learning: domain ai.onnx.ml."""

NEWEST = 5
"""The newest operator-set version."""

FAMILIES = {
    "features": "Binarizer Imputer Scaler Normalizer ArrayFeatureExtractor FeatureVectorizer",
    "labels": "LabelEncoder CategoryMapper OneHotEncoder",
    "linear": "LinearRegressor LinearClassifier",
    "maps": "ZipMap CastMap DictVectorizer",
    "svm": "SVMRegressor SVMClassifier",
    "trees": "TreeEnsembleRegressor TreeEnsembleClassifier TreeEnsemble",
}
"""The modules of this folder, and the names of the operators that each declares, which are those of its classes."""
