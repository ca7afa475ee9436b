// SPDX-License-Identifier: GPL-2.0-only
/* The agent's begin and end, and its counters. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "agent.h"
#include "call/call.h"
#include "card/card.h"
#include "driver/driver.h"
#include "holder/holder.h"
#include "host/host.h"
#include "life/life.h"

/* for the containers' processes and files; the default fs.nr_open allows both, any the second */
static const rlim_t descriptors[] = { 1 << 19, 1 << 16 };

int cgpu_agent_counters(char *buf, int size)
{
	int used;

	pthread_mutex_lock(&door.lock);
	used = snprintf(buf, (size_t)size,
			"calls %llu\nperformed %llu\ncontinued %llu\nanswered %llu\nbusy_ns %llu\n"
			"gate_calls %llu\ngate_ns %llu\ngate_max_ns %llu\ngate_errors %llu\n"
			"slice_calls %llu\nslice_errors %llu\nsweeps %llu\n"
			"looks %llu\nlook_ns %llu\nlook_reads %llu\nwakes %llu\n"
			"userd_maps %llu\nuserd_errors %llu\nadopted %llu\n",
			(unsigned long long)door.count.calls,
			(unsigned long long)door.count.performed,
			(unsigned long long)door.count.continued,
			(unsigned long long)door.count.answered,
			(unsigned long long)door.count.busy_ns,
			(unsigned long long)door.count.gate_calls,
			(unsigned long long)door.count.gate_ns,
			(unsigned long long)door.count.gate_max_ns,
			(unsigned long long)door.count.gate_errors,
			(unsigned long long)door.count.slice_calls,
			(unsigned long long)door.count.slice_errors,
			(unsigned long long)door.count.sweeps,
			(unsigned long long)door.count.looks,
			(unsigned long long)door.count.look_ns,
			(unsigned long long)door.count.look_reads,
			(unsigned long long)door.count.wakes,
			(unsigned long long)door.count.userd_maps,
			(unsigned long long)door.count.userd_errors,
			(unsigned long long)door.count.adopted);
	pthread_mutex_unlock(&door.lock);
	return used;
}

int cgpu_agent_start(int newest, char *message)
{
	struct rlimit files;
	int err, i;

	message[0] = 0;
	err = kernel_check(message);
	if (err)
		return err;
	/* root may raise its own limit, unless a capability was taken from it */
	for (i = 0; i < 2; i++) {
		files = (struct rlimit){ descriptors[i], descriptors[i] };
		if (!setrlimit(RLIMIT_NOFILE, &files))
			break;
	}
	if (i == 2 && !getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max < descriptors[0] ? files.rlim_max : descriptors[0];
		setrlimit(RLIMIT_NOFILE, &files);
	}
	door.tfd_base = (int)(files.rlim_cur / 2);
	door.files_max = door.tfd_base < FILES_MAX ? (uint32_t)door.tfd_base : FILES_MAX;
	err = rm_open(newest, message);
	if (err)
		return err;
	err = takeover(message);
	if (!err)
		err = verify_driver(door.count.adopted, message);
	if (!err) {
		err = watchdog_start();
		if (err)
			snprintf(message, 256, "the watchdog does not start: %s", strerror(-err));
	}
	if (err) {
		rm_close();
		return err;
	}
	takeover_done();
	door.running = true;
	governors_start();
	containers_resume();
	refused_resume();
	lifecycle_start();
	receivers_start();
	return 0;
}

/* Calls under way end with the process, as if it were killed: the next agent resumes them. */
void cgpu_agent_stop(void)
{
	door.running = false;
}
