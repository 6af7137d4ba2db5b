/* The NVIDIA driver of the tests: a libnvidia-ml.so.1 that pynvml loads, played from a text file.
 *
 * The file is `nvml.script` beside the library, read again at every call: replace it by renaming. A line is
 * a key and its words. Lines before the first card are the driver's, those below a `card` or an `instance`
 * are its own. What the file does not say, the driver does not support; -1 stands for the all ones by which
 * NVML says "not available".
 *
 *   session N             The driver is loaded; without this line it is not. Another N than at nvmlInit: it
 *                         went and came back, and the library has to be shut down and initialised again.
 *   driver TEXT           Its version.
 *   cuda N                13000 is 13.0.
 *   on CALL error N       CALL answers N (NVML_ERROR_...). CALL is a name without its _v2 or _v3, or *.
 *   on CALL delay MS      It answers late.
 *   on CALL hang          It writes its name to the FIFO `arrived`, then waits for the lock on `gate`.
 *   card UUID             A card, in the driver's order. As in the real library, nvmlInit counts the cards:
 *                         one that left the file since then is lost, one that came is not seen.
 *     name TEXT
 *     memory TOTAL FREE USED RESERVED
 *     temperature CELSIUS
 *     power MILLIWATTS
 *     energy MILLIJOULES
 *     utilisation GPU MEMORY
 *     mig MODE SLOTS      MODE 1 is on; there may be SLOTS instances.
 *     process KIND PID BYTES GI CI        KIND is compute or graphics; GI and CI are -1 on a whole card.
 *     sample PID MICROSECONDS SM          What a process used of the card at that time, in percent.
 *     on ...              As above, for calls about this card or instance alone.
 *   instance CARD SLOT UUID               An instance of a card, with lines of its own below, and
 *     ids GI CI
 *
 * With -DR470 the functions are missing that a driver of that age does not have.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, VERSION_MISMATCH = 25
};

typedef unsigned int u32;
typedef unsigned long long u64;

/* What a handle points to: a card or an instance. Never freed: callers may keep handles for ever. */
typedef struct unit {
    struct unit *next;
    long session;
    char uuid[128];
} unit;

typedef struct { u64 total, free, used; } memory_v1;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2;
typedef struct { u32 version, sensor; int celsius; } temperature_v1;
typedef struct { u32 gpu, memory; } utilisation_v1;
typedef struct { u32 pid; u64 bytes; u32 gpu_instance, compute_instance; } process_v2;
typedef struct { u32 pid; u64 time; u32 sm, memory, encoder, decoder; } sample_v1;

/* For the test that holds these layouts against pynvml's. */
const size_t stub_sizes[] = {sizeof(memory_v1),      sizeof(memory_v2),  sizeof(temperature_v1),
                             sizeof(utilisation_v1), sizeof(process_v2), sizeof(sample_v1)};

#define WORDS 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unit *units;
static char *at_init;
static long session;
static int users;

/* ---- the script ---- */

static void beside(const char *name, char *path, size_t room) {
    Dl_info me;
    dladdr((void *)&lock, &me);
    const char *slash = strrchr(me.dli_fname, '/');
    snprintf(path, room, "%.*s%s", slash ? (int)(slash - me.dli_fname + 1) : 0, me.dli_fname, name);
}

static char *script(void) {
    char path[4096];
    size_t room = 1 << 18, length = 0;
    char *text = malloc(room + 1);
    beside("nvml.script", path, sizeof path);
    FILE *file = fopen(path, "rb");
    if (file) {
        length = fread(text, 1, room, file);
        fclose(file);
    }
    text[length] = 0;
    return text;
}

/* Where a search of the script has come to, and in whose lines. */
typedef struct {
    const char *text;
    char section[WORDS];
} search;

/* The words of the next line with a key: of the driver (""), of a card or instance, or of any (NULL). */
static int next(search *at, const char *uuid, const char *key, char words[WORDS]) {
    char line[WORDS], name[WORDS];
    while (*at->text) {
        size_t length = strcspn(at->text, "\n");
        int rest = 0;
        snprintf(line, sizeof line, "%.*s", (int)length, at->text);
        at->text += length + (at->text[length] == '\n');
        if (sscanf(line, "%s %n", name, &rest) != 1)
            continue;
        if (!strcmp(name, "card"))
            sscanf(line + rest, "%s", at->section);
        if (!strcmp(name, "instance"))
            sscanf(line + rest, "%*s %*s %s", at->section);
        if ((!uuid || !strcmp(at->section, uuid)) && !strcmp(name, key)) {
            strcpy(words, line + rest);
            return 1;
        }
    }
    return 0;
}

