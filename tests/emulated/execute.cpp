// SPDX-License-Identifier: Apache-2.0
// One seed's run: memory, ranks as threads, launches, and what the reference makes of it. Also
// the functions of reference.h.
#include "state.h"

#include <cstdlib>
#include <cstring>
#include <thread>

namespace harness {

// Apiece and exact, so that redzones lie right behind; poisoned like fresh device memory.
static void *allocate(size_t bytes) {
    void *p = nullptr;
    require(posix_memalign(&p, 256, bytes ? bytes : 1) == 0, "no memory");
    std::memset(p, 0xff, bytes);
    return p;
}

static const unsigned char *initial_of(const Argument &a, int rank) {
    const size_t from = a.is_per_rank ? static_cast<size_t>(rank) : 0;
    require(from < a.initial.size() && a.initial[from].size() == a.bytes(),
            "%s: not filled, or before its shape was known", a.name.c_str());
    return a.initial[from].data();
}

static void *fill(const Argument &a, int rank) {
    void *p = allocate(a.bytes());
    if (a.is_late)
        return p;
    if (a.zeroed)
        std::memset(p, 0, a.bytes());
    else if (!a.initial.empty())
        std::memcpy(p, initial_of(a, rank), a.bytes());
    else
        require(a.role != Role::in && a.role != Role::inout, "%s is read and was never filled",
                a.name.c_str());
    return p;
}

struct Box {
    Mailbox mailbox;
    u32 epoch[4];
    alignas(16) u32 abort[8];
    u64 fault[4];
    u8 *region;
};

// Every rank's mailbox, its regions full of sentinels, each knowing all the others.
static void make_mailboxes(Kernel::State &s) {
    const size_t ranks = static_cast<size_t>(s.ranks);
    std::vector<Box *> boxes;
    for (size_t r = 0; r < ranks; r++) {
        Box *box = static_cast<Box *>(allocate(sizeof(Box)));
        std::memset(box, 0, sizeof *box);
        for (int i = 1; i < 4; i++) // what is left of an older record
            box->fault[i] = 0x5a5a5a5a;
        box->region = static_cast<u8 *>(allocate(3 * ranks * s.mailbox_bytes));
        boxes.push_back(box);
        s.mailbox_memory.push_back(box->region);
    }
    for (size_t r = 0; r < ranks; r++) {
        Mailbox &m = boxes[r]->mailbox;
        m.rank = static_cast<u32>(r);
        m.world = static_cast<u32>(ranks);
        m.exchange = 7;
        m.slot_bytes = s.mailbox_bytes;
        m.timeout_ns = s.mailbox_timeout;
        m.epoch = boxes[r]->epoch;
        m.abort = boxes[r]->abort;
        m.fault = boxes[r]->fault;
        for (size_t peer = 0; peer < ranks; peer++) {
            m.base[peer] = boxes[peer]->region;
            m.peer_abort[peer] = boxes[peer]->abort;
        }
        for (size_t i = 0; i < s.arguments.size(); i++)
            if (s.arguments[i]->role == Role::mailbox)
                s.memory[r][i] = boxes[r];
    }
}

static void allocate_all(Kernel::State &s) {
    const size_t ranks = static_cast<size_t>(s.ranks), n = s.arguments.size();
    s.memory.assign(ranks, std::vector<void *>(n, nullptr));
    s.before.assign(ranks, std::vector<std::vector<unsigned char>>(n));
    for (size_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < n; i++) {
            const Argument &a = *s.arguments[i];
            if (a.owner)
                s.memory[r][i] =
                    a.owner->state
                        ->memory[r][static_cast<size_t>(a.owner->state->index(a.owner_name))];
            else if (a.role != Role::null && a.role != Role::mailbox)
                s.memory[r][i] = fill(a, static_cast<int>(r));
        }
    if (s.mailbox_bytes)
        make_mailboxes(s);
}

// What an in or inout argument holds when its kernel starts. Of a stream, only single launches that
// write over their inputs need this before the run; the rest is read afterwards.
static void save_inputs(Kernel::State &s) {
    for (size_t r = 0; r < s.memory.size(); r++)
        for (size_t i = 0; i < s.arguments.size(); i++) {
            const Argument &a = *s.arguments[i];
            if (s.memory[r][i] == nullptr || a.role == Role::mailbox)
                continue;
            const auto *p = a.is_late ? initial_of(a, static_cast<int>(r))
                                      : static_cast<const unsigned char *>(s.memory[r][i]);
            s.before[r][i].assign(p, p + a.bytes());
        }
}

// Arguments that are late come from a launch of this.
struct Delivery {
    const unsigned char *from;
    unsigned char *to;
    size_t bytes;
};
__device__ static void deliver(const Delivery *list, const u32 *count) {
    grid_trigger();
    const size_t first = block_id() * block_threads() + thread_id();
    for (u32 i = 0; i < *count; i++)
        for (size_t at = first; at < list[i].bytes; at += grid_size() * block_threads())
            list[i].to[at] = list[i].from[at];
}

struct Deliveries {
    std::vector<Delivery> list;
    u32 count = 0;
    void *arguments[2] = {};
};

static std::unique_ptr<Deliveries> find_late(const Kernel::State &s, size_t rank) {
    auto d = std::make_unique<Deliveries>();
    for (size_t i = 0; i < s.arguments.size(); i++) {
        const Argument &a = *s.arguments[i];
        if (a.is_late)
            d->list.push_back({initial_of(a, static_cast<int>(rank)),
                               static_cast<unsigned char *>(s.memory[rank][i]), a.bytes()});
    }
    d->count = static_cast<u32>(d->list.size());
    d->arguments[0] = d->list.data();
    d->arguments[1] = &d->count;
    return d;
}

// Appends a grid behind those that are there.
static void add_grid(std::vector<lathe_emulator_grid> &grids, const char *name, void (*entry)(),
                     void *const *arguments, size_t count, const lathe_geometry &geometry) {
    const int index = static_cast<int>(grids.size());
    lathe_emulator_grid g = {};
    g.name = name;
    g.entry = entry;
    g.arguments = arguments;
    g.argument_count = static_cast<int>(count);
    g.geometry = geometry;
    g.geometry.early = geometry.early && index > 0;
    g.before[0] = index - 1;
    g.before_count = index > 0;
    grids.push_back(g);
}

struct Rank {
    const std::vector<Kernel *> &kernels;
    size_t rank;
};

// Which argument holds p; mailboxes are other ranks' too, and so nobody's.
static bool find_argument(void *context, const void *p, void **base, size_t *bytes) {
    const Rank &r = *static_cast<const Rank *>(context);
    for (Kernel *k : r.kernels)
        for (size_t i = 0; i < k->state->arguments.size(); i++) {
            const Argument &a = *k->state->arguments[i];
            void *memory = k->state->memory[r.rank][i];
            if (memory != p || a.role == Role::null || a.role == Role::mailbox)
                continue;
            *base = memory;
            *bytes = a.bytes();
            return true;
        }
    return false;
}

static std::string run_rank(const std::vector<Kernel *> &kernels, size_t rank, uint64_t seed) {
    std::vector<lathe_emulator_grid> grids;
    std::vector<std::unique_ptr<Deliveries>> deliveries;
    for (Kernel *k : kernels) {
        Kernel::State &s = *k->state;
        lathe_geometry geometry = s.geometry;
        deliveries.push_back(find_late(s, rank));
        Deliveries &d = *deliveries.back();
        if (d.count > 0) {
            lathe_geometry few = {};
            few.grid[0] = 4, few.grid[1] = few.grid[2] = 1, few.block = 32;
            add_grid(grids, "deliver", reinterpret_cast<void (*)()>(deliver), d.arguments, 2, few);
            geometry.early = !geometry.cooperative;
        }
        for (int i = 0; i < s.launches; i++)
            add_grid(grids, s.name.c_str(), s.entry, s.memory[rank].data(), s.arguments.size(),
                     geometry);
    }
    lathe_emulator *e = lathe_emulator_create(seed * 16 + rank);
    require(e != nullptr, "no memory");
    Rank context = {kernels, rank};
    lathe_emulator_set_find(e, find_argument, &context);
    const bool ok = lathe_emulator_run(e, grids.data(), static_cast<int>(grids.size()));
    const std::string message = ok ? "" : lathe_emulator_message(e);
    lathe_emulator_destroy(e);
    return message;
}

std::string execute(const std::vector<Kernel *> &kernels, uint64_t seed) {
    const size_t ranks = static_cast<size_t>(kernels[0]->state->ranks);
    for (Kernel *k : kernels) {
        require(static_cast<size_t>(k->state->ranks) == ranks, "all kernels of a run have as many "
                                                               "ranks");
        allocate_all(*k->state);
        save_inputs(*k->state);
    }
    std::vector<std::string> fault(ranks);
    std::vector<std::thread> threads;
    for (size_t r = 1; r < ranks; r++)
        threads.emplace_back([&, r] { fault[r] = run_rank(kernels, r, seed); });
    fault[0] = run_rank(kernels, 0, seed);
    for (std::thread &t : threads)
        t.join();
    for (size_t r = 0; r < ranks; r++)
        if (!fault[r].empty())
            return ranks > 1 ? "rank " + std::to_string(r) + ": " + fault[r] : fault[r];
    /* An input that another kernel of the run wrote is what it is now. */
    for (Kernel *k : kernels)
        for (size_t r = 0; r < ranks; r++)
            for (size_t i = 0; i < k->state->arguments.size(); i++) {
                const Argument &a = *k->state->arguments[i];
                if (a.owner && a.role == Role::in)
                    std::memcpy(k->state->before[r][i].data(), k->state->memory[r][i], a.bytes());
            }
    return "";
}

static bool is_written(const Argument &a) {
    return (a.role == Role::out || a.role == Role::inout) && !a.owner;
}

static std::string judge_argument(Kernel::State &s, const lathe_ref &ref, size_t rank, size_t i,
                                  bool first_seed) {
    const Argument &a = *s.arguments[i];
    const void *found = s.memory[rank][i];
    if (a.role == Role::workspace && a.zeroed) {
        for (size_t k = 0; k < a.bytes(); k++)
            if (static_cast<const unsigned char *>(found)[k] != 0)
                return "workspace " + a.name + " is not left zero";
        return "";
    }
    if (!is_written(a))
        return "";
    const std::vector<double> *expected = s.reference ? &ref.out[rank][i] : nullptr;
    if (expected) {
        const std::string wrong = compare(a, *expected, found);
        if (!wrong.empty())
            return wrong;
    }
    const size_t slot = rank * s.arguments.size() + i;
    if (first_seed) {
        s.first.resize(s.memory.size() * s.arguments.size());
        const auto *p = static_cast<const unsigned char *>(found);
        s.first[slot].assign(p, p + a.bytes());
        return "";
    }
    if (slot >= s.first.size() || s.first[slot].empty())
        return "";
    return compare_bits(a, expected, s.first[slot].data(), found);
}

std::string judge(Kernel &k, bool first_seed) {
    Kernel::State &s = *k.state;
    lathe_ref ref = {&s, {}, ""};
    ref.out.assign(s.memory.size(), std::vector<std::vector<double>>(s.arguments.size()));
    for (auto &rank : ref.out)
        for (size_t i = 0; i < s.arguments.size(); i++)
            if (is_written(*s.arguments[i]))
                rank[i].assign(static_cast<size_t>(s.arguments[i]->count()), LATHE_REF_UNSET);
    if (s.reference)
        s.reference(&ref);
    if (!ref.failure.empty())
        return "reference: " + ref.failure;
    for (size_t r = 0; r < s.memory.size(); r++)
        for (size_t i = 0; i < s.arguments.size(); i++) {
            const std::string wrong = judge_argument(s, ref, r, i, first_seed);
            if (!wrong.empty())
                return s.memory.size() > 1 ? "rank " + std::to_string(r) + ": " + wrong : wrong;
        }
    return "";
}

void Kernel::State::release() {
    for (auto &rank : memory)
        for (size_t i = 0; i < rank.size(); i++)
            if (!arguments[i]->owner)
                std::free(rank[i]);
    for (void *p : mailbox_memory)
        std::free(p);
    mailbox_memory.clear();
    memory.clear();
}

} // namespace harness

