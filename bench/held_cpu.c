/* Makes a program believe that its CPU is a lesser one, whatever asks: onnxruntime, OpenVINO, LLVM.
 *
 *     cc -O2 -shared -fPIC -o held_cpu.so bench/held_cpu.c
 *     HELD_CPU=avx2 JITONNX_CACHE_DIR=$(mktemp -d) LD_PRELOAD=./held_cpu.so python -m bench.models DIR --threads 1
 *
 * HELD_CPU=avx2 leaves AVX2 and no more; HELD_CPU=vnni also AVX-512 with VNNI, as before there were AMX and bfloat16.
 *
 * Linux on x86-64 CPUs with CPUID faulting (cpuid_fault in /proc/cpuinfo; Intel's have it): the CPUID instruction becomes
 * a signal, and the handler answers it without what is hidden. A kernel cache of its own is needed, since ours remembers
 * what this CPU has. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012 }; /* of arch_prctl: 0 makes the instruction fault, 1 lets it answer */
static struct sigaction usual;
static int only_avx2;

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    if (info->si_code != SI_KERNEL || code[0] != 0x0f || code[1] != 0xa2) {
        sigaction(number, &usual, NULL); /* a fault of the program, which happens again and goes the usual way */
        return;
    }
    uint32_t leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
    syscall(SYS_arch_prctl, SET_CPUID, 1);
    __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(part));
    syscall(SYS_arch_prctl, SET_CPUID, 0);
    if (leaf == 7 && part == 0 && only_avx2) {
        b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31); /* AVX-512 */
        c &= ~(1u << 1 | 1u << 6 | 1u << 8 | 1u << 9 | 1u << 10 | 1u << 11 | 1u << 12 | 1u << 14); /* and GFNI, VAES */
        d &= ~(1u << 2 | 1u << 3 | 1u << 8);
    }
    if (leaf == 7 && part == 0)
        d &= ~(1u << 22 | 1u << 23 | 1u << 24 | 1u << 25); /* AMX, float16 */
    if (leaf == 7 && part == 1) {
        a &= ~(1u << 4 | 1u << 5 | 1u << 21 | 1u << 23); /* AVX-VNNI, bfloat16, AMX for float16, AVX-IFMA */
        d = 0;
    }
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
    static const char missing[] = "held_cpu.so: this CPU or kernel has no CPUID faulting\n";
    static const char unknown[] = "held_cpu.so: set HELD_CPU to avx2 or vnni\n";
    const char *held = getenv("HELD_CPU");
    if (held == NULL || (strcmp(held, "avx2") != 0 && strcmp(held, "vnni") != 0)) {
        (void)!write(2, unknown, sizeof unknown - 1);
        _exit(1);
    }
    only_avx2 = strcmp(held, "avx2") == 0;
    struct sigaction own = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &own, &usual);
    if (syscall(SYS_arch_prctl, SET_CPUID, 0) != 0) {
        (void)!write(2, missing, sizeof missing - 1);
        _exit(1);
    }
}