static int look(const char *text, const char *uuid, const char *key, char words[WORDS]) {
    return next(&(search){text, ""}, uuid, key, words);
}

static int is_there(const char *text, const char *uuid) {
    char words[WORDS];
    for (search at = {text, ""}; next(&at, NULL, "card", words);)
        if (!strcmp(at.section, uuid))
            return 1;
    for (search at = {text, ""}; next(&at, NULL, "instance", words);)
        if (!strcmp(at.section, uuid))
            return 1;
    return 0;
}

/* ---- what happens to a call ---- */

static void hang(const char *call) {
    char path[4096];
    beside("arrived", path, sizeof path);
    int arrived = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (arrived >= 0) {
        dprintf(arrived, "%s\n", call);
        close(arrived);
    }
    beside("gate", path, sizeof path);
    int gate = open(path, O_RDONLY | O_CLOEXEC);
    if (gate >= 0) {
        flock(gate, LOCK_SH);
        close(gate);
    }
}

static int ruled(const char *text, const char *uuid, const char *call) {
    char words[WORDS], named[WORDS], action[WORDS];
    for (search at = {text, ""}; next(&at, uuid, "on", words);) {
        long number = 0;
        if (sscanf(words, "%s %s %ld", named, action, &number) < 2)
            continue;
        if (strcmp(named, "*") && strcmp(named, call))
            continue;
        if (!strcmp(action, "hang"))
            hang(call);
        else if (!strcmp(action, "delay"))
            nanosleep(&(struct timespec){number / 1000, number % 1000 * 1000000}, NULL);
        else
            return (int)number;
    }
    return OK;
}

/* Every call but nvmlInit begins here. The caller frees the text, whatever the answer. */
static int enter(const char *call, const unit *about, char **text) {
    char words[WORDS];
    *text = script();
    int answer = ruled(*text, "", call);
    if (answer == OK && about)
        answer = ruled(*text, about->uuid, call);
    if (answer != OK)
        return answer;
    if (!look(*text, "", "session", words))
        return DRIVER_NOT_LOADED;
    pthread_mutex_lock(&lock);
    if (!users || atol(words) != session)
        answer = UNINITIALIZED;
    else if (about && about->session != session)
        answer = INVALID_ARGUMENT;
    else if (about && !is_there(*text, about->uuid))
        answer = GPU_IS_LOST;
    pthread_mutex_unlock(&lock);
    return answer;
}

static unit *handle(const char *uuid) {
    pthread_mutex_lock(&lock);
    unit *one = units;
    while (one && (one->session != session || strcmp(one->uuid, uuid)))
        one = one->next;
    if (!one) {
        one = calloc(1, sizeof *one);
        one->session = session;
        snprintf(one->uuid, sizeof one->uuid, "%s", uuid);
        one->next = units;
        units = one;
    }
    pthread_mutex_unlock(&lock);
    return one;
}

/* A text that the script gives, of the driver where no device is meant. */
static int text_of(const char *call, const unit *about, const char *key, char *out, u32 room) {
    char *text, words[WORDS];
    int answer = enter(call, about, &text);
    if (answer == OK && !look(text, about ? about->uuid : "", key, words))
        answer = NOT_SUPPORTED;
    if (answer == OK && strlen(words) >= room)
        answer = INSUFFICIENT_SIZE;
    if (answer == OK)
        strcpy(out, words);
    free(text);
    return answer;
}

/* Up to four numbers that the script gives under a key. */
static int numbers_of(const char *call, const unit *about, const char *key, u64 out[4]) {
    char words[WORDS];
    int answer = text_of(call, about, key, words, sizeof words);
    if (answer == OK && sscanf(words, "%llu %llu %llu %llu", &out[0], &out[1], &out[2], &out[3]) < 1)
        answer = NOT_SUPPORTED;
    return answer;
}

/* ---- the library's own functions ---- */

int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    char words[WORDS], *text = script();
    int answer = ruled(text, "", "nvmlInitWithFlags");
    if (answer == OK && !look(text, "", "session", words))
        answer = DRIVER_NOT_LOADED;
    pthread_mutex_lock(&lock);
    if (answer == OK && users++ == 0) {
        session = atol(words);
        free(at_init);
        at_init = text;
        text = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(text);
    return answer;
}

