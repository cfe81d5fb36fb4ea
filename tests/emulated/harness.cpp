// SPDX-License-Identifier: Apache-2.0
// Describing a kernel to the harness, and its verdicts. See harness.h.
#include "state.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace harness {

static int passed;

void require(bool holds, const char *format, ...) {
    if (holds)
        return;
    std::fputs("FAILED: ", stderr);
    va_list list;
    va_start(list, format);
    std::vfprintf(stderr, format, list);
    va_end(list);
    std::fputc('\n', stderr);
    std::exit(1);
}

int finish(const char *what) {
    std::printf("%s: %d runs passed\n", what, passed);
    return passed > 0 ? 0 : 1;
}

Kernel::Kernel(const char *name, void (*entry)(), std::vector<Parameter> parameters,
               void (*reference)(lathe_ref *))
    : state(new State) {
    state->name = name;
    state->entry = entry;
    state->parameters = std::move(parameters);
    state->reference = reference;
    if (const char *seeds = std::getenv("LATHE_SEEDS"))
        state->seeds = std::max(1, std::atoi(seeds));
}
Kernel::~Kernel() {
    state->release();
}

void Kernel::lathe_emulator_bind_to_harness(unsigned int (*bind)(const lathe_emulator_table *)) {
    require(bind(lathe_emulator_interface()) == LATHE_EMULATOR_VERSION, "another emulator's prims");
}

int Kernel::State::index(const std::string &argument) const {
    for (size_t i = 0; i < arguments.size(); i++)
        if (arguments[i]->name == argument)
            return static_cast<int>(i);
    require(false, "%s has no argument %s", name.c_str(), argument.c_str());
    return -1;
}

Argument &Kernel::State::find(const std::string &argument) {
    return *arguments[static_cast<size_t>(index(argument))];
}

Argument &Kernel::State::add(const char *argument, Role role, std::vector<int64_t> shape) {
    const size_t i = arguments.size();
    require(i < parameters.size(), "%s: argument %s is one too many", name.c_str(), argument);
    require((role != Role::in) || parameters[i].is_const, "%s: %s is `in`, its parameter not const",
            name.c_str(), argument);
    require((role != Role::out && role != Role::inout) || !parameters[i].is_const,
            "%s: %s is written, its parameter const", name.c_str(), argument);
    auto a = std::make_unique<Argument>();
    a->name = argument;
    a->type = parameters[i].type;
    a->role = role;
    a->shape = std::move(shape);
    a->salt = i + 1;
    arguments.push_back(std::move(a));
    return *arguments.back();
}

void Kernel::constant(const char *name, double value, bool is_integer) {
    state->constants[name] = {value, is_integer};
}
Argument &Kernel::in(const char *name, std::vector<int64_t> shape) {
    return state->add(name, Role::in, std::move(shape));
}
Argument &Kernel::out(const char *name, std::vector<int64_t> shape) {
    return state->add(name, Role::out, std::move(shape));
}
Argument &Kernel::inout(const char *name, std::vector<int64_t> shape) {
    return state->add(name, Role::inout, std::move(shape));
}
Argument &Kernel::workspace(const char *name, std::vector<int64_t> shape, bool zeroed) {
    Argument &a = state->add(name, Role::workspace, std::move(shape));
    a.zeroed = zeroed;
    return a;
}
Argument &Kernel::same_as(const char *name, Kernel &other, const char *other_name) {
    const Argument &owner = other.state->find(other_name);
    const size_t i = state->arguments.size();
    require(i < state->parameters.size(), "%s: argument %s is one too many", state->name.c_str(),
            name);
    const Role role = owner.role == Role::mailbox     ? Role::mailbox
                      : state->parameters[i].is_const ? Role::in
                                                      : Role::inout;
    Argument &a = state->add(name, role, owner.shape);
    a.owner = &other;
    a.owner_name = other_name;
    return a;
}
void Kernel::null(const char *name) {
    state->add(name, Role::null, {});
}
void Kernel::mailbox(const char *name, uint64_t bytes, uint64_t timeout_ns) {
    state->add(name, Role::mailbox, {});
    state->mailbox_bytes = (bytes + 15) / 16 * 16;
    state->mailbox_timeout = timeout_ns;
}

void Kernel::launch(std::vector<uint32_t> grid, uint32_t threads, uint32_t shared_bytes) {
    grid.resize(3, 1);
    for (size_t i = 0; i < 3; i++)
        state->geometry.grid[i] = grid[i];
    state->geometry.block = threads;
    state->geometry.shared_bytes = shared_bytes;
}
void Kernel::cluster(unsigned blocks) {
    state->geometry.cluster = blocks;
}
void Kernel::cooperative() {
    state->geometry.cooperative = true;
}
void Kernel::early() {
    state->geometry.early = true;
}
void Kernel::ahead(const char *name) {
    for (size_t i = 0; i < state->arguments.size(); i++)
        if (state->arguments[i]->name == name)
            state->geometry.ahead |= uint64_t{1} << i;
    require(state->geometry.ahead != 0, "no argument %s", name);
}
void Kernel::repeat(int launches) {
    state->launches = launches;
}
void Kernel::ranks(int count) {
    state->ranks = count;
}
void Kernel::seeds(int count) {
    state->seeds = count;
}
void Kernel::allow(const char *name, double tolerance, const char *reason) {
    require(reason != nullptr && *reason, "%s: a tolerance needs its reason", name);
    state->find(name).tolerance = tolerance;
    state->find(name).reason = reason;
}
void Kernel::fails(const char *text) {
    state->expected_fault = text;
}
void Kernel::any_seed_differs() {
    state->wants_difference = true;
}
void Kernel::run() {
    harness::run({this});
}
const void *Kernel::result(const char *name, int rank) const {
    return state->memory[static_cast<size_t>(rank)][static_cast<size_t>(state->index(name))];
}

