// SPDX-License-Identifier: Apache-2.0
//
// Calls witness() from as many situations of C++ as the argument says.
#include "witness.h"

#include <algorithm>
#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#define NOINLINE __attribute__((noinline))
#define KEEP_FRAME __asm__ volatile("")

namespace
{

// Virtual calls, over two bases, where the call goes through a thunk.

struct Shape {
    virtual ~Shape() = default;
    virtual double area(unsigned long sequence, int depth) = 0;
};

struct Named {
    std::string name = "a name that is too long to be kept in place";
    virtual ~Named() = default;
    virtual size_t length(unsigned long sequence) = 0;
};

struct Square : Shape, Named {
    double area(unsigned long sequence, int depth) override;
    size_t length(unsigned long sequence) override
    {
        witness(sequence);
        return name.size();
    }
};

struct Circle : Shape {
    double area(unsigned long sequence, int depth) override
    {
        if (depth > 0)
            return Square().area(sequence, depth - 1) + 1;
        witness(sequence);
        return 3.14;
    }
};

NOINLINE double Square::area(unsigned long sequence, int depth)
{
    if (depth > 0)
        return Circle().area(sequence, depth - 1) + 1;
    witness(sequence);
    return 1;
}

void in_virtual_call(unsigned long sequence)
{
    std::vector<std::unique_ptr<Shape>> shapes;

    shapes.push_back(std::make_unique<Square>());
    shapes.push_back(std::make_unique<Circle>());
    shapes[sequence % 2]->area(sequence, sequence % 23);
}

void in_thunk(unsigned long sequence)
{
    std::unique_ptr<Named> named = std::make_unique<Square>();

    named->length(sequence);
}

void in_lambda(unsigned long sequence)
{
    auto inner = [sequence](int more) NOINLINE {
        witness(sequence);
        return more + 1;
    };
    auto outer = [&inner](auto value) NOINLINE { return inner(value) * 2; };

    outer(static_cast<int>(sequence));
    KEEP_FRAME;
}

void in_function_object(unsigned long sequence)
{
    std::function<int(int)> chain = [sequence](int depth) {
        witness(sequence);
        return depth;
    };

    for (unsigned long i = 0; i < sequence % 19; i++)
        chain = [chain](int depth) { return chain(depth + 1) + 1; };
    chain(0);
}

template <int DEPTH> struct Tower {
    template <typename Number> static NOINLINE Number climb(unsigned long sequence, Number number)
    {
        Number above = Tower<DEPTH - 1>::climb(sequence, number + 1);

        KEEP_FRAME;
        return above + number;
    }
};

template <> struct Tower<0> {
    template <typename Number> static NOINLINE Number climb(unsigned long sequence, Number number)
    {
        witness(sequence);
        return number;
    }
};

void in_templates(unsigned long sequence)
{
    if (sequence % 2 == 0)
        Tower<12>::climb(sequence, 1L);
    else
        Tower<7>::climb(sequence, 1.5);
}

void in_sort(unsigned long sequence)
{
    std::vector<std::string> words;
    bool is_reported = false;

    for (unsigned long i = 0; i < 2 + sequence % 60; i++)
        words.push_back(std::to_string(i * 7919 % 1000));
    std::sort(words.begin(), words.end(), [&](const std::string &left, const std::string &right) {
        if (!std::exchange(is_reported, true))
            witness(sequence);
        return left < right;
    });
}

// Exceptions.

struct Trouble : std::runtime_error {
    using std::runtime_error::runtime_error;
};

NOINLINE void throw_deep_down(int depth)
{
    std::string kept(100, 'x');

    if (depth == 0)
        throw Trouble("deep down");
    throw_deep_down(depth - 1);
    KEEP_FRAME;
}

void after_exception(unsigned long sequence)
{
    try {
        throw_deep_down(sequence % 15);
    } catch (const Trouble &) {
    }
    witness(sequence);
    KEEP_FRAME;
}

void in_catch(unsigned long sequence)
{
    try {
        throw_deep_down(sequence % 15);
    } catch (const std::exception &error) {
        witness(sequence + 0 * error.what()[0]);
    }
}

struct Reporter {
    unsigned long sequence;
    NOINLINE ~Reporter()
    {
        witness(sequence);
        KEEP_FRAME;
    }
};

NOINLINE void throw_past_reporter(unsigned long sequence)
{
    Reporter reporter{sequence};

    throw_deep_down(sequence % 5);
}

// The unwinder itself is under way.
void in_cleanup(unsigned long sequence)
{
    try {
        throw_past_reporter(sequence);
    } catch (const Trouble &) {
    }
}

NOINLINE void catch_and_throw_on(unsigned long sequence, int depth)
{
    try {
        if (depth == 0)
            throw_deep_down(2);
        else
            catch_and_throw_on(sequence, depth - 1);
    } catch (Trouble &) {
        if (depth > 0 && depth == static_cast<int>(sequence % 4))
            witness(sequence);
        throw;
    }
}

void in_rethrow(unsigned long sequence)
{
    try {
        catch_and_throw_on(sequence, 3);
    } catch (Trouble &) {
        if (sequence % 4 == 0)
            witness(sequence);
    }
}

// What the library calls.

void in_algorithm(unsigned long sequence)
{
    std::map<int, std::string> map{{1, "one"}, {2, "two"}, {3, "three"}};

    std::for_each(map.begin(), map.end(), [&](const auto &entry) {
        if (entry.first == 2)
            witness(sequence);
    });
}

struct Visitor {
    unsigned long sequence;
    NOINLINE void operator()(int) const
    {
        witness(sequence);
        KEEP_FRAME;
    }
    NOINLINE void operator()(const std::string &text) const
    {
        witness(sequence + 0 * text.size());
        KEEP_FRAME;
    }
};

void in_visit(unsigned long sequence)
{
    std::variant<int, std::string> value = 1;

    if (sequence % 2 == 0)
        value = "text";
    std::visit(Visitor{sequence}, value);
}

void in_thread(unsigned long sequence)
{
    std::thread thread([sequence](int depth) { in_virtual_call(sequence + 0 * depth); }, 3);

    thread.join();
}

struct Task {
    struct promise_type {
        Task get_return_object()
        {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() noexcept
        {
            return {};
        }
        std::suspend_always final_suspend() noexcept
        {
            return {};
        }
        void return_void()
        {
        }
        void unhandled_exception()
        {
            std::terminate();
        }
    };
    std::coroutine_handle<promise_type> handle;
};

Task wait_and_report(unsigned long sequence)
{
    std::string kept(100, 'y');

    co_await std::suspend_always();
    witness(sequence + 0 * kept.size());
    co_await std::suspend_always();
}

void in_coroutine(unsigned long sequence)
{
    Task task = wait_and_report(sequence);

    task.handle.resume();
    task.handle.resume();
    task.handle.destroy();
}

void (*const situations[])(unsigned long sequence) = {
    in_virtual_call, in_thunk,   in_lambda,  in_function_object, in_templates, in_sort,   after_exception,
    in_catch,        in_cleanup, in_rethrow, in_algorithm,       in_visit,     in_thread, in_coroutine,
};

// Every number comes another way, through four kinds of calls.
struct Leg {
    virtual ~Leg() = default;
    virtual void go_on(unsigned long sequence, unsigned long way);
};

struct KeepingLeg : Leg {
    void go_on(unsigned long sequence, unsigned long way) override
    {
        std::string kept(40 + way, 'z');

        Leg::go_on(sequence, way);
    }
};

void Leg::go_on(unsigned long sequence, unsigned long way)
{
    std::function<void()> more = [&] { Leg().go_on(sequence, way / 4); };

    if (way == 0)
        situations[sequence % std::size(situations)](sequence);
    else if (way % 4 == 0)
        more();
    else if (way % 4 == 1)
        std::make_unique<KeepingLeg>()->go_on(sequence, way / 4);
    else if (way % 4 == 2)
        std::for_each(&way, &way + 1, [&](unsigned long way) NOINLINE { go_on(sequence, way / 4); });
    else
        std::invoke(&Leg::go_on, this, sequence, way / 4);
}

} // namespace

int main(int argc, char **argv)
{
    unsigned long count = argc == 2 ? std::strtoul(argv[1], nullptr, 10) : 0;

    if (count == 0) {
        std::fprintf(stderr, "usage: %s COUNT\n", argv[0]);
        return 2;
    }
    witness_start();
    for (unsigned long i = 0; i < count; i++)
        Leg().go_on(i, i);
    witness_finish();
    return 0;
}
