/* A library of custom operators for onnxruntime's C interface, as small as can be: test_library.py writes the
   places of functions in OrtApi in front of it, as macros, and VERSION. */
#include <stdint.h>
#include <stddef.h>
#include <string.h>

typedef void* Any;
typedef struct { Any (*GetApi)(uint32_t); const char* (*GetVersionString)(void); } ApiBase;

typedef struct Op {
  uint32_t version;
  Any (*CreateKernel)(const struct Op*, Any api, Any info);
  const char* (*GetName)(const struct Op*);
  const char* (*GetExecutionProviderType)(const struct Op*);
  int (*GetInputType)(const struct Op*, size_t);
  size_t (*GetInputTypeCount)(const struct Op*);
  int (*GetOutputType)(const struct Op*, size_t);
  size_t (*GetOutputTypeCount)(const struct Op*);
  void (*KernelCompute)(Any, Any);
  void (*KernelDestroy)(Any);
  int (*GetInputCharacteristic)(const struct Op*, size_t);
  int (*GetOutputCharacteristic)(const struct Op*, size_t);
  int (*GetInputMemoryType)(const struct Op*, size_t);
  int (*GetVariadicInputMinArity)(const struct Op*);
  int (*GetVariadicInputHomogeneity)(const struct Op*);
  int (*GetVariadicOutputMinArity)(const struct Op*);
  int (*GetVariadicOutputHomogeneity)(const struct Op*);
  Any (*CreateKernelV2)(const struct Op*, Any api, Any info, Any* kernel);
  Any (*KernelComputeV2)(Any, Any);
  Any (*InferOutputShapeFn)(const struct Op*, Any);
  int (*GetStartVersion)(const struct Op*);
  /* what follows is this library's */
  const char* name;
  int inputs[3], outputs[1], input_count, characteristic;
} Op;

static Any* api;
#define CALL(name, type) ((type)api[name])
typedef Any (*Get)(Any, Any);
typedef Any (*GetAt)(Any, size_t, Any);
typedef Any (*Output)(Any, size_t, const int64_t*, size_t, Any);
typedef Any (*Dims)(Any, int64_t*, size_t);
typedef Any (*Named)(Any, const char*, Any);
typedef Any (*Status)(int, const char*);
typedef void (*Release)(Any);

typedef struct { float factor; } Kernel;
static Kernel kernels[64];
static int made;

static const char* name_of(const Op* op) { return op->name; }
static const char* no_provider(const Op* op) { return NULL; }
static int input_type(const Op* op, size_t i) { return op->inputs[i]; }
static size_t input_count(const Op* op) { return op->input_count; }
static int output_type(const Op* op, size_t i) { return op->outputs[i]; }
static size_t one(const Op* op) { return 1; }
static int characteristic(const Op* op, size_t i) { return op->characteristic; }
static int required(const Op* op, size_t i) { return 0; }
static int zero(const Op* op) { return 0; }
static int least(const Op* op) { return 1; }

static Any shape_of(Any value, int64_t* dims, size_t* rank) {
  Any info, failed;
  if ((failed = CALL(GetTensorTypeAndShape, Get)(value, &info))) return failed;
  failed = CALL(GetDimensionsCount, Get)(info, rank);
  if (!failed) failed = CALL(GetDimensions, Dims)(info, dims, *rank);
  CALL(ReleaseTensorTypeAndShapeInfo, Release)(info);
  return failed;
}

/* Scaled: x * factor, with the functions of before version 16. */
static Any create_scaled(const Op* op, Any given, Any info) {
  Kernel* kernel = &kernels[made++ % 64];
  Any failed = CALL(KernelInfoGetAttribute_float, Named)(info, "factor", &kernel->factor);
  if (failed) { CALL(ReleaseStatus, Release)(failed); kernel->factor = 2; }
  return kernel;
}
static void compute_scaled(Any self, Any context) {
  Any x, y; int64_t dims[8]; size_t rank, count = 1; float *from, *to;
  CALL(KernelContext_GetInput, GetAt)(context, 0, &x);
  shape_of(x, dims, &rank);
  CALL(KernelContext_GetOutput, Output)(context, 0, dims, rank, &y);
  CALL(GetTensorMutableData, Get)(x, &from);
  CALL(GetTensorMutableData, Get)(y, &to);
  for (size_t i = 0; i < rank; i++) count *= dims[i];
  for (size_t i = 0; i < count; i++) to[i] = from[i] * ((Kernel*)self)->factor;
}
static void nothing(Any self) {}
static Op scaled = {11, create_scaled, name_of, no_provider, input_type, input_count, output_type, one, compute_scaled,
  nothing, required, required, .name = "Scaled", .inputs = {1}, .outputs = {1}, .input_count = 1};

static Any create_plain(const Op* op, Any given, Any info, Any* kernel) {
  float unused;
  *kernel = NULL;
  if (!CALL(KernelInfoGetAttribute_float, Named)(info, "refused", &unused))
    return CALL(CreateStatus, Status)(2, "the attribute refused is not to be there");
  *kernel = (Any)op;
  return NULL;
}

