// SPDX-License-Identifier: GPL-2.0-only
/*
 * An agent begins with nothing, or with what one before it left to its watchdog. Until all of that
 * is here and fits, nothing has changed. An agent that cannot take it leaves it where it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "call/call.h"
#include "gate/gate.h"
#include "life/life.h"
#include "life/handover.h"
#include "state/flight.h"
#include "tenant/tenant.h"

static int connection = -1; /* to the watchdog of the agent before */

/* ----------------------------------------------------------------- the state */

static uint64_t digest(void)
{
	static const size_t facts[] = {
		sizeof(struct door), sizeof(struct container), offsetof(struct container, tenant),
		offsetof(struct container, file), offsetof(struct container, clients),
		sizeof(struct process), sizeof(struct file), sizeof(struct flight),
		offsetof(struct flight, call), offsetof(struct flight, args),
		offsetof(struct flight, lists), sizeof(struct stage), sizeof(struct cgpu_call),
		sizeof(struct cgpu_request), sizeof(struct cgpu_tenant),
		offsetof(struct cgpu_tenant, objects), offsetof(struct cgpu_tenant, ranges),
		offsetof(struct cgpu_tenant, files), sizeof(struct cgpu_account),
		sizeof(struct cgpu_charge), sizeof(struct cgpu_object), sizeof(struct cgpu_range),
		sizeof(struct cgpu_file), sizeof(struct cgpu_grant), sizeof(struct cgpu_host),
		sizeof(struct cgpu_sched), CGPU_ACCOUNTS, CGPU_RANGE_KINDS, CGPU_TABLE_COUNT,
	};
	uint64_t sum = state_fold(0xcbf29ce484222325ull, CGPU_AGENT_STATE_VERSION);
	size_t i;

	for (i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		sum = state_fold(sum, facts[i]);
	sum = state_fold(sum, events_segment().bytes);
	sum = state_fold(sum, gates_segment().bytes);
	sum = state_fold(sum, refused_segment().bytes);
	return listeners_fold(userd_fold(clients_fold(sum)));
}

static int place(bool adopt)
{
	const struct state_segment segments[] = {
		{ &door, sizeof(door) }, events_segment(), gates_segment(), refused_segment(),
	};

	return arena_place(segments, sizeof(segments) / sizeof(segments[0]), adopt);
}

/* Low numbers that hold a placeholder. */
static bool filled[STATE_FD_FIRST];

/* From here on each new descriptor gets a number that a later agent can give it, too. */
static int fill_low_numbers(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	while (fd < STATE_FD_FIRST) {
		filled[fd] = true;
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
	}
	close(fd);
	/* programs begin with about ten descriptors, and the driver's cards add some */
	return filled[STATE_FD_FIRST - 1] ? 0 : -EMFILE;
}

static int begin(char *message)
{
	int err = fill_low_numbers();

	if (!err)
		err = arena_create();
	if (!err) {
		state_head()->digest = digest();
		state_head()->socket = handover_listen();
		err = state_head()->socket < 0 ? state_head()->socket : place(false);
	}
	if (err)
		snprintf(message, 256, "the state of the agent cannot be made: %s", strerror(-err));
	return err;
}

/* ------------------------------------------------------------------ adoption */

/* Gives descriptors the same numbers here. Return: -errno. */
static int take_descriptors(char *message)
{
	int number, fd, err;
	char byte = WATCHDOG_TAKE;

	err = fill_low_numbers();
	if (err)
		return err;
	if (send(connection, &byte, 1, MSG_NOSIGNAL) != 1)
		return -errno;
	while (handover_receive(connection, &number, &fd)) {
		if (number < 0)
			return 0;
		if (number == fd)
			continue;
		/*
		 * a program may close a descriptor that it began with, and another file then has
		 * the number
		 */
		if (fcntl(number, F_GETFD) >= 0 &&
		    !(number < STATE_FD_FIRST && filled[number])) {
			snprintf(message, 256, "descriptor %d, which the agent before had, is in"
				 " use here: start the agent without it", number);
			return -EBUSY;
		}
		if (dup3(fd, number, O_CLOEXEC) < 0)
			return -errno;
		close(fd);
	}
	return -ECONNRESET;
}

/* The cards that the state is about. */
static bool is_same_driver(const struct door *found)
{
	uint32_t i;

	for (i = 0; i < CGPU_MAX_CARDS; i++)
		if (found->host.card[i].present != door.host.card[i].present ||
		    memcmp(found->host.topology.gpu[i].uuid, door.host.topology.gpu[i].uuid,
			   sizeof(door.host.topology.gpu[i].uuid)))
			return false;
	return !strcmp(found->version, door.version);
}

static int adopt(const struct watchdog_hello *hello, char *message)
{
	static struct door found;
	int err;

	if (memcmp(hello->magic, "cgpuagnt", 8) || hello->version != CGPU_AGENT_STATE_VERSION ||
	    hello->digest != digest()) {
		snprintf(message, 256, "tenants of another version's agent are at work, and this"
			 " one cannot take them over: they wait for one that can (state %u, here"
			 " %d); start that, or end them", hello->version,
			 CGPU_AGENT_STATE_VERSION);
		return -EPROTO;
	}
	err = take_descriptors(message);
	if (!err)
		err = arena_map(hello->memory);
	if (!err) {
		found = door;
		err = place(true);
	}
	if (!err && !is_same_driver(&found)) {
		strcpy(message, "the cards are not those that the agent before had: end its tenants");
		return -ENODEV;
	}
	if (err) {
		if (!message[0])
			snprintf(message, 256, "the state of the agent before cannot be had: %s",
				 strerror(-err));
		return err;
	}
	door.abi = found.abi;
	door.uvm_major = found.uvm_major;
	door.host.topology = found.host.topology;
	door.running = false;
	door.count.adopted++;
	memset(door.reopen, 0, sizeof(door.reopen));
	door_init_locks();
	return 0;
}

int takeover(char *message)
{
	struct watchdog_hello hello;

	connection = handover_call(&hello);
	if (connection >= 0)
		return adopt(&hello, message);
	if (connection == -ENOENT || connection == -ECONNREFUSED)
		return begin(message);
	snprintf(message, 256, "%s: the watchdog of an agent before does not answer: %s",
		 handover_path(), strerror(-connection));
	return connection;
}

void takeover_done(void)
{
	watchdog_take_charge();
	if (connection < 0)
		return;
	/*
	 * The watchdog before learns by the close that this is over, and that it is not in charge.
	 * The number stays in use: a descriptor of the state could get it, and a later agent could
	 * not give that number to it.
	 */
	dup3(STATE_FD_FIRST - 1, connection, O_CLOEXEC);
	connection = -1;
	journal_undo();
	gates_open_all();
	containers_adopt();
}

int cgpu_agent_adopted(void)
{
	return (int)door.count.adopted;
}
