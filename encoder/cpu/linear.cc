#include "encoder/cpu/linear.h"

#include <algorithm>
#include <unordered_map>

namespace deepencoder::cpu {
namespace {

using dnnl::memory;

memory::data_type TypeOf(DType type) {
  return type == DType::kBf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

dnnl::primitive_attr Attributes(Epilogue epilogue) {
  dnnl::post_ops after;
  switch (epilogue) {
    case Epilogue::kNone:
      break;
    case Epilogue::kGelu:
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_gelu_erf, 0.0f, 0.0f);
      break;
    case Epilogue::kQuickGelu:
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_swish, 1.702f, 0.0f);
      break;
    case Epilogue::kAdd:
      after.append_sum(1.0f);
      break;
  }
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  // A slot's own scratchpad: the library's would belong to the thread that made the primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

}  // namespace

const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

Linear::Linear(const LinearSpec& spec, std::span<const int> rows, std::span<const float> weights,
               std::span<const float> bias, Arena& arena) {
  const dnnl::engine& engine = CpuEngine();
  const memory::dim depth = spec.depth, width = spec.width;
  weights_desc_ = memory::desc({depth, width}, TypeOf(spec.input), memory::format_tag::any);
  if (!bias.empty()) {
    bias_desc_ = memory::desc({1, width}, memory::data_type::f32, memory::format_tag::ab);
    bias_ = arena.AllocateArray<float>(bias.size());
    std::copy(bias.begin(), bias.end(), bias_);
  }
  // The largest product chooses the layout of the weights, the others take it.
  std::vector<int> descending(rows.begin(), rows.end());
  std::sort(descending.rbegin(), descending.rend());
  const dnnl::primitive_attr attributes = Attributes(spec.epilogue);
  for (const int count : descending) {
    if (products_.contains(count)) continue;
    const memory::desc in({count, depth}, TypeOf(spec.input), memory::format_tag::ab);
    const memory::desc out({count, width}, TypeOf(spec.output), memory::format_tag::ab);
    const dnnl::matmul::desc operation =
        bias.empty() ? dnnl::matmul::desc(in, weights_desc_, out)
                     : dnnl::matmul::desc(in, weights_desc_, bias_desc_, out);
    const dnnl::matmul::primitive_desc chosen(operation, attributes, engine);
    weights_desc_ = chosen.weights_desc();
    scratchpad_bytes_ = std::max(scratchpad_bytes_, chosen.scratchpad_desc().get_size());
    products_.emplace(count, Product{dnnl::matmul(chosen), in, out, chosen.scratchpad_desc()});
  }

  weights_ = arena.Allocate(weights_desc_.get_size());
  const memory::desc stored({depth, width}, memory::data_type::f32, memory::format_tag::ba);
  memory from(stored, engine,
              const_cast<float*>(weights.data()));  // oneDNN's memory knows no const
  memory to(weights_desc_, engine, weights_);
  dnnl::stream stream(engine);
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
}

void Linear::Run(LinearRunner& runner, int rows, const void* in, void* out) const {
  const Product& product = products_.at(rows);
  const dnnl::engine& engine = CpuEngine();
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, memory(product.in, engine, const_cast<void*>(in))},
      {DNNL_ARG_WEIGHTS, memory(weights_desc_, engine, weights_)},
      {DNNL_ARG_DST, memory(product.out, engine, out)},
      {DNNL_ARG_SCRATCHPAD, memory(product.scratchpad, engine, runner.scratchpad)},
  };
  if (bias_ != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(bias_desc_, engine, bias_));
  product.run.execute(runner.stream, arguments);
  runner.stream.wait();
}

}  // namespace deepencoder::cpu