/* Shaped: the elements of the first input in the shape that the second one holds, of any rank. */
static Any compute_shaped(Any self, Any context) {
  Any x, shape, y, failed; int64_t dims[8], *wanted; size_t rank, count = 1, asked = 1; float *from, *to;
  CALL(KernelContext_GetInput, GetAt)(context, 0, &x);
  CALL(KernelContext_GetInput, GetAt)(context, 1, &shape);
  shape_of(x, dims, &rank);
  for (size_t i = 0; i < rank; i++) count *= dims[i];
  shape_of(shape, dims, &rank);
  CALL(GetTensorMutableData, Get)(shape, &wanted);
  for (int64_t i = 0; i < dims[0]; i++) asked *= wanted[i];
  if (asked != count) return CALL(CreateStatus, Status)(2, "the sizes do not fit");
  if ((failed = CALL(KernelContext_GetOutput, Output)(context, 0, wanted, dims[0], &y))) return failed;
  CALL(GetTensorMutableData, Get)(x, &from);
  CALL(GetTensorMutableData, Get)(y, &to);
  memcpy(to, from, count * sizeof(float));
  return NULL;
}
#define NEW .GetName = name_of, .GetExecutionProviderType = no_provider, .GetInputType = input_type, \
  .GetInputTypeCount = input_count, .GetOutputType = output_type, .GetOutputTypeCount = one, .KernelDestroy = nothing, \
  .GetInputCharacteristic = characteristic, .GetOutputCharacteristic = required, .GetVariadicInputMinArity = least, \
  .GetVariadicInputHomogeneity = zero, .GetVariadicOutputMinArity = least, .GetVariadicOutputHomogeneity = zero, \
  .CreateKernelV2 = create_plain
static Op shaped = {18, NEW, .KernelComputeV2 = compute_shaped, .name = "Shaped", .inputs = {1, 7}, .outputs = {1},
  .input_count = 2};

/* Kinds: the element types of any number of inputs of any types, 0 for one that is absent. */
static Any compute_kinds(Any self, Any context) {
  Any value, y, info; size_t count; int64_t dims[1], *to; int kind;
  CALL(KernelContext_GetInputCount, Get)(context, &count);
  dims[0] = count;
  CALL(KernelContext_GetOutput, Output)(context, 0, dims, 1, &y);
  CALL(GetTensorMutableData, Get)(y, &to);
  for (size_t i = 0; i < count; i++) {
    CALL(KernelContext_GetInput, GetAt)(context, i, &value);
    to[i] = 0;
    if (!value) continue;
    CALL(GetTensorTypeAndShape, Get)(value, &info);
    CALL(GetTensorElementType, Get)(info, &kind);
    CALL(ReleaseTensorTypeAndShapeInfo, Release)(info);
    to[i] = kind;
  }
  return NULL;
}
static Any infer_kinds(const Op* op, Any context) {
  Any info, failed; size_t count; int64_t dims[1];
  CALL(ShapeInferContext_GetInputCount, Get)(context, &count);
  dims[0] = count;
  CALL(CreateTensorTypeAndShapeInfo, Any (*)(Any))(&info);
  CALL(SetDimensions, Any (*)(Any, const int64_t*, size_t))(info, dims, 1);
  CALL(SetTensorElementType, Any (*)(Any, int))(info, 7);
  failed = CALL(ShapeInferContext_SetOutputTypeShape, Any (*)(Any, size_t, Any))(context, 0, info);
  CALL(ReleaseTensorTypeAndShapeInfo, Release)(info);
  return failed;
}
static Op kinds = {18, NEW, .KernelComputeV2 = compute_kinds, .InferOutputShapeFn = infer_kinds, .name = "Kinds",
  .inputs = {0}, .outputs = {7}, .input_count = 1, .characteristic = 2};

/* Absent: a function that is not here, or the second input where a pointer is asked for. */
static Any compute_absent(Any self, Any context) {
  return CALL(CreateSession, Any (*)(Any, Any, Any, Any))(NULL, NULL, NULL, NULL);
}
static Op absent = {18, NEW, .KernelComputeV2 = compute_absent, .name = "Absent", .inputs = {1}, .outputs = {1},
  .input_count = 1};

/* Wild: calls with pointers that are none. */
static Any compute_wild(Any self, Any context) {
  Any value;
  return CALL(KernelContext_GetInput, GetAt)((Any)12345, 0, &value);
}
static Op wild = {18, NEW, .KernelComputeV2 = compute_wild, .name = "Wild", .inputs = {1}, .outputs = {1},
  .input_count = 1};

Any RegisterCustomOps(Any options, const ApiBase* base) {
  Op* ops[] = {&scaled, &shaped, &kinds, &absent, &wild};
  Any domain, failed;
  api = base->GetApi(VERSION);
  if (!api) { /* so that there is a status to give */
    api = base->GetApi(1);
    return CALL(CreateStatus, Status)(1, "the interface is too old");
  }
  if ((failed = CALL(CreateCustomOpDomain, Any (*)(const char*, Any))("test.library", &domain))) return failed;
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if ((failed = CALL(CustomOpDomain_Add, Get)(domain, ops[i]))) return failed;
  return CALL(AddCustomOpDomain, Get)(options, domain);
}
