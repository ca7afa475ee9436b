// SPDX-License-Identifier: MIT
/*
 * libcuda.so.1 beside a driver that is simulated or pretended: as much as a checkpoint needs. As in
 * NVIDIA's, a thread of the library does what another process asks, whoever calls meanwhile waits
 * for a futex, and the library's own thread waits there always. What moves is the program's.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { NOT_INITIALIZED = 3, OS_CALL = 304, ILLEGAL_STATE = 401, NOT_READY = 600, LOCK_S = 10 };
enum { RUNNING, LOCKED, CHECKPOINTED };

/* The program's: what it has on the card goes, and comes. Return: CUDA's status. */
typedef int (*program_fn)(void);

static program_fn leave, come_back;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;
static int state;

/* Its number in its own namespace. */
static int inner_pid(int pid)
{
	char path[64], line[256];
	int inner = pid, used;
	FILE *file;

	sprintf(path, "/proc/%d/status", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		char *at = line + strlen("NSpid:");

		if (strncmp(line, "NSpid:", strlen("NSpid:")))
			continue;
		while (sscanf(at, "%d%n", &inner, &used) == 1)
			at += used;
	}
	if (file)
		fclose(file);
	return inner;
}

/*
 * Where a process is asked, of whatever container: in a directory that each container has of its
 * own. Those that share it are told apart by their namespaces of processes.
 */
static void name(struct sockaddr_un *at, int pid)
{
	struct stat space = { 0 };
	char path[64];

	sprintf(path, "/proc/%d/ns/pid", pid);
	stat(path, &space);
	at->sun_family = AF_UNIX;
	snprintf(at->sun_path, sizeof(at->sun_path), "/proc/%d/root/dev/shm/cuda-%llu-%d", pid,
		 (unsigned long long)space.st_ino, inner_pid(pid));
}

/* Not for ever: a call may wait for what others do. */
static int lock(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LOCK_S;
	return pthread_mutex_timedlock(&gate, &until) ? NOT_READY : 0;
}

static int act(char what)
{
	int was = state, status = 0;

	if (what == 's')
		return state << 16;
	if (what != (was == RUNNING ? 'l' : was == LOCKED ? what == 'u' ? 'u' : 'c' : 'r'))
		return ILLEGAL_STATE;
	if (what == 'l')
		status = lock();
	else if (what == 'u')
		pthread_mutex_unlock(&gate);
	else
		status = what == 'c' ? leave() : come_back();
	if (!status)
		state = what == 'u' ? RUNNING : what == 'c' ? CHECKPOINTED : LOCKED;
	return status;
}

static void *serve(void *unused)
{
	struct sockaddr_un at = { 0 };
	int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, status;
	char what;

	prctl(PR_SET_NAME, "cuda00001");
	name(&at, getpid());
	/* of one that had its number before */
	unlink(at.sun_path);
	if (bind(listening, (struct sockaddr *)&at, sizeof(at)) || listen(listening, 8)) {
		perror("cuda");
		return unused;
	}
	while ((fd = accept(listening, NULL, NULL)) >= 0) {
		if (read(fd, &what, 1) == 1) {
			status = act(what);
			/* who asked may have ended meanwhile */
			send(fd, &status, sizeof(status), MSG_NOSIGNAL);
		}
		close(fd);
	}
	return unused;
}

static void *wait_always(void *unused)
{
	prctl(PR_SET_NAME, "cuda-EvtHandlr");
	pthread_mutex_lock(&never);
	return unused;
}

/* Before cuInit(). */
void cuMoves(program_fn leaves, program_fn returns)
{
	leave = leaves;
	come_back = returns;
}

int cuInit(unsigned int flags)
{
	pthread_t thread;

	pthread_mutex_lock(&never);
	return pthread_create(&thread, NULL, wait_always, NULL) |
	       pthread_create(&thread, NULL, serve, NULL) | (int)flags;
}

/* Around what a program does with the card. It does not return by a jump: see wishes.py. */
int cuEnter(void)
{
	return pthread_mutex_lock(&gate) != 0;
}

int cuLeave(void)
{
	return pthread_mutex_unlock(&gate) != 0;
}

/* A thread that waits for the card, which takes long: here for something to read. */
int cuWaitFor(int fd)
{
	struct pollfd it = { .fd = fd, .events = POLLIN };

	return poll(&it, 1, -1) < 0;
}

static int ask(int pid, char what)
{
	struct sockaddr_un at = { 0 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), status = OS_CALL;

	name(&at, pid);
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)))
		status = kill(pid, 0) && errno == ESRCH ? OS_CALL : NOT_INITIALIZED;
	else if (write(fd, &what, 1) != 1 || read(fd, &status, sizeof(status)) != sizeof(status))
		status = OS_CALL;
	close(fd);
	return status;
}

int cuCheckpointProcessLock(int pid, void *arguments)
{
	return arguments ? ask(pid, 'l') : 1;
}

int cuCheckpointProcessCheckpoint(int pid, void *arguments)
{
	return arguments ? ask(pid, 'c') : 1;
}

int cuCheckpointProcessRestore(int pid, void *arguments)
{
	return arguments ? ask(pid, 'r') : 1;
}

int cuCheckpointProcessUnlock(int pid, void *arguments)
{
	return arguments ? ask(pid, 'u') : 1;
}

int cuCheckpointProcessGetState(int pid, int *found)
{
	int status = ask(pid, 's');

	if (status == NOT_INITIALIZED || status == OS_CALL)
		return status;
	*found = status >> 16;
	return 0;
}
