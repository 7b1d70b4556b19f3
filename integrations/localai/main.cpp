/* pagedinfer-localai: a backend of LocalAI. LocalAI starts one process per model, through run.sh.
 *
 *     pagedinfer-localai --addr 127.0.0.1:50051
 *
 * The process ends on SIGTERM, SIGINT, or when its parent is gone: LocalAI cannot reach it after that. */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>

#include <unistd.h>

#include "service.h"

namespace {

enum {
    MESSAGE_BYTES = 50 << 20, /* LocalAI's limit in both directions */
    MAX_THREADS = 512,        /* calls at the same time, about; more get RESOURCE_EXHAUSTED */
    MAX_METADATA = 16 << 10,
    WATCH_S = 2,              /* interval of the look at the parent */
    STOP_S = 2                /* time that calls get to end after SIGTERM */
};

const char usage[] =
    "usage: pagedinfer-localai [--addr HOST:PORT]\n"
    "\n"
    "Serves LocalAI's protocol backend.Backend over gRPC. The address defaults to 127.0.0.1:50051; port 0 selects a\n"
    "free port.\n"
    "\n"
    "  --addr ADDRESS   HOST:PORT or unix:PATH. Another host than this machine's loopback needs a token\n"
    "  --options        print the options of LocalAI's llama-cpp backend and their effect here\n"
    "  --version        print the version\n"
    "\n"
    "Environment:\n"
    "  LOCALAI_GRPC_AUTH_TOKEN            token that each call must have\n"
    "  LOCALAI_BACKEND_PARENT_WATCH=false go on when the parent process is gone\n"
    "  PAGEDINFER_LOCALAI_OPEN=1          allow another host without a token, in a network that only you can reach\n";

std::string environment(const char *name)
{
    const char *v = std::getenv(name);
    return v ? v : "";
}

bool begins(std::string_view s, std::string_view with) { return s.substr(0, with.size()) == with; }

bool is_local(std::string_view addr)
{
    for (const char *prefix : {"127.", "localhost:", "[::1]:", "unix:", "unix-abstract:"})
        if (begins(addr, prefix)) return true;
    return false;
}

int fail(const std::string &why)
{
    std::fprintf(stderr, "pagedinfer-localai: %s\n", why.c_str());
    return 1;
}

void print_log(int level, std::string_view text)
{
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    const char *name = level > 0 && level < 5 ? names[level] : "log";
    std::fprintf(stderr, "%s: %.*s\n", name, static_cast<int>(text.size()), text.data());
}

/* Waits for a signal, or the end of the parent. */
void wait_for_end(const sigset_t &signals, pid_t parent)
{
    const bool watch = environment("LOCALAI_BACKEND_PARENT_WATCH") != "false";
    const timespec interval{WATCH_S, 0};
    for (;;) {
        if (sigtimedwait(&signals, nullptr, &interval) > 0) return;
        if (watch && getppid() != parent) {
            print_log(PI_LOG_WARN, "the parent process is gone: the backend ends");
            return;
        }
    }
}

int serve(const std::string &addr, const std::string &token)
{
    const pid_t parent = getppid();
    sigset_t signals;
    sigemptyset(&signals);
    for (const int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, s);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr); /* before gRPC starts its threads */
    std::signal(SIGPIPE, SIG_IGN);

    localai::service service(token, print_log);
    grpc::ResourceQuota quota("pagedinfer-localai");
    grpc::ServerBuilder builder;
    int port = 0;
    quota.SetMaxThreads(MAX_THREADS);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(MESSAGE_BYTES);
    builder.SetMaxSendMessageSize(MESSAGE_BYTES);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0); /* a port in use is an error */
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, MAX_METADATA);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, MAX_THREADS);
    builder.AddListeningPort(addr, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server || !port) return fail("cannot listen on " + addr + ": give a free address with --addr");
    std::fprintf(stderr, "listening on %s\n",
                 begins(addr, "unix") ? addr.c_str()
                                      : (addr.substr(0, addr.rfind(':') + 1) + std::to_string(port)).c_str());
    wait_for_end(signals, parent);
    server->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_seconds(STOP_S, GPR_TIMESPAN)));
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    std::string addr = "127.0.0.1:50051";
    for (int i = 1; i < argc; i++) {
        const std::string_view arg = argv[i];
        if ((arg == "--addr" || arg == "-addr") && i + 1 < argc) {
            addr = argv[++i];
        } else if (begins(arg, "--addr=")) {
            addr = arg.substr(7);
        } else if (arg == "--options") {
            return localai::print_options(), 0;
        } else if (arg == "--version") {
            return std::printf("pagedinfer-localai %s\n", pi_version()), 0;
        } else if (arg == "--help" || arg == "-h") {
            return std::fputs(usage, stdout), 0;
        } else {
            return std::fprintf(stderr, "%s\nunknown argument: %s\n", usage, argv[i]), 2;
        }
    }
    const std::string token = environment("LOCALAI_GRPC_AUTH_TOKEN");
    if (pi_abi_version() != PI_ABI_VERSION) return fail("libpagedinfer has another ABI version: install both together");
    if (!is_local(addr) && token.empty() && environment("PAGEDINFER_LOCALAI_OPEN") != "1")
        return fail("refusing to listen on " + addr +
                    " without a token: set LOCALAI_GRPC_AUTH_TOKEN, or listen on 127.0.0.1");
    return serve(addr, token);
}