int64_t Argument::count() const {
    int64_t n = 1;
    for (int64_t d : shape)
        n *= d;
    return n;
}
size_t Argument::bytes() const {
    return static_cast<size_t>(count()) * static_cast<size_t>(element_bytes(type));
}
Argument &Argument::per_rank() {
    is_per_rank = true;
    return *this;
}

Argument &Argument::late() {
    is_late = true;
    return *this;
}

Argument &Argument::each(const std::function<double(int, int64_t)> &value) {
    initial.clear();
    const int ranks = is_per_rank ? 16 : 1;
    for (int rank = 0; rank < ranks; rank++) {
        initial.emplace_back(bytes());
        for (int64_t i = 0; i < count(); i++)
            set_element(type, initial.back().data(), i, value(rank, i));
    }
    return *this;
}

// Splitmix: any (salt, rank, index) has its own number.
static double unit(uint64_t salt, int rank, int64_t index, uint64_t which) {
    uint64_t z = salt * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(index) * 4 + which +
                 (static_cast<uint64_t>(rank) << 48);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return (static_cast<double>(z >> 11) + 0.5) * 0x1p-53;
}

Argument &Argument::normal(double mean, double deviation) {
    return each([this, mean, deviation](int rank, int64_t i) {
        const double u = unit(salt, rank, i, 0), v = unit(salt, rank, i, 1);
        return mean + deviation * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
    });
}
Argument &Argument::uniform(double low, double high) {
    return each([this, low, high](int rank, int64_t i) {
        return low + (high - low) * unit(salt, rank, i, 0);
    });
}
Argument &Argument::integers(int64_t low, int64_t high) {
    return each([this, low, high](int rank, int64_t i) {
        return static_cast<double>(low) +
               std::floor(static_cast<double>(high - low + 1) * unit(salt, rank, i, 0));
    });
}
Argument &Argument::fill(double value) {
    return each([value](int, int64_t) { return value; });
}
Argument &Argument::raw(const void *data) {
    const auto *p = static_cast<const unsigned char *>(data);
    initial = {std::vector<unsigned char>(p, p + bytes())};
    return *this;
}

static std::string judge_all(const std::vector<Kernel *> &kernels, bool first_seed) {
    for (Kernel *k : kernels) {
        const std::string wrong = judge(*k, first_seed);
        if (!wrong.empty())
            return k->state->name + ": " + wrong;
    }
    return "";
}

// Whether a run's outcome is what was asked for, were it any seed's.
static void accept(const Kernel::State &s, int seed, const std::string &fault,
                   const std::string &wrong) {
    if (!s.expected_fault.empty()) {
        require(fault.find(s.expected_fault) != std::string::npos,
                "%s, seed %d: wanted a fault with \"%s\", found: %s", s.name.c_str(), seed,
                s.expected_fault.c_str(), fault.empty() ? "none" : fault.c_str());
    } else if (!s.wants_difference) {
        require(fault.empty(), "%s, seed %d: %s", s.name.c_str(), seed, fault.c_str());
        require(wrong.empty(), "seed %d: %s", seed, wrong.c_str());
    }
}

// Threads have one schedule, the machine's, and no faults of their own.
static bool left_to_fibres(Kernel::State &s) {
#ifdef LATHE_EMULATOR_THREADS
    s.seeds = 1;
    return !s.expected_fault.empty() || s.wants_difference;
#else
    (void)s;
    return false;
#endif
}

void run(const std::vector<Kernel *> &kernels) {
    Kernel::State &s = *kernels[0]->state;
    bool differs = false;
    for (Kernel *k : kernels)
        require(k->state->arguments.size() == k->state->parameters.size(),
                "%s: %zu arguments for %zu parameters", k->state->name.c_str(),
                k->state->arguments.size(), k->state->parameters.size());
    if (left_to_fibres(s))
        return;
    for (int seed = 1; seed <= s.seeds; seed++) {
        for (Kernel *k : kernels)
            k->state->release();
        const std::string fault = execute(kernels, static_cast<uint64_t>(seed));
        const std::string wrong = fault.empty() ? judge_all(kernels, seed == 1) : "";
        differs = differs || !fault.empty() || !wrong.empty();
        accept(s, seed, fault, wrong);
        passed++;
    }
    require(!s.wants_difference || differs, "%s: no seed of %d shows the mutation", s.name.c_str(),
            s.seeds);
}

} // namespace harness