using harness::Argument;
using harness::Role;

static const Argument *bound(const lathe_ref *r, const char *name) {
    const Argument &a = r->state->find(name);
    return a.role == Role::null ? nullptr : &a;
}

extern "C" {

static double constant(const lathe_ref *r, const char *name, bool integer) {
    const auto found = r->state->constants.find(name);
    if (found == r->state->constants.end() || (integer && !found->second.second)) {
        const_cast<lathe_ref *>(r)->failure =
            std::string("no ") + (integer ? "integer" : "") + " constant " + name;
        return 0;
    }
    return found->second.first;
}
int64_t lathe_ref_int(const lathe_ref *r, const char *name) {
    return static_cast<int64_t>(constant(r, name, true));
}
double lathe_ref_real(const lathe_ref *r, const char *name) {
    return constant(r, name, false);
}
int lathe_ref_ranks(const lathe_ref *r) {
    return r->state->ranks;
}
bool lathe_ref_has(const lathe_ref *r, const char *name) {
    /* References are shared: one may ask for what another kernel alone takes, as in the checker. */
    for (const auto &argument : r->state->arguments)
        if (argument->name == name)
            return argument->role != Role::null;
    return false;
}
const void *lathe_ref_data(const lathe_ref *r, int rank, const char *name) {
    if (!bound(r, name))
        return nullptr;
    return r->state->before[static_cast<size_t>(rank)][static_cast<size_t>(r->state->index(name))]
        .data();
}
int64_t lathe_ref_dim(const lathe_ref *r, const char *name, int d) {
    const auto &shape = r->state->find(name).shape;
    return d >= 0 && static_cast<size_t>(d) < shape.size() ? shape[static_cast<size_t>(d)] : 1;
}
double *lathe_ref_out(lathe_ref *r, int rank, const char *name) {
    if (!bound(r, name))
        return nullptr;
    return r->out[static_cast<size_t>(rank)][static_cast<size_t>(r->state->index(name))].data();
}
const void *lathe_ref_observed(const lathe_ref *r, int rank, const char *name) {
    if (!bound(r, name))
        return nullptr;
    return r->state->memory[static_cast<size_t>(rank)][static_cast<size_t>(r->state->index(name))];
}
bool lathe_ref_flip(lathe_ref *, int, int64_t, double ulps) {
    return ulps <= 4;
}
bool lathe_ref_column(const lathe_ref *, int64_t) {
    return true;
}
double lathe_ref_jitter(const lathe_ref *, double product, uint64_t) {
    return product;
}
double lathe_ref_round(const lathe_ref *, double value) {
    return lathe_bf16_round(value);
}
void lathe_ref_parallel(lathe_ref *, int64_t n, void (*body)(void *, int64_t), void *context) {
    for (int64_t i = 0; i < n; i++)
        body(context, i);
}
void lathe_ref_fail(lathe_ref *r, const char *message) {
    r->failure = message;
}
}
