# SPDX-License-Identifier: MIT
"""
Who asks for a tenant's descriptors waits as long as the tenant executes a program, for which a
file system of its own may let it wait. So no lock that others need is held meanwhile.
"""

from __future__ import annotations

import errno
from pathlib import Path

from tests.host.agent_part import MAKE_ROOM, run

#: A child has /dev/zero, which nobody can poll, as the container's file.
PROGRAM = (
    """
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long asked(long number, ...);
#define syscall(...) asked(__VA_ARGS__)
#include "pycgpu/agent/tenant/files.c"

struct door door;
static struct container *c;
static unsigned int questions, held, strangers;
static int exchanged = -1;

static void look(pthread_mutex_t *lock)
{
	if (pthread_mutex_trylock(lock))
		held++;
	else
		pthread_mutex_unlock(lock);
}

static long asked(long number, ...)
{
	long arg[5];
	va_list list;
	int i;

	va_start(list, number);
	for (i = 0; i < 5; i++)
		arg[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_pidfd_getfd || (number == SYS_kcmp && (int)arg[0] != getpid())) {
		questions++;
		/* by another thread of the tenant's, that is */
		if (number == SYS_pidfd_getfd && exchanged >= 0)
			arg[1] = exchanged;
		look(&door.lock);
		look(&c->files_lock);
		look(&c->process_lock);
	}
	return (syscall)(number, arg[0], arg[1], arg[2], arg[3], arg[4]);
}

#include "pycgpu/agent/tenant/process.c"
#include "pycgpu/agent/tenant/round.c"
#include "pycgpu/agent/tenant/holders.c"
#include "pycgpu/agent/tenant/sweep.c"
/* of major 1, as /dev/null is, which cannot be polled either */
#define UVM_MINOR 5
#include "pycgpu/agent/tenant/device.c"
#include "pycgpu/agent/host/cgroup.c"
#include "pycgpu/agent/host/memory_limit.c"

uint64_t now_ns(void)
{
	return 1;
}

"""
    + MAKE_ROOM
    + """
void managed_unbind(struct container *c, uint32_t number)
{
}

bool managed_is_blind(struct container *c, uint32_t number)
{
	return false;
}

bool managed_withdraw(struct container *c, uint32_t number)
{
	return false;
}

void clients_forget(struct container *c, uint32_t file)
{
}

void let_go(struct container *c)
{
}

void worker_left(struct container *c)
{
}

void stranger_close(struct container *c, int fd)
{
	strangers++;
	close(fd);
}

void event(const char *format, ...)
{
}

static unsigned int since(void)
{
	unsigned int more = questions;

	questions = 0;
	return more;
}

static struct search search;

int main(void)
{
	int zero = open("/dev/zero", O_RDWR), null = open("/dev/null", O_RDWR), local, child, got;
	uint32_t number, killed = 0, device, minor;
	struct process *p;
	bool other;

	c = calloc(1, sizeof(*c));
	c->epoll = epoll_create1(0);
	pthread_mutex_init(&c->files_lock, NULL);
	pthread_mutex_init(&c->process_lock, NULL);
	cgpu_tenant_init(&c->tenant, 1 << 10, 0);
	door.tfd_base = 500;
	door.uvm_major = 1;
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(1);
	}
	p = process_keep(c, process_of(c, child, &other), child);
	process_put(c, p);
	local = duplicate(c, p, child, false, null, &device, &minor);
	printf("another's %d %u\\n", local, since());
	local = duplicate(c, p, child, false, 99, &device, &minor);
	printf("none %d %u\\n", local, since());
	exchanged = null;
	local = duplicate(c, p, child, false, zero, &device, &minor);
	printf("exchanged %d %u strangers %u\\n", local, since(), strangers);
	exchanged = -1;
	local = duplicate(c, p, child, false, zero, &device, &minor);
	printf("duplicate %u\\n", since());
	close(zero);
	number = file_of(c, p, zero, local, CGPU_DEVICE_UVM, 0, NULL);
	close(local);
	since();
	got = file_duplicate(c, number);
	printf("file %d", got >= 0);
	printf(" %u\\n", since());
	/* a number that was one of its threads', and is another process' */
	c->tid[getpid() % TIDS].tid = getpid();
	c->tid[getpid() % TIDS].process = p;
	p = process_of(c, getpid(), &other);
	printf("thread %d", p && p->pid == getpid());
	printf(" %d\\n", since() > 0);
	list_lost(c, &search);
	printf("in hand %u", search.count);
	printf(" %d\\n", since() > 0);
	file_put(c, number);
	list_lost(c, &search);
	printf("lost %u", search.count);
	printf(" %d\\n", since() > 0);
	search.lost[0] = (struct lost){ .number = number, .held = c->file[number].held };
	search.count = search.left = 1;
	printf("holds %d", holds(c, child, child, zero, CGPU_DEVICE_UVM, 0, &search));
	printf(" %d\\n", since() > 0);
	kill_holder(c, child, child, zero, CGPU_DEVICE_UVM, 0, &killed);
	printf("killed %u", killed);
	printf(" %d\\n", since() > 0);
	waitpid(child, NULL, 0);
	printf("held %u\\n", held);
	return 0;
}
"""
)


def test_who_asks_a_tenants_process_for_a_file_holds_no_lock(tmp_path: Path) -> None:
    assert run(PROGRAM, tmp_path) == [
        f"another's {-errno.ENODEV} 0",
        f"none {-errno.EBADF} 0",
        f"exchanged {-errno.EBADF} 1 strangers 1",
        "duplicate 1",
        "file 1 1",
        "thread 1 1",
        "in hand 0 0",
        "lost 0 1",
        "holds 1 1",
        "killed 1 1",
        "held 0",
    ]