int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    int answer = users ? OK : UNINITIALIZED;
    users -= users > 0;
    pthread_mutex_unlock(&lock);
    return answer;
}

const char *nvmlErrorString(int code) {
    (void)code;
    return "an error of the tests' driver";
}

int nvmlSystemGetDriverVersion(char *out, u32 room) {
    return text_of("nvmlSystemGetDriverVersion", NULL, "driver", out, room);
}

int nvmlDeviceGetCount_v2(u32 *out) {
    char *text, words[WORDS];
    int answer = enter("nvmlDeviceGetCount", NULL, &text);
    pthread_mutex_lock(&lock);
    *out = 0;
    for (search at = {at_init, ""}; answer == OK && next(&at, NULL, "card", words);)
        ++*out;
    pthread_mutex_unlock(&lock);
    free(text);
    return answer;
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, unit **out) {
    char *text, words[WORDS], uuid[WORDS] = "";
    int answer = enter("nvmlDeviceGetHandleByIndex", NULL, &text);
    pthread_mutex_lock(&lock);
    for (search at = {at_init, ""}; answer == OK && !*uuid && next(&at, NULL, "card", words);)
        if (index-- == 0)
            strcpy(uuid, at.section);
    pthread_mutex_unlock(&lock);
    if (answer == OK && !*uuid)
        answer = INVALID_ARGUMENT;
    if (answer == OK)
        answer = is_there(text, uuid) ? ruled(text, uuid, "nvmlDeviceGetHandleByIndex") : GPU_IS_LOST;
    if (answer == OK)
        *out = handle(uuid);
    free(text);
    return answer;
}

int nvmlDeviceGetUUID(unit *device, char *out, u32 room) {
    char *text;
    int answer = enter("nvmlDeviceGetUUID", device, &text);
    free(text);
    if (answer == OK && strlen(device->uuid) >= room)
        answer = INSUFFICIENT_SIZE;
    if (answer == OK)
        strcpy(out, device->uuid);
    return answer;
}

/* A function that gives one number: the nth of those below a key. */
#define NUMBER(name, call, key, nth, type)                       \
    int name(unit *device, type *out) {                          \
        u64 numbers[4] = {0};                                    \
        int answer = numbers_of(call, device, key, numbers);     \
        if (answer == OK)                                        \
            *out = (type)numbers[nth];                           \
        return answer;                                           \
    }

NUMBER(nvmlDeviceGetPowerUsage, "nvmlDeviceGetPowerUsage", "power", 0, u32)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, "nvmlDeviceGetTotalEnergyConsumption", "energy", 0, u64)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "nvmlDeviceGetMaxMigDeviceCount", "mig", 1, u32)
NUMBER(nvmlDeviceGetGpuInstanceId, "nvmlDeviceGetGpuInstanceId", "ids", 0, u32)
NUMBER(nvmlDeviceGetComputeInstanceId, "nvmlDeviceGetComputeInstanceId", "ids", 1, u32)
static NUMBER(cuda_version, "nvmlSystemGetCudaDriverVersion", "cuda", 0, int)

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    return cuda_version(NULL, out);
}

int nvmlDeviceGetName(unit *device, char *out, u32 room) {
    return text_of("nvmlDeviceGetName", device, "name", out, room);
}

int nvmlDeviceGetMemoryInfo(unit *device, memory_v1 *out) {
    u64 numbers[4] = {0};
    int answer = numbers_of("nvmlDeviceGetMemoryInfo", device, "memory", numbers);
    /* The first version counts what the driver keeps for itself as used. */
    if (answer == OK)
        *out = (memory_v1){numbers[0], numbers[1], numbers[2] + numbers[3]};
    return answer;
}

int nvmlDeviceGetUtilizationRates(unit *device, utilisation_v1 *out) {
    u64 numbers[4] = {0};
    int answer = numbers_of("nvmlDeviceGetUtilizationRates", device, "utilisation", numbers);
    if (answer == OK)
        *out = (utilisation_v1){(u32)numbers[0], (u32)numbers[1]};
    return answer;
}

int nvmlDeviceGetTemperature(unit *device, u32 sensor, u32 *out) {
    u64 numbers[4];
    int answer = numbers_of("nvmlDeviceGetTemperature", device, "temperature", numbers);
    if (answer == OK && sensor != 0)
        answer = INVALID_ARGUMENT;
    if (answer == OK)
        *out = (u32)numbers[0];
    return answer;
}

int nvmlDeviceGetMigMode(unit *device, u32 *current, u32 *pending) {
    u64 numbers[4];
    int answer = numbers_of("nvmlDeviceGetMigMode", device, "mig", numbers);
    if (answer == OK)
        *current = *pending = (u32)numbers[0];
    return answer;
}

int nvmlDeviceGetMigDeviceHandleByIndex(unit *device, u32 slot, unit **out) {
    char *text, words[WORDS], card[WORDS], uuid[WORDS];
    u32 own;
    int answer = enter("nvmlDeviceGetMigDeviceHandleByIndex", device, &text), found = 0;
    for (search at = {text, ""}; answer == OK && !found && next(&at, NULL, "instance", words);)
        found = sscanf(words, "%s %u %s", card, &own, uuid) == 3 && own == slot
                && !strcmp(card, device->uuid);
    if (answer == OK)
        answer = found ? ruled(text, uuid, "nvmlDeviceGetMigDeviceHandleByIndex") : NOT_FOUND;
    if (answer == OK)
        *out = handle(uuid);
    free(text);
    return answer;
}

static int processes(const char *call, const char *kind, unit *device, u32 *count, process_v2 *out) {
    char *text, words[WORDS], own[WORDS];
    u32 found = 0;
    int answer = enter(call, device, &text);
    for (search at = {text, ""}; answer == OK && next(&at, device->uuid, "process", words);) {
        process_v2 one;
        int given = sscanf(words, "%s %u %llu %u %u", own, &one.pid, &one.bytes, &one.gpu_instance,
                           &one.compute_instance);
        if (given != 5 || strcmp(own, kind))
            continue;
        if (found < *count && out)
            out[found] = one;
        found++;
    }
    free(text);
    if (answer == OK) {
        answer = found > *count || (found && !out) ? INSUFFICIENT_SIZE : OK;
        *count = found;
    }
    return answer;
}

int nvmlDeviceGetComputeRunningProcesses_v2(unit *device, u32 *count, process_v2 *out) {
    return processes("nvmlDeviceGetComputeRunningProcesses", "compute", device, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(unit *device, u32 *count, process_v2 *out) {
    return processes("nvmlDeviceGetGraphicsRunningProcesses", "graphics", device, count, out);
}

int nvmlDeviceGetProcessUtilization(unit *device, sample_v1 *out, u32 *count, u64 since) {
    char *text, words[WORDS];
    u32 found = 0;
    int answer = enter("nvmlDeviceGetProcessUtilization", device, &text);
    for (search at = {text, ""}; answer == OK && next(&at, device->uuid, "sample", words);) {
        sample_v1 one = {0};
        if (sscanf(words, "%u %llu %u", &one.pid, &one.time, &one.sm) != 3 || one.time <= since)
            continue;
        if (found < *count && out)
            out[found] = one;
        found++;
    }
    free(text);
    if (answer == OK && !found)
        answer = NOT_FOUND;
    if (answer == OK) {
        answer = found > *count || !out ? INSUFFICIENT_SIZE : OK;
        *count = found;
    }
    return answer;
}

#ifndef R470

int nvmlDeviceGetMemoryInfo_v2(unit *device, memory_v2 *out) {
    u64 numbers[4] = {0};
    int answer = out->version == (sizeof *out | 2 << 24) ? OK : VERSION_MISMATCH;
    if (answer == OK)
        answer = numbers_of("nvmlDeviceGetMemoryInfo", device, "memory", numbers);
    if (answer == OK)
        *out = (memory_v2){out->version, numbers[0], numbers[3], numbers[1], numbers[2]};
    return answer;
}

int nvmlDeviceGetTemperatureV(unit *device, temperature_v1 *out) {
    u32 celsius;
    int answer = out->version == (sizeof *out | 1 << 24) ? OK : VERSION_MISMATCH;
    if (answer == OK)
        answer = nvmlDeviceGetTemperature(device, out->sensor, &celsius);
    if (answer == OK)
        out->celsius = (int)celsius;
    return answer;
}

int nvmlDeviceGetComputeRunningProcesses_v3(unit *device, u32 *count, process_v2 *out) {
    return nvmlDeviceGetComputeRunningProcesses_v2(device, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(unit *device, u32 *count, process_v2 *out) {
    return nvmlDeviceGetGraphicsRunningProcesses_v2(device, count, out);
}

#endif
